-- Why: a sender and an operator had no word in common for one request: the answer to it now has an id, and so has what came
-- of it. Tools that sign in ways of their own could not send; nobody learned why a delivery was refused; and a secret could
-- not be changed without losing deliveries.
--
-- Gateways of before this file know one way to sign, and gateways and workers of before know of no successors: stop them
-- before the first webhook of another scheme is made, or one is replaced.

-- Where functions with rights of their own search.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

ALTER TABLE signals ADD COLUMN request_id text,
    ADD CONSTRAINT request_ids_are_short CHECK (length(request_id) BETWEEN 1 AND 64) NOT VALID;
COMMENT ON COLUMN signals.request_id IS 'The X-Request-Id that its sender was answered; null for what was received before this was kept';
ALTER TABLE runs ADD COLUMN request_id text,
    ADD CONSTRAINT request_ids_are_short CHECK (length(request_id) BETWEEN 1 AND 64) NOT VALID;
COMMENT ON COLUMN runs.request_id IS 'The X-Request-Id that its submitter was answered; null for what was received before this was kept';

-- Other programs read signals of the workspaces that they are let into, and nothing else.
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'letterbox_reader') THEN
        CREATE ROLE letterbox_reader NOLOGIN;
        COMMENT ON ROLE letterbox_reader IS 'Reads signals for other programs; see signal_feed';
    END IF;
END
$$;

CREATE TABLE signal_readers (
    workspace_id uuid NOT NULL REFERENCES workspaces ON DELETE CASCADE,
    login        name NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (workspace_id, login)
);
COMMENT ON TABLE signal_readers IS 'Which logins may read the signals of a workspace';
COMMENT ON COLUMN signal_readers.workspace_id IS 'Tenant';
COMMENT ON COLUMN signal_readers.login IS 'Name of a login of the database that is a member of letterbox_reader';
COMMENT ON COLUMN signal_readers.created_at IS 'Database clock';
CREATE TRIGGER audit AFTER INSERT OR UPDATE OR DELETE ON signal_readers FOR EACH ROW
WHEN (coalesce(current_setting('role', true), '') NOT IN ('letterbox_gateway', 'letterbox_worker'))
EXECUTE FUNCTION audit('login');

CREATE VIEW signal_feed WITH (security_barrier) AS
SELECT s.workspace_id, s.signal_id, s.webhook_id, w.name AS webhook_name, s.kind, s.entity, s.source_tool, s.amount_value,
    s.amount_currency, s.event_id, s.generic_reason, s.request_id, s.received_at, s.stored_at, s.body
FROM signals s JOIN webhooks w ON w.workspace_id = s.workspace_id AND w.webhook_id = s.webhook_id
WHERE s.workspace_id IN (SELECT r.workspace_id FROM signal_readers r WHERE r.login = session_user);
COMMENT ON VIEW signal_feed IS 'The signals that the login may read: for programs outside of Letterbox, which may rely on these columns';
COMMENT ON COLUMN signal_feed.webhook_name IS 'For people: which tool sent it';
GRANT SELECT ON signal_feed TO letterbox_reader;
GRANT SELECT, INSERT, DELETE ON signal_readers TO letterbox_operator;

-- How a webhook knows its sender.

ALTER TABLE webhooks
    ADD COLUMN scheme text NOT NULL DEFAULT 'letterbox'
        CHECK (scheme IN ('letterbox', 'github', 'stripe', 'slack', 'shopify', 'standard-webhooks', 'svix', 'custom')),
    ADD COLUMN scheme_rules text CHECK (length(scheme_rules) <= 4096),
    ADD COLUMN allow_from text CHECK (length(allow_from) <= 4096),
    ADD CONSTRAINT custom_schemes_have_rules CHECK ((scheme = 'custom') = (scheme_rules IS NOT NULL));
COMMENT ON COLUMN webhooks.scheme IS 'How its deliveries are signed';
COMMENT ON COLUMN webhooks.scheme_rules IS 'JSON text of how, where the scheme is custom; null otherwise';
COMMENT ON COLUMN webhooks.allow_from IS 'Networks that may send, as CIDR[,CIDR...]; null is from everywhere';
GRANT SELECT (scheme, scheme_rules, allow_from) ON webhooks TO letterbox_gateway;

-- Why deliveries were refused: the last ones of each webhook, without anything that was sent.

CREATE TABLE webhook_refusals (
    workspace_id uuid NOT NULL,
    webhook_id   uuid NOT NULL,
    refusal_id   bigint GENERATED ALWAYS AS IDENTITY,
    refused_at   timestamptz NOT NULL,
    reason       text NOT NULL CHECK (reason IN ('missing', 'repeated', 'prefix', 'upper_case', 'length', 'not_hex', 'digest',
        'scheme', 'address', 'too_large', 'not_json', 'content_type')),
    request_id   text CHECK (length(request_id) BETWEEN 1 AND 64),
    PRIMARY KEY (workspace_id, webhook_id, refusal_id),
    FOREIGN KEY (workspace_id, webhook_id) REFERENCES webhooks (workspace_id, webhook_id) ON DELETE CASCADE
);
COMMENT ON TABLE webhook_refusals IS 'The last refused deliveries of each webhook, for its owner; senders are not told';
COMMENT ON COLUMN webhook_refusals.workspace_id IS 'Tenant';
COMMENT ON COLUMN webhook_refusals.webhook_id IS 'The webhook that its address named';
COMMENT ON COLUMN webhook_refusals.refusal_id IS 'Counts up';
COMMENT ON COLUMN webhook_refusals.refused_at IS 'By the gateway''s clock';
COMMENT ON COLUMN webhook_refusals.reason IS 'What was wrong with it';
COMMENT ON COLUMN webhook_refusals.request_id IS 'The X-Request-Id that its sender was answered';
GRANT SELECT ON webhook_refusals TO letterbox_operator;

CREATE FUNCTION note_refusals(workspaces uuid[], webhooks uuid[], times timestamptz[], reasons text[], requests text[])
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO webhook_refusals (workspace_id, webhook_id, refused_at, reason, request_id)
    SELECT n.workspace_id, n.webhook_id, n.refused_at, n.reason, n.request_id
    FROM unnest(workspaces, webhooks, times, reasons, requests) WITH ORDINALITY
         AS n (workspace_id, webhook_id, refused_at, reason, request_id, place)
    JOIN webhooks w ON w.workspace_id = n.workspace_id AND w.webhook_id = n.webhook_id AND w.deleted_at IS NULL
    ORDER BY n.workspace_id, n.webhook_id, n.place;
    DELETE FROM webhook_refusals old
    USING (SELECT DISTINCT n.workspace_id, n.webhook_id FROM unnest(workspaces, webhooks) AS n (workspace_id, webhook_id)) AS n
    WHERE old.workspace_id = n.workspace_id AND old.webhook_id = n.webhook_id AND old.refusal_id <= (
        SELECT kept.refusal_id FROM webhook_refusals kept
        WHERE kept.workspace_id = n.workspace_id AND kept.webhook_id = n.webhook_id
        ORDER BY kept.refusal_id DESC OFFSET 100 LIMIT 1);
END
$$;
COMMENT ON FUNCTION note_refusals IS 'Writes down why deliveries were refused, of webhooks that are there, the last hundred of each';
REVOKE EXECUTE ON FUNCTION note_refusals FROM PUBLIC;
GRANT EXECUTE ON FUNCTION note_refusals TO letterbox_gateway;

-- A webhook that is replaced goes on until its successor is used, or until its time. Both remember what either has received.

ALTER TABLE webhooks
    ADD COLUMN replaces uuid,
    ADD COLUMN memory_id uuid,
    ADD COLUMN ends_at timestamptz;
CREATE INDEX webhooks_successors ON webhooks (workspace_id, webhook_id) WHERE replaces IS NOT NULL AND deleted_at IS NULL;
CREATE INDEX webhooks_by_memory ON webhooks (workspace_id, memory_id) WHERE memory_id IS NOT NULL AND deleted_at IS NULL;
COMMENT ON COLUMN webhooks.replaces IS 'The webhook whose successor it is; null where it is none';
COMMENT ON COLUMN webhooks.memory_id IS 'The first of those that replaced each other, itself included: under its id all of them remember bodies; null where none was replaced';
COMMENT ON COLUMN webhooks.ends_at IS 'When it ends, by the database''s clock, because it was replaced; null is never';
GRANT SELECT (memory_id, ends_at) ON webhooks TO letterbox_gateway;
GRANT SELECT (workspace_id, webhook_id, memory_id) ON webhooks TO letterbox_worker;

CREATE OR REPLACE FUNCTION claim_deliveries(workspaces uuid[], highs uuid[], lows uuid[], doors uuid[], hashes bytea[],
    batches bigint[], ids uuid[], lease_seconds double precision, closing bigint[])
RETURNS SETOF uuid LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    RETURN QUERY
    WITH closed AS (
        DELETE FROM open_batches o WHERE o.batch_id = ANY (closing)
    ), claimed AS (
        INSERT INTO webhook_deliveries AS d (workspace_id, key_high, key_low, batch_id, delivery_id)
        SELECT n.workspace_id, n.key_high, n.key_low, n.batch_id, n.id
        FROM unnest(workspaces, highs, lows, doors, hashes, batches, ids)
             AS n (workspace_id, key_high, key_low, webhook_id, sha256, batch_id, id)
        JOIN webhooks w ON w.workspace_id = n.workspace_id AND w.webhook_id = n.webhook_id AND w.deleted_at IS NULL
            AND (w.ends_at IS NULL OR w.ends_at > statement_timestamp())
        WHERE is_key_of(coalesce(w.memory_id, w.webhook_id), n.sha256, n.key_high, n.key_low)
        ORDER BY n.workspace_id, n.key_high, n.key_low
        ON CONFLICT DO NOTHING
        RETURNING d.batch_id, d.delivery_id
    ), opened AS (
        INSERT INTO open_batches (batch_id, lease_until)
        SELECT c.batch_id, clock_timestamp() + lease_seconds * interval '1 second' FROM claimed c GROUP BY c.batch_id
    )
    SELECT delivery_id FROM claimed;
    -- Who sends with the new secret does not need those before it. What somebody else holds, the next delivery ends.
    UPDATE webhooks o SET deleted_at = clock_timestamp(), secret_sealed = NULL
    FROM (
        SELECT f.workspace_id, f.webhook_id
        FROM unnest(workspaces, doors) AS u (workspace_id, webhook_id)
        JOIN webhooks n ON n.workspace_id = u.workspace_id AND n.webhook_id = u.webhook_id
            AND n.replaces IS NOT NULL AND n.deleted_at IS NULL
            AND (n.ends_at IS NULL OR n.ends_at > statement_timestamp())
        JOIN webhooks f ON f.workspace_id = n.workspace_id AND f.memory_id = n.memory_id AND f.webhook_id <> n.webhook_id
            AND f.deleted_at IS NULL AND f.ends_at IS NOT NULL AND f.created_at < n.created_at
        ORDER BY f.workspace_id, f.webhook_id FOR NO KEY UPDATE OF f SKIP LOCKED
    ) former
    WHERE o.workspace_id = former.workspace_id AND o.webhook_id = former.webhook_id;
END
$$;

CREATE OR REPLACE FUNCTION take_over_deliveries(workspaces uuid[], highs uuid[], lows uuid[], doors uuid[], hashes bytea[],
    batches bigint[], lease_seconds double precision)
RETURNS SETOF uuid LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    RETURN QUERY
    WITH free AS (
        SELECT d.workspace_id, d.key_high, d.key_low, n.batch_id
        FROM unnest(workspaces, highs, lows, doors, hashes, batches)
             AS n (workspace_id, key_high, key_low, webhook_id, sha256, batch_id)
        JOIN webhooks w ON w.workspace_id = n.workspace_id AND w.webhook_id = n.webhook_id AND w.deleted_at IS NULL
            AND (w.ends_at IS NULL OR w.ends_at > statement_timestamp())
        JOIN webhook_deliveries d
            ON d.workspace_id = n.workspace_id AND d.key_high = n.key_high AND d.key_low = n.key_low
        JOIN open_batches o ON o.batch_id = d.batch_id
        WHERE o.spilled_at IS NULL AND o.lease_until <= clock_timestamp()
          AND is_key_of(coalesce(w.memory_id, w.webhook_id), n.sha256, n.key_high, n.key_low)
        FOR UPDATE OF d SKIP LOCKED
    ), taken AS (
        UPDATE webhook_deliveries d SET batch_id = f.batch_id FROM free f
        WHERE d.workspace_id = f.workspace_id AND d.key_high = f.key_high AND d.key_low = f.key_low
        RETURNING d.batch_id, d.delivery_id
    ), opened AS (
        INSERT INTO open_batches (batch_id, lease_until)
        SELECT t.batch_id, clock_timestamp() + lease_seconds * interval '1 second' FROM taken t GROUP BY t.batch_id
        ON CONFLICT DO NOTHING
    )
    SELECT delivery_id FROM taken;
END
$$;

CREATE FUNCTION end_replaced_webhooks() RETURNS bigint LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    WITH forgotten AS (
        DELETE FROM webhook_refusals r USING webhooks w
        WHERE w.workspace_id = r.workspace_id AND w.webhook_id = r.webhook_id AND w.deleted_at IS NOT NULL
    ), ended AS (
        UPDATE webhooks SET deleted_at = clock_timestamp(), secret_sealed = NULL
        WHERE deleted_at IS NULL AND ends_at <= clock_timestamp() RETURNING 1
    )
    SELECT count(*) FROM ended
$$;
COMMENT ON FUNCTION end_replaced_webhooks IS 'Destroys the secrets of webhooks whose time is over; they are refused without it, too';
REVOKE EXECUTE ON FUNCTION end_replaced_webhooks FROM PUBLIC;
GRANT EXECUTE ON FUNCTION end_replaced_webhooks TO letterbox_worker;

-- What only triggers call is called by nobody else: whoever may make a temporary table could have had it done to others' rows.
REVOKE EXECUTE ON FUNCTION forget_payload_hash, audit, drop_answers, end_agents FROM PUBLIC;
