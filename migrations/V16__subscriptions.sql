-- Subscriptions: a program of a workspace gets its signals in a queue of its own or at a URL. A
-- subscription is a cursor, which a worker moves when the broker has confirmed what is before it,
-- or the URL has taken it. Whoever has it leased reads from there; whoever moves it must find it
-- where they have read, so that of two workers (one may have been frozen) only one does.

CREATE TABLE subscriptions (
    workspace_id    uuid NOT NULL REFERENCES workspaces ON DELETE CASCADE,
    subscription_id uuid NOT NULL DEFAULT gen_random_uuid(),
    queue           text CHECK (queue ~ '^[A-Za-z0-9_.:-]{1,200}$'
        AND queue !~ '^(amq|letterbox)\.'),
    url             text CHECK (char_length(url) <= 2000),
    target          text NOT NULL GENERATED ALWAYS AS (coalesce(queue, url)) STORED,
    secret_sealed   bytea CHECK ((secret_sealed IS NULL) = (url IS NULL)),
    in_flight       integer NOT NULL DEFAULT 1 CHECK (in_flight BETWEEN 1 AND 32),
    webhook_id      uuid,
    signal_kind     text
        CHECK (signal_kind IN ('proposal.created', 'proposal.won', 'client.created', 'generic')),
    conditions      text[] NOT NULL DEFAULT '{}' CHECK (cardinality(conditions) <= 8),
    login           text,
    position        bigint NOT NULL,
    signal_id       uuid NOT NULL,
    published       bigint NOT NULL DEFAULT 0,
    created_at      timestamptz NOT NULL DEFAULT now(),
    paused_at       timestamptz,
    leased_by       uuid,
    leased_until    timestamptz,
    due_at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    failing_since   timestamptz,
    failure         text CHECK (char_length(failure) <= 500),
    received        text CHECK (char_length(received) <= 200),
    PRIMARY KEY (workspace_id, subscription_id),
    UNIQUE (queue),
    UNIQUE (workspace_id, target),
    CHECK (num_nulls(queue, url) = 1),
    FOREIGN KEY (workspace_id, webhook_id) REFERENCES webhooks (workspace_id, webhook_id)
);
COMMENT ON TABLE subscriptions IS 'Queues and URLs that get the signals of a workspace';
COMMENT ON COLUMN subscriptions.subscription_id IS
    'The first word of the routing keys of its messages';
COMMENT ON COLUMN subscriptions.queue IS
    'Its name on the broker: of one subscription only; null if signals are posted to a URL';
COMMENT ON COLUMN subscriptions.url IS 'Where signals are posted to; null if they go to a queue';
COMMENT ON COLUMN subscriptions.target IS 'The queue or the URL: names it within its workspace';
COMMENT ON COLUMN subscriptions.secret_sealed IS 'Sealed to this row; signs what is posted';
COMMENT ON COLUMN subscriptions.in_flight IS
    'How many requests may wait for an answer; those of one alone keep their order';
COMMENT ON COLUMN subscriptions.webhook_id IS
    'Only signals of this webhook, and of those that replace it; null for all';
COMMENT ON COLUMN subscriptions.signal_kind IS 'Only signals of this kind; null for all';
COMMENT ON COLUMN subscriptions.conditions IS
    'Only signals whose bodies have members that equal these: /data/status=paid; empty for all';
COMMENT ON COLUMN subscriptions.login IS
    'The broker''s user that was made for it; null if none was';
COMMENT ON COLUMN subscriptions.position IS
    'The cursor: the position of the last signal that was looked at';
COMMENT ON COLUMN subscriptions.published IS 'How many the broker has confirmed, or the URL taken';
COMMENT ON COLUMN subscriptions.paused_at IS 'Since when nothing is published; null if it goes on';
COMMENT ON COLUMN subscriptions.leased_by IS 'The worker that publishes; null if none does';
COMMENT ON COLUMN subscriptions.leased_until IS 'Until when others leave it to that worker';
COMMENT ON COLUMN subscriptions.due_at IS 'When it is tried next after a failure';
COMMENT ON COLUMN subscriptions.failing_since IS
    'Since when nothing was confirmed or taken; null if all is well';
COMMENT ON COLUMN subscriptions.received IS 'The beginning of the answer that is the failure';

CREATE FUNCTION read_subscription(tenant uuid, wanted uuid, worker uuid, most integer,
    most_bytes bigint) RETURNS TABLE ("position" bigint, signal_id uuid, is_wanted boolean,
    webhook_id uuid, webhook_name text, kind text, generic_reason text, entity text,
    source_tool text, amount_value text, amount_currency text, event_id text, event_type text,
    request_id text,
    received_at timestamptz, stored_at timestamptz, headers text, body bytea)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    WITH next AS (
        SELECT g.*, h.name AS webhook_name,
            (s.signal_kind IS NULL OR s.signal_kind = g.kind) AND (s.webhook_id IS NULL
                OR coalesce(h.memory_id, h.webhook_id) = (SELECT coalesce(o.memory_id, o.webhook_id)
                    FROM webhooks o
                    WHERE o.workspace_id = tenant AND o.webhook_id = s.webhook_id)) AS is_wanted
        FROM subscriptions s
        JOIN LATERAL (
            SELECT one.* FROM signals one
            WHERE one.workspace_id = tenant AND one.position >= s.position
                AND (one.position, one.signal_id) > (s.position, s.signal_id)
                AND one.position < (SELECT settled_position())
            ORDER BY one.position, one.signal_id LIMIT most
        ) AS g ON true
        JOIN webhooks h ON h.workspace_id = tenant AND h.webhook_id = g.webhook_id
        WHERE s.workspace_id = tenant AND s.subscription_id = wanted AND s.paused_at IS NULL
            AND s.leased_by = worker AND s.leased_until > clock_timestamp()
    ), sized AS (
        SELECT n.*, coalesce(sum(octet_length(n.body)) FILTER (WHERE n.is_wanted) OVER (
            ORDER BY n.position, n.signal_id ROWS UNBOUNDED PRECEDING EXCLUDE CURRENT ROW), 0)
            AS bytes_before
        FROM next n
    )
    SELECT n.position, n.signal_id, n.is_wanted, n.webhook_id, n.webhook_name, n.kind,
        n.generic_reason, n.entity, n.source_tool, n.amount_value::text, n.amount_currency,
        n.event_id, n.event_type, n.request_id, n.received_at, n.stored_at,
        CASE WHEN n.is_wanted THEN n.headers END, CASE WHEN n.is_wanted THEN n.body END
    FROM sized n WHERE n.bytes_before < most_bytes ORDER BY n.position, n.signal_id
$$;
COMMENT ON FUNCTION read_subscription IS
    'The next signals of a subscription, of which the worker must have the lease: at most `most`, '
    'and no more after `most_bytes` of bodies; those that it does not want without their content';
REVOKE EXECUTE ON FUNCTION read_subscription FROM PUBLIC;
GRANT EXECUTE ON FUNCTION read_subscription TO letterbox_worker;

CREATE VIEW subscription_lags AS
SELECT s.workspace_id, s.subscription_id, s.paused_at,
    coalesce(s.queue, s.subscription_id::text) AS name,
    (SELECT count(*) FROM (SELECT FROM signals g WHERE g.workspace_id = s.workspace_id
        AND g.position >= s.position AND (g.position, g.signal_id) > (s.position, s.signal_id)
        LIMIT 10000) AS few) AS signals,
    coalesce(extract(epoch FROM now() - (SELECT g.stored_at FROM signals g
        WHERE g.workspace_id = s.workspace_id AND g.position >= s.position
            AND (g.position, g.signal_id) > (s.position, s.signal_id)
        ORDER BY g.position, g.signal_id LIMIT 1)), 0)::float8 AS seconds
FROM subscriptions s;
COMMENT ON VIEW subscription_lags IS
    'How many signals each subscription has not looked at, counted up to 10,000, and how long ago '
    'the first of them was stored';

GRANT SELECT, UPDATE (position, signal_id, published, leased_by, leased_until, due_at,
    failing_since, failure, received) ON subscriptions TO letterbox_worker;
GRANT SELECT, INSERT, DELETE, UPDATE (position, signal_id, paused_at, in_flight, secret_sealed,
    leased_by, leased_until, due_at, failing_since, failure, received)
    ON subscriptions TO letterbox_operator;
GRANT SELECT ON subscription_lags TO letterbox_worker, letterbox_operator;

CREATE TRIGGER audit AFTER INSERT OR UPDATE OR DELETE ON subscriptions
    FOR EACH ROW WHEN (COALESCE(current_setting('role', true), '') NOT IN ('letterbox_gateway',
        'letterbox_worker')) EXECUTE FUNCTION audit('target');
-- Once for each failure that lasts.
CREATE TRIGGER note_stalled_subscription AFTER UPDATE OF due_at ON subscriptions
    FOR EACH ROW WHEN (NEW.due_at > NEW.failing_since + interval '5 minutes'
        AND (OLD.due_at <= OLD.failing_since + interval '5 minutes') IS NOT FALSE)
    EXECUTE FUNCTION note_news('stalled_subscription', 'subscription_id');
