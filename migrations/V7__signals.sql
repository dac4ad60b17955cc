-- Signals, made from deliveries.

-- Signals are read in the order of their positions: the number of the transaction that stored them,
-- which grows. Transactions end in any order, so a reader takes only what is below the oldest that
-- is under way and may store signals: then nothing is left out, however late somebody commits. A
-- server that was restored, upgraded or put in place of another may number its transactions anew:
-- so the epoch grows.

CREATE TABLE signal_epoch (
    epoch  bigint NOT NULL CHECK (epoch BETWEEN 0 AND 500000),
    server text NOT NULL
);
COMMENT ON TABLE signal_epoch IS 'One row: which server''s transactions number the signals now';
COMMENT ON COLUMN signal_epoch.epoch IS 'How many others have numbered them before';
COMMENT ON COLUMN signal_epoch.server IS 'Its system identifier and its timeline';

CREATE FUNCTION this_server() RETURNS text LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT system_identifier || '/' || left(pg_walfile_name(pg_current_wal_lsn()), 8)
    FROM pg_control_system();
END;
COMMENT ON FUNCTION this_server IS 'What signal_epoch has of this server, which takes writes';
INSERT INTO signal_epoch SELECT 0, this_server();

CREATE FUNCTION next_signal_position() RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE signal_epoch SET epoch = epoch + 1, server = this_server() WHERE server <> this_server();
    RETURN (SELECT epoch << 44 FROM signal_epoch) + pg_current_xact_id()::text::bigint;
END
$$;
COMMENT ON FUNCTION next_signal_position IS 'The position of what this transaction stores';

-- The same, many times as fast where the server is still the one that it was.
CREATE VIEW signal_position AS
SELECT CASE WHEN e.server = c.system_identifier || '/'
        || left(pg_walfile_name(pg_current_wal_lsn()), 8)
    THEN (e.epoch << 44) + pg_current_xact_id()::text::bigint
    ELSE next_signal_position() END AS position
FROM signal_epoch e CROSS JOIN pg_control_system() c;
COMMENT ON VIEW signal_position IS 'One row: the position of what this transaction stores';

-- STABLE is what makes it exact: it looks with the snapshot of the statement that calls it. Whoever
-- has a login could hold everybody up by a transaction that does nothing. So those are passed over
-- whose sessions are known, and can't store signals; they are known if the owner of this function
-- is a member of pg_read_all_stats.
CREATE FUNCTION settled_position() RETURNS bigint
LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT ((e.epoch + (e.server <> this_server())::integer) << 44)
        + coalesce((SELECT min(xid::text::bigint) FROM pg_snapshot_xip(now.snapshot) AS xid
            WHERE NOT EXISTS (SELECT FROM pg_stat_activity a WHERE a.backend_xid = xid::xid
                AND NOT pg_has_role(a.usesysid, 'letterbox_worker', 'MEMBER')
                AND a.usesysid <> (SELECT relowner FROM pg_class
                    WHERE oid = 'signal_epoch'::regclass))),
            pg_snapshot_xmax(now.snapshot)::text::bigint)
    FROM signal_epoch e CROSS JOIN (SELECT pg_current_snapshot() AS snapshot) AS now
$$;
COMMENT ON FUNCTION settled_position IS
    'Whatever has a lower position is committed, and nothing more comes there; fails on a standby, '
    'which can''t tell';
REVOKE EXECUTE ON FUNCTION next_signal_position, settled_position FROM PUBLIC;
GRANT EXECUTE ON FUNCTION next_signal_position TO letterbox_worker;
GRANT EXECUTE ON FUNCTION settled_position
    TO letterbox_worker, letterbox_operator;

CREATE TYPE mapped_delivery AS (
    workspace_id uuid, signal_id uuid, webhook_id uuid, received_at timestamptz, request_id text,
    body bytea, headers text, kind text, generic_reason text, entity text, source_tool text,
    event_id text, amount_value text, amount_currency text, event_type text
);
COMMENT ON TYPE mapped_delivery IS 'What workers insert into signals';

CREATE TABLE signals (
    workspace_id    uuid NOT NULL,
    signal_id       uuid NOT NULL,
    webhook_id      uuid NOT NULL,
    kind            text NOT NULL
        CHECK (kind IN ('proposal.created', 'proposal.won', 'client.created', 'generic')),
    generic_reason  text,
    entity          text,
    source_tool     text,
    amount_value    numeric
        CHECK (((amount_value >= (0)::numeric) AND (amount_value <=
        ('1000000000000'::bigint)::numeric)) AND scale(amount_value) <= 4),
    amount_currency text CHECK (amount_currency ~ '^[A-Z]{3}$'),
    event_id        text,
    body            bytea,
    received_at     timestamptz NOT NULL,
    stored_at       timestamptz NOT NULL DEFAULT now(),
    position        bigint NOT NULL DEFAULT next_signal_position(),
    request_id      text,
    headers         text CHECK (length(headers) <= 4096),
    event_type      text CHECK (length(event_type) <= 100),
    PRIMARY KEY (workspace_id, signal_id),
    CONSTRAINT amount_has_a_currency CHECK ((amount_value IS NULL) = (amount_currency IS NULL)),
    CONSTRAINT generic_says_why CHECK ((kind = 'generic') = (generic_reason IS NOT NULL)),
    CONSTRAINT native_is_complete
        CHECK ((kind = 'generic') OR (entity IS NOT NULL AND source_tool IS NOT NULL)),
    CONSTRAINT proposal_has_an_amount CHECK ((kind !~~ 'proposal.%') OR amount_value IS NOT NULL),
    CONSTRAINT request_ids_are_short CHECK (length(request_id) BETWEEN 1 AND 64),
    FOREIGN KEY (workspace_id, webhook_id) REFERENCES webhooks (workspace_id, webhook_id)
);
COMMENT ON TABLE signals IS
    'An event from outside, native if it meets the proposal contract, otherwise generic';
COMMENT ON COLUMN signals.signal_id IS 'Id of the delivery (UUIDv7: sorts by time of receipt)';
COMMENT ON COLUMN signals.kind IS 'The event''s type if it is native, or generic';
COMMENT ON COLUMN signals.generic_reason IS
    'The first rule of the proposal contract that the body broke; null when native';
COMMENT ON COLUMN signals.entity IS
    'The subject of the event; U+0000, which text can''t hold, is replaced with U+FFFD (the body '
    'has the original)';
COMMENT ON COLUMN signals.source_tool IS 'The tool that sent it; U+0000 as in entity';
COMMENT ON COLUMN signals.amount_value IS 'Exact, at most four decimal places';
COMMENT ON COLUMN signals.amount_currency IS 'Three capital letters';
COMMENT ON COLUMN signals.event_id IS 'The sender''s own id of the event; U+0000 as in entity';
COMMENT ON COLUMN signals.body IS 'The exact bytes that were signed; null after they were deleted';
COMMENT ON COLUMN signals.received_at IS 'When the gateway received it, by the gateway''s clock';
COMMENT ON COLUMN signals.stored_at IS 'When the worker stored it, by the database''s clock';
COMMENT ON COLUMN signals.position IS
    'Its place in the order in which signals are read; one for all of a transaction';
COMMENT ON COLUMN signals.request_id IS
    'The X-Request-Id of the answer to the sender; null if unknown';
COMMENT ON COLUMN signals.headers IS
    'JSON text {"signed", "unsigned"}: the headers that were kept of the attempt that is stored, '
    'those that the signature covers apart; null if none, and after the body was deleted';
COMMENT ON COLUMN signals.event_type IS
    'What its tool calls the event; null if that is not known';
-- The only index beside the key: signals that are stored together are one entry of it. Times grow
-- as positions do, but for the seconds that a transaction takes.
CREATE INDEX signals_by_position ON signals (workspace_id, position);

CREATE FUNCTION position_before(tenant uuid, given timestamptz) RETURNS bigint
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
    -- Whatever is at `low` or before was stored earlier, a minute at least.
    low bigint := 0;
    high bigint := settled_position();
    middle bigint;
    found record;
BEGIN
    WHILE low + 1 < high LOOP
        middle := low + (high - low) / 2;
        SELECT s.position, s.stored_at INTO found FROM signals s
        WHERE s.workspace_id = tenant AND s.position >= middle ORDER BY s.position LIMIT 1;
        IF found.stored_at < given - interval '1 minute' AND found.position < high THEN
            low := found.position;
        ELSE
            high := middle;
        END IF;
    END LOOP;
    RETURN low;
END
$$;
COMMENT ON FUNCTION position_before IS
    'A position after which is all that a workspace has stored since a time, and of the minute '
    'before it at most';

GRANT SELECT ON signal_position TO letterbox_worker;
GRANT INSERT, SELECT (workspace_id, signal_id, position, stored_at) ON signals TO letterbox_worker;
GRANT SELECT ON signals TO letterbox_operator;
