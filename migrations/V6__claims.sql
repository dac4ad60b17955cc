-- Entries that arrive together are claimed, published and settled together. A claim is written once
-- and refers to its batch; the batch's row exists while its outcome is open, so that settling
-- hundreds of claims deletes one row. While RabbitMQ is unavailable the spill takes what is in the
-- batch, and workers store it from there. The protocol is in gateway/src/acceptance/README.md.
--
-- A claim is small and of fixed length, because there will be very many: its key is one hash over
-- everything that makes it unique, in two columns of type uuid, which store no length. A foreign
-- key to the door (webhook, workflow) would check again, row by row, what the claiming statement
-- checks by its join.
--
-- Claims are made in one half of their table. When there are many, the halves change places, and
-- what the other one holds is moved to the memory, which no claim may overlook: see
-- V12__memory.sql.
--
-- A gateway that has been taken over is confined to live webhooks and links: it claims through
-- functions that check the door, and that the key belongs to the door; and workers trust only
-- claimed entries.

CREATE FUNCTION is_key_of(door uuid, sha256 bytea, key_high uuid, key_low uuid)
    RETURNS boolean LANGUAGE sql IMMUTABLE
RETURN sha256(uuid_send(door) || sha256) = uuid_send(key_high) || uuid_send(key_low);
COMMENT ON FUNCTION is_key_of IS 'Whether the halves are those of SHA-256(door, sha256)';

CREATE TABLE open_batches (
    batch_id    bigint PRIMARY KEY,
    lease_until timestamptz NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
COMMENT ON TABLE open_batches IS
    'Batches of claims whose outcome is open: not known to be recorded';
COMMENT ON COLUMN open_batches.batch_id IS 'Random; AMQP message_id';
COMMENT ON COLUMN open_batches.lease_until IS
    'Until then no other gateway may take over its claims; by the database''s clock';

CREATE TABLE spilled_messages (
    workspace_id uuid NOT NULL,
    spill_id     bigint GENERATED ALWAYS AS IDENTITY UNIQUE,
    batch_id     bigint,
    is_aside     boolean NOT NULL DEFAULT false,
    spilled_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    lease_until  timestamptz NOT NULL DEFAULT clock_timestamp(),
    takes        bigint NOT NULL DEFAULT 0,
    routing_key  text NOT NULL,
    message_type text CHECK (message_type IN ('webhook.deliveries', 'form.submissions')),
    body         bytea NOT NULL,
    length       integer GENERATED ALWAYS AS (octet_length(body)) STORED,
    PRIMARY KEY (workspace_id, spill_id),
    CONSTRAINT what_gateways_spill CHECK (is_aside
        OR routing_key ~ '^(webhooks|forms)([.][0-9]{1,2})?$'
            AND octet_length(body) BETWEEN 1 AND 262144)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
ALTER TABLE spilled_messages ALTER COLUMN body SET STORAGE EXTERNAL;
CREATE INDEX spilled_messages_due ON spilled_messages (workspace_id, lease_until);
COMMENT ON TABLE spilled_messages IS
    'The spill: messages of one delivery or submission each that could not be published, or not be '
    'stored when they came out of their queue. Storing one deletes it in the same transaction';
COMMENT ON COLUMN spilled_messages.batch_id IS
    'Batch of its claim, or null if what came out of a queue did not say one';
COMMENT ON COLUMN spilled_messages.is_aside IS
    'Whether a worker has put it here: then it counts in the share of its workspace only, and not '
    'in the limits of the spill';
COMMENT ON COLUMN spilled_messages.workspace_id IS
    'Tenant, as the gateway says; nil if it can''t be told';
COMMENT ON COLUMN spilled_messages.spill_id IS 'In the order in which they were spilled';
COMMENT ON COLUMN spilled_messages.lease_until IS
    'Until then other workers leave it to the one that has taken it, and what could not be stored '
    'is not tried again; by the database''s clock';
COMMENT ON COLUMN spilled_messages.takes IS
    'How often it was taken and nobody has said what became of it: its workers may have died of it';
COMMENT ON COLUMN spilled_messages.routing_key IS
    'Of the queue to which it would have been published, or from which it came';
COMMENT ON COLUMN spilled_messages.message_type IS
    'Its AMQP type, or null if that is none of Letterbox''s';
COMMENT ON COLUMN spilled_messages.body IS 'Line and body of its entry';
COMMENT ON COLUMN spilled_messages.length IS 'The length of that in bytes';

CREATE FUNCTION lease_is_over(until timestamptz, seconds double precision)
    RETURNS boolean LANGUAGE sql VOLATILE
RETURN until NOT BETWEEN clock_timestamp()
    AND clock_timestamp() + (2 * seconds + 60) * interval '1 second';
COMMENT ON FUNCTION lease_is_over IS
    'Whether a lease of so many seconds is over; also if it ends later than any does that was '
    'taken since the clock was set back';

CREATE TABLE claim_halves (
    source       text PRIMARY KEY CHECK (source IN ('deliveries', 'submissions')),
    filled       smallint NOT NULL DEFAULT 1 CHECK (filled BETWEEN 1 AND 2),
    filled_since timestamptz NOT NULL DEFAULT now(),
    carried      bigint NOT NULL DEFAULT 0
);
COMMENT ON TABLE claim_halves IS 'The halves of the tables of claims';
COMMENT ON COLUMN claim_halves.source IS
    'deliveries: of webhook_deliveries; submissions: of form_submissions';
COMMENT ON COLUMN claim_halves.filled IS 'The half in which claims are made';
COMMENT ON COLUMN claim_halves.filled_since IS
    'When that began: all claims of the other half are older; by the database''s clock';
COMMENT ON COLUMN claim_halves.carried IS
    'How many claims were carried over into it from the other half';
INSERT INTO claim_halves (source) VALUES ('deliveries'), ('submissions');

-- Whoever makes claims holds this lock from before its snapshot until the claims are committed, so
-- who gets it alone knows that all claims that began before are over, and that later ones see what
-- is committed now. It is the lock of a table, because anybody may take an advisory lock.

CREATE FUNCTION join_claiming(claimed text) RETURNS smallint LANGUAGE plpgsql
    SET search_path FROM CURRENT AS $$
BEGIN
    -- Otherwise what follows would not see what is committed now.
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'claims are made at the isolation level read committed'
            USING ERRCODE = 'invalid_transaction_state';
    END IF;
    LOCK TABLE claim_halves IN ROW SHARE MODE;
    RETURN (SELECT filled FROM claim_halves WHERE source = claimed);
END
$$;
COMMENT ON FUNCTION join_claiming IS
    'Lets what waits for claims to be over wait for this one; returns the half to claim in';
CREATE FUNCTION await_claims() RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    LOCK TABLE claim_halves IN EXCLUSIVE MODE;
END
$$;
COMMENT ON FUNCTION await_claims IS
    'Waits for all claims that are under way; later ones wait until the transaction is over';

CREATE TABLE webhook_deliveries (
    batch_id     bigint NOT NULL,
    workspace_id uuid NOT NULL,
    key_high     uuid NOT NULL,
    key_low      uuid NOT NULL,
    delivery_id  uuid NOT NULL,
    half         smallint NOT NULL,
    body_hash    bigint,
    PRIMARY KEY (workspace_id, key_high, key_low, half)
) PARTITION BY LIST (half);
-- A half is filled and emptied as a whole, so vacuum would find next to nothing.
CREATE TABLE webhook_deliveries_1 PARTITION OF webhook_deliveries FOR VALUES IN (1)
    WITH (autovacuum_enabled = false);
CREATE TABLE webhook_deliveries_2 PARTITION OF webhook_deliveries FOR VALUES IN (2)
    WITH (autovacuum_enabled = false);
COMMENT ON TABLE webhook_deliveries IS
    'One distinct body received by one webhook, or one id of its sender: the claim by which it is '
    'accepted once';
COMMENT ON COLUMN webhook_deliveries.batch_id IS
    'The claim is open while this batch has a row in open_batches, otherwise settled';
COMMENT ON COLUMN webhook_deliveries.key_high IS
    'First half of SHA-256(webhook_id, SHA-256(body)), or of the id in place of the body';
COMMENT ON COLUMN webhook_deliveries.key_low IS 'Second half';
COMMENT ON COLUMN webhook_deliveries.delivery_id IS 'Id of the signal; the same for every attempt';
COMMENT ON COLUMN webhook_deliveries.half IS 'Each half has a table of its own; no key is in both';
COMMENT ON COLUMN webhook_deliveries.body_hash IS
    'Where the key is an id: first 8 bytes of SHA-256(SHA-256(id), body); null if it was '
    'taken over or carried over';

CREATE FUNCTION claim_deliveries(workspaces uuid[], highs uuid[], lows uuid[], doors uuid[],
    hashes bytea[], batches bigint[], ids uuid[], lease_seconds double precision,
    closing bigint[], bodies bigint[], versions bigint[] DEFAULT NULL)
RETURNS TABLE (id uuid, is_new boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    filled smallint := join_claiming('deliveries');
BEGIN
    RETURN QUERY
    WITH closed AS (
        DELETE FROM open_batches o WHERE o.batch_id = ANY (closing)
    ), wanted AS (
        SELECT n.workspace_id, n.key_high, n.key_low, n.batch_id, n.new_id, n.body_hash,
            n.key_high IN (SELECT remembered(workspaces, highs)) AS is_remembered
        FROM unnest(workspaces, highs, lows, doors, hashes, batches, ids, bodies, versions)
             AS n (workspace_id, key_high, key_low, webhook_id, sha256, batch_id, new_id, body_hash,
                version)
        JOIN webhooks w ON w.workspace_id = n.workspace_id AND w.webhook_id = n.webhook_id
            AND w.deleted_at IS NULL AND (n.version IS NULL OR n.version = w.version)
            AND (w.ends_at IS NULL OR w.ends_at > statement_timestamp())
        WHERE is_key_of(coalesce(w.memory_id, w.webhook_id), n.sha256, n.key_high, n.key_low)
            AND (SELECT true FROM webhook_deliveries d
                WHERE d.half = 3 - filled AND d.workspace_id = n.workspace_id
                    AND d.key_high = n.key_high AND d.key_low = n.key_low) IS NULL
    ), claimed AS (
        INSERT INTO webhook_deliveries AS d
            (workspace_id, key_high, key_low, half, batch_id, delivery_id, body_hash)
        SELECT n.workspace_id, n.key_high, n.key_low, filled, n.batch_id, n.new_id, n.body_hash
        FROM wanted n WHERE NOT n.is_remembered
        ORDER BY n.workspace_id, n.key_high, n.key_low
        ON CONFLICT DO NOTHING
        RETURNING d.batch_id, d.delivery_id
    ), opened AS (
        INSERT INTO open_batches (batch_id, lease_until)
        SELECT c.batch_id, clock_timestamp() + lease_seconds * interval '1 second'
            FROM claimed c GROUP BY c.batch_id
    )
    SELECT c.delivery_id, true FROM claimed c
    UNION ALL SELECT n.new_id, false FROM wanted n WHERE n.is_remembered;
    -- A sender that uses the new secret no longer needs the replaced ones. Skips locked rows; the
    -- next delivery ends those.
    UPDATE webhooks o SET deleted_at = clock_timestamp(), secret_sealed = NULL
    FROM (
        SELECT f.workspace_id, f.webhook_id
        FROM unnest(workspaces, doors) AS u (workspace_id, webhook_id)
        JOIN webhooks n ON n.workspace_id = u.workspace_id AND n.webhook_id = u.webhook_id
            AND n.replaces IS NOT NULL AND n.deleted_at IS NULL
            AND (n.ends_at IS NULL OR n.ends_at > statement_timestamp())
        JOIN webhooks f ON f.workspace_id = n.workspace_id AND f.memory_id = n.memory_id
            AND f.webhook_id <> n.webhook_id
            AND f.deleted_at IS NULL AND f.ends_at IS NOT NULL AND f.created_at < n.created_at
        ORDER BY f.workspace_id, f.webhook_id FOR NO KEY UPDATE OF f SKIP LOCKED
    ) former
    WHERE o.workspace_id = former.workspace_id AND o.webhook_id = former.webhook_id;
END
$$;
COMMENT ON FUNCTION claim_deliveries IS
    'Claims bodies of live webhooks that have no row yet and are not remembered, and opens the '
    'batches for them; also deletes closed batches; returns the ids of the claimed deliveries, and '
    'those that would have been given to what is remembered';

CREATE FUNCTION take_over_deliveries(workspaces uuid[], highs uuid[], lows uuid[], doors uuid[],
    hashes bytea[], batches bigint[], lease_seconds double precision,
    versions bigint[] DEFAULT NULL)
RETURNS SETOF uuid LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    RETURN QUERY
    WITH free AS (
        SELECT d.workspace_id, d.key_high, d.key_low, d.half, n.batch_id
        FROM unnest(workspaces, highs, lows, doors, hashes, batches, versions)
             AS n (workspace_id, key_high, key_low, webhook_id, sha256, batch_id, version)
        JOIN webhooks w ON w.workspace_id = n.workspace_id AND w.webhook_id = n.webhook_id
            AND w.deleted_at IS NULL AND (n.version IS NULL OR n.version = w.version)
            AND (w.ends_at IS NULL OR w.ends_at > statement_timestamp())
        JOIN webhook_deliveries d
            ON d.workspace_id = n.workspace_id AND d.key_high = n.key_high AND d.key_low = n.key_low
        JOIN open_batches o ON o.batch_id = d.batch_id
        WHERE lease_is_over(o.lease_until, lease_seconds)
          AND is_key_of(coalesce(w.memory_id, w.webhook_id), n.sha256, n.key_high, n.key_low)
        FOR UPDATE OF d SKIP LOCKED
    ), taken AS (
        -- Bodies are no longer compared: which one counts is not known.
        UPDATE webhook_deliveries d SET batch_id = f.batch_id, body_hash = NULL FROM free f
        WHERE d.workspace_id = f.workspace_id AND d.key_high = f.key_high AND d.key_low = f.key_low
            AND d.half = f.half
        RETURNING d.batch_id, d.delivery_id
    ), opened AS (
        INSERT INTO open_batches (batch_id, lease_until)
        SELECT t.batch_id, clock_timestamp() + lease_seconds * interval '1 second'
            FROM taken t GROUP BY t.batch_id
        -- Locked, so that it can't be forgotten just now.
        ON CONFLICT (batch_id) DO UPDATE SET lease_until = EXCLUDED.lease_until
    )
    SELECT delivery_id FROM taken;
END
$$;
COMMENT ON FUNCTION take_over_deliveries IS
    'Moves claims whose lease is over into new batches, unless another gateway is doing it; '
    'returns the ids of the moved deliveries';

CREATE FUNCTION count_changed_deliveries(workspaces uuid[], highs uuid[], lows uuid[],
    doors uuid[], hashes bytea[], bodies bigint[])
RETURNS SETOF bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    RETURN QUERY
    SELECT count(*)
    FROM unnest(workspaces, highs, lows, doors, hashes, bodies)
         AS n (workspace_id, key_high, key_low, webhook_id, sha256, body_hash)
    JOIN webhooks w ON w.workspace_id = n.workspace_id AND w.webhook_id = n.webhook_id
    JOIN webhook_deliveries d
        ON d.workspace_id = n.workspace_id AND d.key_high = n.key_high AND d.key_low = n.key_low
    WHERE is_key_of(coalesce(w.memory_id, w.webhook_id), n.sha256, n.key_high, n.key_low)
        AND d.body_hash <> n.body_hash;
END
$$;
COMMENT ON FUNCTION count_changed_deliveries IS
    'The number of those among deliveries with known ids that have another body than the first';

CREATE TABLE form_submissions (
    batch_id        bigint NOT NULL,
    workspace_id    uuid NOT NULL,
    key_high        uuid NOT NULL,
    key_low         uuid NOT NULL,
    submission_id   uuid NOT NULL,
    release_ids     uuid[] NOT NULL,
    payload_hash    bigint,
    changed_repeats integer NOT NULL DEFAULT 0,
    half            smallint NOT NULL,
    PRIMARY KEY (workspace_id, key_high, key_low, half)
) PARTITION BY LIST (half);
CREATE TABLE form_submissions_1 PARTITION OF form_submissions FOR VALUES IN (1);
CREATE TABLE form_submissions_2 PARTITION OF form_submissions FOR VALUES IN (2);
COMMENT ON TABLE form_submissions IS
    'One accepted form post: the claim that lets its idempotency key start one run';
COMMENT ON COLUMN form_submissions.batch_id IS
    'The claim is open while this batch has a row in open_batches, otherwise settled';
COMMENT ON COLUMN form_submissions.key_high IS
    'First half of SHA-256(workflow_id, SHA-256(idempotency key)): a retry through a newer link '
    'is still a retry';
COMMENT ON COLUMN form_submissions.submission_id IS 'Id of the run; the same for every attempt';
COMMENT ON COLUMN form_submissions.release_ids IS
    'Releases of the links through which it came, in one attempt each';
COMMENT ON COLUMN form_submissions.payload_hash IS
    'First 8 bytes of SHA-256(SHA-256(idempotency key), payload), so that the payload can''t be '
    'guessed without the key; null if it was taken over or carried over, and when the input of '
    'its run is not kept';
COMMENT ON COLUMN form_submissions.changed_repeats IS
    'How often the key was repeated with another payload, which changed nothing';
CREATE INDEX form_submissions_by_id ON form_submissions (submission_id);

-- A claim through a link with a limit locks the link's row, and so sees all earlier claims.

CREATE FUNCTION claim_submissions(workspaces uuid[], highs uuid[], lows uuid[], doors bytea[],
    hashes bytea[], batches bigint[], ids uuid[], lease_seconds double precision,
    closing bigint[], payloads bigint[])
RETURNS TABLE (id uuid, is_new boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    filled smallint := join_claiming('submissions');
    counted uuid[];
    admitted uuid[];
BEGIN
    PERFORM FROM form_links b
    WHERE b.token_sha256 = ANY (doors) AND b.max_answers IS NOT NULL AND b.ended_at IS NULL
        AND b.answers < b.max_answers
      AND (b.closes_at IS NULL OR b.closes_at > statement_timestamp());
    IF FOUND THEN
        -- A link that others count on, or keep locked, is skipped: its keys stay unclaimed, and are
        -- tried again by those who wait for them alone.
        counted := ARRAY(SELECT b.form_link_id FROM form_links b
            WHERE b.token_sha256 = ANY (doors) AND b.max_answers IS NOT NULL AND b.ended_at IS NULL
            ORDER BY b.workspace_id, b.form_link_id FOR NO KEY UPDATE SKIP LOCKED);
        admitted := ARRAY(
            SELECT n.new_id FROM (
                SELECT n.new_id, b.max_answers - b.answers AS places,
                    row_number() OVER (PARTITION BY b.form_link_id
                        ORDER BY n.workspace_id, n.key_high, n.key_low) AS place
                FROM unnest(workspaces, highs, lows, doors, hashes, ids)
                     AS n (workspace_id, key_high, key_low, token_sha256, sha256, new_id)
                JOIN live_links l ON l.token_sha256 = n.token_sha256
                    AND l.workspace_id = n.workspace_id
                JOIN form_links b
                    ON b.workspace_id = l.workspace_id AND b.form_link_id = l.form_link_id
                WHERE b.form_link_id = ANY (counted)
                  AND is_key_of(l.workflow_id, n.sha256, n.key_high, n.key_low)
                  AND n.key_high NOT IN (SELECT remembered(workspaces, highs))
                  AND NOT EXISTS (
                      SELECT FROM form_submissions s
                      WHERE s.workspace_id = n.workspace_id AND s.key_high = n.key_high
                          AND s.key_low = n.key_low)) n
            WHERE n.place <= n.places);
    END IF;
    RETURN QUERY
    WITH closed AS (
        DELETE FROM open_batches o WHERE o.batch_id = ANY (closing)
    ), wanted AS (
        SELECT n.workspace_id, n.key_high, n.key_low, n.batch_id, n.new_id, n.payload_hash,
            l.release_id, l.form_link_id,
            n.key_high IN (SELECT remembered(workspaces, highs)) AS is_remembered
        FROM unnest(workspaces, highs, lows, doors, hashes, batches, ids, payloads)
             AS n (workspace_id, key_high, key_low, token_sha256, sha256, batch_id, new_id,
                 payload_hash)
        JOIN live_links l ON l.token_sha256 = n.token_sha256 AND l.workspace_id = n.workspace_id
        WHERE l.is_open AND is_key_of(l.workflow_id, n.sha256, n.key_high, n.key_low)
            AND (NOT l.is_counted OR l.form_link_id = ANY (counted) AND n.new_id = ANY (admitted))
            AND (SELECT true FROM form_submissions s
                WHERE s.half = 3 - filled AND s.workspace_id = n.workspace_id
                    AND s.key_high = n.key_high AND s.key_low = n.key_low) IS NULL
    ), claimed AS (
        INSERT INTO form_submissions AS s
            (workspace_id, key_high, key_low, half, batch_id, submission_id, release_ids,
                payload_hash)
        SELECT n.workspace_id, n.key_high, n.key_low, filled, n.batch_id, n.new_id,
            ARRAY[n.release_id], n.payload_hash
        FROM wanted n WHERE NOT n.is_remembered
        ORDER BY n.workspace_id, n.key_high, n.key_low
        ON CONFLICT DO NOTHING
        RETURNING s.batch_id, s.submission_id
    ), opened AS (
        INSERT INTO open_batches (batch_id, lease_until)
        SELECT c.batch_id, clock_timestamp() + lease_seconds * interval '1 second'
            FROM claimed c GROUP BY c.batch_id
    ), counted AS (
        UPDATE form_links f SET answers = f.answers + t.times
        FROM (
            SELECT w.workspace_id, w.form_link_id, count(*) AS times
            FROM claimed c JOIN wanted w ON w.new_id = c.submission_id
            WHERE c.submission_id = ANY (admitted)
            GROUP BY w.workspace_id, w.form_link_id
        ) t
        WHERE f.workspace_id = t.workspace_id AND f.form_link_id = t.form_link_id
    )
    SELECT c.submission_id, true FROM claimed c
    UNION ALL SELECT n.new_id, false FROM wanted n WHERE n.is_remembered;
END
$$;
COMMENT ON FUNCTION claim_submissions IS
    'Like claim_deliveries, for idempotency keys of workflows with a live link';

CREATE FUNCTION take_over_submissions(workspaces uuid[], highs uuid[], lows uuid[], doors bytea[],
    hashes bytea[], batches bigint[], lease_seconds double precision)
RETURNS SETOF uuid LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    RETURN QUERY
    WITH free AS (
        SELECT s.workspace_id, s.key_high, s.key_low, s.half, n.batch_id, l.release_id
        FROM unnest(workspaces, highs, lows, doors, hashes, batches)
             AS n (workspace_id, key_high, key_low, token_sha256, sha256, batch_id)
        JOIN live_links l ON l.token_sha256 = n.token_sha256
            AND l.workspace_id = n.workspace_id
        JOIN form_submissions s
            ON s.workspace_id = n.workspace_id AND s.key_high = n.key_high AND s.key_low = n.key_low
        JOIN open_batches o ON o.batch_id = s.batch_id
        WHERE lease_is_over(o.lease_until, lease_seconds)
          AND is_key_of(l.workflow_id, n.sha256, n.key_high, n.key_low)
        FOR UPDATE OF s SKIP LOCKED
    ), taken AS (
        UPDATE form_submissions s SET batch_id = f.batch_id, payload_hash = NULL, release_ids =
            CASE WHEN f.release_id = ANY (s.release_ids) THEN s.release_ids ELSE s.release_ids
                || f.release_id END
        FROM free f
        WHERE s.workspace_id = f.workspace_id AND s.key_high = f.key_high AND s.key_low = f.key_low
            AND s.half = f.half
        RETURNING s.batch_id, s.submission_id
    ), opened AS (
        INSERT INTO open_batches (batch_id, lease_until)
        SELECT t.batch_id, clock_timestamp() + lease_seconds * interval '1 second'
            FROM taken t GROUP BY t.batch_id
        -- Locked, so that it can't be forgotten just now.
        ON CONFLICT (batch_id) DO UPDATE SET lease_until = EXCLUDED.lease_until
    )
    SELECT submission_id FROM taken;
END
$$;
COMMENT ON FUNCTION take_over_submissions IS
    'Like take_over_deliveries; the payload published now was validated against the release of '
    'this link, and a payload that an earlier attempt may have published against the release of '
    'its own link';

CREATE FUNCTION count_changed_repeats(workspaces uuid[], highs uuid[], lows uuid[], doors bytea[],
    hashes bytea[], payloads bigint[])
RETURNS SETOF bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    RETURN QUERY
    WITH changed AS (
        SELECT s.workspace_id, s.key_high, s.key_low, count(*) AS times
        FROM unnest(workspaces, highs, lows, doors, hashes, payloads)
             AS n (workspace_id, key_high, key_low, token_sha256, sha256, payload_hash)
        JOIN live_links l ON l.token_sha256 = n.token_sha256
            AND l.workspace_id = n.workspace_id
        JOIN form_submissions s
            ON s.workspace_id = n.workspace_id AND s.key_high = n.key_high AND s.key_low = n.key_low
        WHERE is_key_of(l.workflow_id, n.sha256, n.key_high, n.key_low)
            AND s.payload_hash <> n.payload_hash
        GROUP BY s.workspace_id, s.key_high, s.key_low
    ), locked AS (
        -- In order, so that two gateways can't deadlock.
        SELECT s.workspace_id, s.key_high, s.key_low, c.times
        FROM form_submissions s JOIN changed c USING (workspace_id, key_high, key_low)
        ORDER BY s.workspace_id, s.key_high, s.key_low FOR UPDATE OF s
    ), kept AS (
        UPDATE form_submissions s SET changed_repeats = least(s.changed_repeats + c.times,
            2147483647)
        FROM locked c
        WHERE s.workspace_id = c.workspace_id AND s.key_high = c.key_high AND s.key_low = c.key_low
        RETURNING c.times
    )
    SELECT coalesce(sum(times), 0)::bigint FROM kept;
END
$$;
COMMENT ON FUNCTION count_changed_repeats IS
    'Counts, among submissions with known keys, those with another payload than the first; '
    'returns their number';

-- An operator claims anew what was lost with the database, settled, unless the key was claimed
-- under another id.

CREATE FUNCTION claim_lost_delivery(workspace uuid, high uuid, low uuid, id uuid)
RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    filled smallint := join_claiming('deliveries');
BEGIN
    INSERT INTO webhook_deliveries (batch_id, workspace_id, key_high, key_low, half, delivery_id)
    SELECT 0, workspace, high, low, filled, id
    WHERE high NOT IN (SELECT remembered(ARRAY[workspace], ARRAY[high]))
        AND NOT EXISTS (SELECT FROM webhook_deliveries d
            WHERE d.workspace_id = workspace AND d.key_high = high AND d.key_low = low)
    ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        UPDATE webhook_deliveries d SET batch_id = 0
        WHERE d.workspace_id = workspace AND d.key_high = high AND d.key_low = low
            AND d.delivery_id = id;
    END IF;
    RETURN FOUND;
END
$$;
COMMENT ON FUNCTION claim_lost_delivery IS
    'Claims a delivery; false if its body was claimed under another id, or is remembered';

CREATE FUNCTION claim_lost_submission(workspace uuid, high uuid, low uuid, id uuid, release uuid)
RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    filled smallint := join_claiming('submissions');
BEGIN
    INSERT INTO form_submissions
        (batch_id, workspace_id, key_high, key_low, half, submission_id, release_ids)
    SELECT 0, workspace, high, low, filled, id, ARRAY[release]
    WHERE high NOT IN (SELECT remembered(ARRAY[workspace], ARRAY[high]))
        AND NOT EXISTS (SELECT FROM form_submissions s
            WHERE s.workspace_id = workspace AND s.key_high = high AND s.key_low = low)
    ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        UPDATE form_submissions s SET batch_id = 0, release_ids = s.release_ids || release
        WHERE s.workspace_id = workspace AND s.key_high = high AND s.key_low = low
            AND s.submission_id = id;
    END IF;
    RETURN FOUND;
END
$$;
COMMENT ON FUNCTION claim_lost_submission IS 'Like claim_lost_delivery, for a release';

-- The number of queues is stored here, so that a change of the gateways' setting leaves no queue
-- without a worker.

CREATE TABLE work_queues (
    is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only),
    queues  integer NOT NULL CHECK (queues BETWEEN 1 AND 16)
);
COMMENT ON TABLE work_queues IS 'One row: the queues that workers consume';
COMMENT ON COLUMN work_queues.is_only IS 'Ensures that there is one row only';
COMMENT ON COLUMN work_queues.queues IS
    'The largest number of queues that a gateway has ever used, in each family; lower it when the '
    'others are empty';
INSERT INTO work_queues (queues) VALUES (1);

CREATE FUNCTION gateways_only_add_queues() RETURNS trigger LANGUAGE plpgsql
    SET search_path FROM CURRENT AS $$
BEGIN
    RAISE EXCEPTION 'a gateway may add queues, but not remove them'
        USING ERRCODE = 'insufficient_privilege';
END
$$;
COMMENT ON FUNCTION gateways_only_add_queues IS
    'Keeps a gateway from taking workers away from the queues of other gateways';
CREATE TRIGGER gateways_only_add_queues BEFORE UPDATE ON work_queues
    FOR EACH ROW WHEN (NEW.queues < OLD.queues AND (NOT pg_has_role(CURRENT_USER,
        'letterbox_operator', 'MEMBER'))) EXECUTE FUNCTION gateways_only_add_queues();

-- A gateway adds to the spill, and neither removes nor rewrites what is there: workers store that.

CREATE FUNCTION close_batches(batches bigint[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    -- Need not be durable: a row that a crash brings back costs one more publish of the same ids.
    PERFORM set_config('synchronous_commit', 'off', true);
    DELETE FROM open_batches WHERE batch_id = ANY (batches);
END
$$;
COMMENT ON FUNCTION close_batches IS 'Deletes the rows of confirmed batches';

CREATE FUNCTION end_leases(batches bigint[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE open_batches SET lease_until = clock_timestamp()
    WHERE batch_id = ANY (batches);
END
$$;
COMMENT ON FUNCTION end_leases IS
    'Frees batches that were not published for takeover';

CREATE FUNCTION spill_batches(batches bigint[], routing_keys text[], message_types text[],
    workspaces uuid[], bodies bytea[])
RETURNS SETOF bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    RETURN QUERY
    WITH spilled AS (
        DELETE FROM open_batches o WHERE o.batch_id = ANY (batches) RETURNING o.batch_id
    ), kept AS (
        INSERT INTO spilled_messages (workspace_id, batch_id, routing_key, message_type, body)
        SELECT n.workspace_id, n.batch_id, n.routing_key, n.message_type, n.body
        FROM unnest(batches, routing_keys, message_types, workspaces, bodies) WITH ORDINALITY
             AS n (batch_id, routing_key, message_type, workspace_id, body, place)
        JOIN spilled s ON s.batch_id = n.batch_id ORDER BY n.place
    )
    SELECT s.batch_id FROM spilled s;
END
$$;
COMMENT ON FUNCTION spill_batches IS
    'Puts the entries of batches into the spill, each as a message of its own, and closes the '
    'batches; does nothing for those that have no row; returns the others';

CREATE VIEW interrupted_batches AS
SELECT DISTINCT o.batch_id, o.lease_until
FROM open_batches o JOIN (
    SELECT batch_id FROM webhook_deliveries UNION ALL SELECT batch_id FROM form_submissions
) claims ON claims.batch_id = o.batch_id
WHERE o.lease_until < clock_timestamp();
COMMENT ON VIEW interrupted_batches IS
    'Batches that were claimed and perhaps not published, and whose claims were not all taken over';

CREATE FUNCTION forget_batches() RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER
    SET search_path FROM CURRENT SET enable_seqscan = on SET enable_hashjoin = on AS $$
DECLARE
    forgotten bigint;
BEGIN
    DELETE FROM open_batches o
    WHERE o.lease_until < clock_timestamp() - interval '1 hour'
        AND o.batch_id NOT IN (SELECT i.batch_id FROM interrupted_batches i);
    GET DIAGNOSTICS forgotten = ROW_COUNT;
    RETURN forgotten;
END
$$;
COMMENT ON FUNCTION forget_batches IS
    'Deletes batches whose claims were all taken over, an hour after their leases; returns their '
    'number';

REVOKE EXECUTE ON FUNCTION join_claiming, await_claims, claim_deliveries, take_over_deliveries,
    count_changed_deliveries, claim_submissions, take_over_submissions, count_changed_repeats,
    claim_lost_delivery, claim_lost_submission, close_batches, end_leases, spill_batches,
    forget_batches FROM PUBLIC;
GRANT EXECUTE ON FUNCTION claim_deliveries, take_over_deliveries, count_changed_deliveries,
    claim_submissions, take_over_submissions, count_changed_repeats, close_batches, end_leases,
    spill_batches TO letterbox_gateway;
GRANT EXECUTE ON FUNCTION forget_batches TO letterbox_worker;
GRANT EXECUTE ON FUNCTION claim_lost_delivery, claim_lost_submission TO letterbox_operator;
GRANT SELECT ON open_batches TO letterbox_gateway;
GRANT SELECT (workspace_id, is_aside, spilled_at, length) ON spilled_messages TO letterbox_gateway;
GRANT SELECT, INSERT (workspace_id, batch_id, is_aside, routing_key, message_type, body, takes),
    UPDATE (lease_until, takes), DELETE ON spilled_messages TO letterbox_worker;
GRANT SELECT ON open_batches, webhook_deliveries, form_submissions, interrupted_batches
    TO letterbox_operator;
GRANT SELECT (batch_id, spilled_at) ON spilled_messages TO letterbox_operator;
GRANT SELECT (batch_id, workspace_id, key_high, key_low, delivery_id, half)
    ON webhook_deliveries TO letterbox_gateway;
GRANT SELECT (workspace_id, key_high, key_low, half, delivery_id)
    ON webhook_deliveries TO letterbox_worker;
GRANT SELECT (batch_id, workspace_id, key_high, key_low, submission_id)
    ON form_submissions TO letterbox_gateway;
GRANT SELECT (workspace_id, key_high, half, submission_id, release_ids)
    ON form_submissions TO letterbox_worker;
GRANT SELECT, UPDATE (queues) ON work_queues TO letterbox_gateway, letterbox_operator;
GRANT SELECT ON work_queues TO letterbox_worker;
