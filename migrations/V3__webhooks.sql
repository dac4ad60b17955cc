-- Webhooks. A webhook is an address and a sealed secret. Looking up an unknown webhook takes as
-- long as looking up a live one: if no live row is found, a decoy is fetched.

CREATE TABLE webhooks (
    workspace_id  uuid NOT NULL REFERENCES workspaces,
    webhook_id    uuid NOT NULL,
    name          text NOT NULL CHECK (char_length(name) BETWEEN 1 AND 200),
    secret_sealed bytea CHECK (octet_length(secret_sealed) <= 8192),
    created_at    timestamptz NOT NULL DEFAULT now(),
    deleted_at    timestamptz,
    tool          text NOT NULL DEFAULT 'letterbox' CHECK (length(tool) <= 40
        AND tool ~ '^[a-z0-9-]+$'),
    rules         text CHECK (length(rules) <= 4096),
    allow_from    text CHECK (length(allow_from) <= 4096),
    kept_headers  text[] NOT NULL DEFAULT '{}' CHECK (cardinality(kept_headers) <= 8
        -- Fails for a list of lists, too: the gateway could read neither.
        AND array_position(kept_headers, NULL) IS NULL
        AND length(array_to_string(kept_headers, ',')) <= 1024),
    same_by       text NOT NULL DEFAULT 'body'
        CHECK (length(same_by) <= 200 AND same_by ~ '^(body|id|/.*)$'),
    replaces      uuid,
    memory_id     uuid,
    ends_at       timestamptz,
    settable_until timestamptz,
    former_secret_sealed bytea CHECK (octet_length(former_secret_sealed) <= 8192),
    former_until  timestamptz,
    version       bigint NOT NULL DEFAULT 1,
    PRIMARY KEY (workspace_id, webhook_id),
    CONSTRAINT custom_tools_have_rules CHECK ((tool = 'custom') = (rules IS NOT NULL)),
    CONSTRAINT secret_lives_as_long_as_the_webhook
        CHECK ((deleted_at IS NULL) = (secret_sealed IS NOT NULL))
);
CREATE FUNCTION change_webhook() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    NEW.version := OLD.version + 1;
    IF NEW.secret_sealed IS NULL OR NEW.former_until <= now() THEN
        NEW.former_until := NULL;
    ELSIF NEW.former_until IS DISTINCT FROM OLD.former_until THEN
        NEW.former_secret_sealed := OLD.secret_sealed;
    END IF;
    IF NEW.former_until IS NULL THEN
        NEW.former_secret_sealed := NULL;
    END IF;
    RETURN NEW;
END
$$;
COMMENT ON FUNCTION change_webhook IS
    'Gives a changed row its next version; keeps its secret as the former one if that is to be '
    'valid for a while, and destroys that with the webhook';
CREATE TRIGGER change_webhook BEFORE UPDATE ON webhooks
    FOR EACH ROW EXECUTE FUNCTION change_webhook();
COMMENT ON TABLE webhooks IS 'An address that other tools send signed events to';
COMMENT ON COLUMN webhooks.workspace_id IS 'Tenant; first part of the URL token';
COMMENT ON COLUMN webhooks.webhook_id IS 'Second part of the URL token';
COMMENT ON COLUMN webhooks.name IS 'Display name: the tool that sends here';
COMMENT ON COLUMN webhooks.secret_sealed IS
    'Signing secret, AES-256-GCM bound to this row; destroyed with the webhook';
COMMENT ON COLUMN webhooks.deleted_at IS
    'When the webhook was deleted; its deliveries and signals stay';
COMMENT ON COLUMN webhooks.tool IS 'The tool that sends, by its name in the table of tools';
COMMENT ON COLUMN webhooks.rules IS
    'JSON text of the rules of a custom tool; null otherwise';
COMMENT ON COLUMN webhooks.allow_from IS
    'Networks that may send, as CIDR[,CIDR...]; null allows all';
COMMENT ON COLUMN webhooks.kept_headers IS
    'Names of headers that are kept of its deliveries, besides those of its tool';
COMMENT ON COLUMN webhooks.same_by IS
    'What makes two deliveries one: the same body, the same signed id, or what stands at this JSON '
    'pointer of the body';
COMMENT ON COLUMN webhooks.version IS
    'Grows with every change: what a gateway knows of an older one counts no more';
COMMENT ON COLUMN webhooks.replaces IS 'The webhook that it replaced; null if none';
COMMENT ON COLUMN webhooks.memory_id IS
    'The first in the chain of webhooks that replaced each other, possibly itself: all of them '
    'remember bodies under its id; null if none was replaced';
COMMENT ON COLUMN webhooks.ends_at IS
    'When it ends because it was replaced, by the database''s clock; null means never';
COMMENT ON COLUMN webhooks.former_secret_sealed IS
    'The secret before the last one, sealed in the same way, while it is valid, too';
COMMENT ON COLUMN webhooks.former_until IS 'Until when that is; null if there is none';
COMMENT ON COLUMN webhooks.settable_until IS
    'Until when its secret may be set, which the tool makes that sends: infinity while it has one '
    'that nobody knows, null for never';
CREATE INDEX webhooks_by_memory ON webhooks (workspace_id, memory_id) WHERE memory_id IS NOT NULL
    AND deleted_at IS NULL;
CREATE INDEX webhooks_successors ON webhooks (workspace_id, webhook_id) WHERE replaces IS NOT NULL
    AND deleted_at IS NULL;
CREATE UNIQUE INDEX webhooks_live ON webhooks (workspace_id, webhook_id) WHERE deleted_at IS NULL;

CREATE TABLE decoy_webhooks (
    is_known boolean PRIMARY KEY DEFAULT false CHECK (NOT is_known),
    filler   bytea NOT NULL
);
COMMENT ON TABLE decoy_webhooks IS 'One row, fetched for each webhook that is not found';
COMMENT ON COLUMN decoy_webhooks.is_known IS 'Never true';
COMMENT ON COLUMN decoy_webhooks.filler IS 'As long as a sealed secret';
INSERT INTO decoy_webhooks (filler) VALUES (decode(repeat('00', 110), 'hex'));

CREATE TABLE webhook_refusals (
    workspace_id uuid NOT NULL,
    webhook_id   uuid NOT NULL,
    refusal_id   bigint GENERATED ALWAYS AS IDENTITY,
    refused_at   timestamptz NOT NULL,
    reason       text NOT NULL
        CHECK (reason IN ('missing', 'repeated', 'prefix', 'upper_case', 'length', 'not_hex',
        'digest', 'scheme', 'time', 'address', 'too_large', 'not_json', 'content_type',
        'form_encoded', 'compressed', 'no_secret_yet', 'handshake')),
    detail       text CHECK (length(detail) <= 200),
    request_id   text CHECK (length(request_id) BETWEEN 1 AND 64),
    PRIMARY KEY (workspace_id, webhook_id, refusal_id)
);
COMMENT ON TABLE webhook_refusals IS
    'The last refused deliveries of each webhook, for its owner; senders are not told';
COMMENT ON COLUMN webhook_refusals.detail IS
    'What was received, as far as that explains it; null if nothing does';
COMMENT ON COLUMN webhook_refusals.refused_at IS 'By the gateway''s clock';
COMMENT ON COLUMN webhook_refusals.request_id IS 'The X-Request-Id of the answer to the sender';

CREATE FUNCTION note_refusals(workspaces uuid[], webhooks uuid[], times timestamptz[],
    reasons text[], details text[], requests text[])
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    losses CONSTANT text[] := ARRAY['form_encoded', 'compressed', 'content_type', 'not_json'];
    today CONSTANT date := (now() AT TIME ZONE 'UTC')::date;
BEGIN
    WITH noted AS (
        INSERT INTO webhook_refusals (workspace_id, webhook_id, refused_at, reason, detail,
            request_id)
        SELECT n.workspace_id, n.webhook_id, n.refused_at, n.reason, n.detail, n.request_id
        FROM unnest(workspaces, webhooks, times, reasons, details, requests) WITH ORDINALITY
             AS n (workspace_id, webhook_id, refused_at, reason, detail, request_id, place)
        JOIN webhooks w ON w.workspace_id = n.workspace_id AND w.webhook_id = n.webhook_id
            AND w.deleted_at IS NULL
        ORDER BY n.workspace_id, n.webhook_id, n.place
        RETURNING workspace_id, webhook_id, reason
    ), fresh AS (
        SELECT n.workspace_id, n.webhook_id, count(*) AS refused,
            count(*) FILTER (WHERE n.reason = ANY (losses)) AS lost,
            count(*) FILTER (WHERE n.reason = 'too_large') AS too_large
        FROM noted n GROUP BY n.workspace_id, n.webhook_id
    ), due AS (
        -- An event that is lost for what it is; the tenth refusal of a webhook that has worked this
        -- week and has taken nothing today. What nobody has signed counts only where others came.
        SELECT f.workspace_id, f.webhook_id FROM fresh f
        CROSS JOIN LATERAL (
            SELECT max(s.day) AS day FROM stored_bytes s WHERE s.workspace_id = f.workspace_id
                AND s.webhook_id = f.webhook_id AND s.day >= today - 7
        ) AS last
        CROSS JOIN LATERAL (
            SELECT count(*) AS refused FROM webhook_refusals r
            WHERE r.workspace_id = f.workspace_id AND r.webhook_id = f.webhook_id
                AND r.refused_at >= today AT TIME ZONE 'UTC'
        ) AS former
        WHERE f.lost > 0 OR f.too_large > 0 AND last.day IS NOT NULL
            OR former.refused + f.refused >= 10 AND last.day < today
    ), told AS (
        -- Once a day.
        INSERT INTO webhook_repeats AS r (workspace_id, webhook_id, times, told_on)
        SELECT d.workspace_id, d.webhook_id, 0, today FROM due d
        ORDER BY d.workspace_id, d.webhook_id
        ON CONFLICT (workspace_id, webhook_id) DO UPDATE SET told_on = EXCLUDED.told_on
        WHERE r.told_on IS DISTINCT FROM EXCLUDED.told_on
        RETURNING r.workspace_id, r.webhook_id
    )
    INSERT INTO news (workspace_id, kind, subject_id)
    SELECT w.workspace_id, 'deaf_webhook', t.webhook_id
    FROM told t JOIN workspaces w ON w.workspace_id = t.workspace_id
        AND (w.notify_by_email OR w.notify_account IS NOT NULL);
    DELETE FROM webhook_refusals old
    USING (SELECT DISTINCT n.workspace_id, n.webhook_id FROM unnest(workspaces,
        webhooks) AS n (workspace_id, webhook_id)) AS n
    WHERE old.workspace_id = n.workspace_id AND old.webhook_id = n.webhook_id
        AND old.refusal_id <= (
        SELECT kept.refusal_id FROM webhook_refusals kept
        WHERE kept.workspace_id = n.workspace_id AND kept.webhook_id = n.webhook_id
        ORDER BY kept.refusal_id DESC OFFSET 100 LIMIT 1);
END
$$;
COMMENT ON FUNCTION note_refusals IS
    'Records why deliveries to existing webhooks were refused, keeps the last hundred of each, and '
    'has it told when events are lost';

CREATE TABLE webhook_repeats (
    workspace_id uuid NOT NULL,
    webhook_id   uuid NOT NULL,
    times        bigint NOT NULL,
    last_at      timestamptz NOT NULL DEFAULT now(),
    told_on      date,
    PRIMARY KEY (workspace_id, webhook_id)
);
COMMENT ON TABLE webhook_repeats IS
    'How many deliveries of each webhook were taken before, and when it was told that others are '
    'lost';
COMMENT ON COLUMN webhook_repeats.told_on IS 'The last day, in UTC; null for never';
COMMENT ON COLUMN webhook_repeats.times IS 'How many changed nothing';
COMMENT ON COLUMN webhook_repeats.last_at IS 'When the last of them came, a second more or less';
CREATE INDEX webhook_repeats_told ON webhook_repeats (told_on) WHERE told_on IS NOT NULL;

CREATE VIEW deaf_webhooks AS
SELECT r.workspace_id, r.webhook_id, w.name, r.told_on, last.refused_at, last.reason, last.detail
FROM webhook_repeats r
JOIN webhooks w ON w.workspace_id = r.workspace_id AND w.webhook_id = r.webhook_id
    AND w.deleted_at IS NULL
CROSS JOIN LATERAL (
    SELECT o.refused_at, o.reason, o.detail FROM webhook_refusals o
    WHERE o.workspace_id = r.workspace_id AND o.webhook_id = r.webhook_id
    -- Of what is lost, before what a stranger sends.
    ORDER BY o.reason IN ('form_encoded', 'compressed', 'content_type', 'not_json', 'too_large')
        DESC, o.refusal_id DESC LIMIT 1
) AS last
WHERE r.told_on >= (now() AT TIME ZONE 'UTC')::date - 1;
COMMENT ON VIEW deaf_webhooks IS
    'The webhooks of which was told today or yesterday that events are lost, with the last refusal';

CREATE FUNCTION count_repeats(workspaces uuid[], webhooks uuid[], counts bigint[])
RETURNS void LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    INSERT INTO webhook_repeats AS r (workspace_id, webhook_id, times)
    SELECT n.workspace_id, n.webhook_id, n.times
    FROM unnest(workspaces, webhooks, counts) AS n (workspace_id, webhook_id, times)
    JOIN webhooks w ON w.workspace_id = n.workspace_id AND w.webhook_id = n.webhook_id
        AND w.deleted_at IS NULL
    -- In order, so that two gateways can't deadlock.
    ORDER BY n.workspace_id, n.webhook_id
    ON CONFLICT (workspace_id, webhook_id) DO UPDATE SET times = r.times + EXCLUDED.times,
        last_at = EXCLUDED.last_at
$$;
COMMENT ON FUNCTION count_repeats IS 'Adds to how many deliveries were taken before';

CREATE FUNCTION end_replaced_webhooks()
    RETURNS bigint LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    WITH forgotten AS (
        DELETE FROM webhook_refusals r
        WHERE NOT EXISTS (SELECT FROM webhooks w WHERE w.workspace_id = r.workspace_id
            AND w.webhook_id = r.webhook_id AND w.deleted_at IS NULL)
    ), due AS (
        -- One that somebody keeps locked holds up no others.
        SELECT workspace_id, webhook_id FROM webhooks
        WHERE deleted_at IS NULL AND ends_at <= clock_timestamp()
        FOR NO KEY UPDATE SKIP LOCKED
    ), ended AS (
        UPDATE webhooks w SET deleted_at = clock_timestamp(), secret_sealed = NULL
        FROM due WHERE w.workspace_id = due.workspace_id AND w.webhook_id = due.webhook_id
        RETURNING 1
    ), changed AS (
        UPDATE webhooks w SET former_until = NULL
        FROM (SELECT workspace_id, webhook_id FROM webhooks WHERE former_until <= clock_timestamp()
            FOR NO KEY UPDATE SKIP LOCKED) AS past
        WHERE w.workspace_id = past.workspace_id AND w.webhook_id = past.webhook_id
    )
    SELECT count(*) FROM ended
$$;
COMMENT ON FUNCTION end_replaced_webhooks IS
    'Destroys the secrets of replaced webhooks whose time is over, whose deliveries are refused '
    'even before that, and former secrets';
REVOKE EXECUTE ON FUNCTION note_refusals, count_repeats, end_replaced_webhooks FROM PUBLIC;
GRANT EXECUTE ON FUNCTION note_refusals, count_repeats TO letterbox_gateway;
GRANT EXECUTE ON FUNCTION end_replaced_webhooks TO letterbox_worker;

GRANT SELECT (workspace_id, webhook_id, version, secret_sealed, deleted_at, tool, rules,
    allow_from, kept_headers, same_by, memory_id, ends_at, settable_until,
    former_secret_sealed, former_until) ON webhooks TO letterbox_gateway;
GRANT SELECT (workspace_id, webhook_id, memory_id) ON webhooks TO letterbox_worker;
GRANT SELECT, INSERT, UPDATE ON webhooks TO letterbox_operator;
GRANT SELECT ON decoy_webhooks TO letterbox_gateway;
GRANT SELECT ON webhook_refusals, webhook_repeats TO letterbox_operator;
GRANT SELECT (workspace_id) ON deaf_webhooks TO letterbox_worker;
GRANT SELECT ON deaf_webhooks TO letterbox_operator;
