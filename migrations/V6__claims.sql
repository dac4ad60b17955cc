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
-- Claims are made in one half of their kind. When there are many, the halves change places, and
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
    filled       smallint NOT NULL,
    other        smallint NOT NULL,
    filled_since timestamptz NOT NULL DEFAULT now(),
    carried      bigint NOT NULL DEFAULT 0
);
COMMENT ON TABLE claim_halves IS 'The halves of each kind of claims';
COMMENT ON COLUMN claim_halves.source IS 'The kind';
COMMENT ON COLUMN claim_halves.filled IS 'The half in which claims are made';
COMMENT ON COLUMN claim_halves.other IS 'The other half of the kind';
COMMENT ON COLUMN claim_halves.filled_since IS
    'When that began: all claims of the other half are older; by the database''s clock';
COMMENT ON COLUMN claim_halves.carried IS
    'How many claims were carried over into it from the other half';
INSERT INTO claim_halves (source, filled, other) VALUES ('deliveries', 1, 2), ('submissions', 3, 4);

-- Whoever makes claims holds this lock from before its snapshot until the claims are committed, so
-- who gets it alone knows that all claims that began before are over, and that later ones see what
-- is committed now. It is the lock of a table, because anybody may take an advisory lock.

CREATE FUNCTION join_claiming(kind text) RETURNS claim_halves LANGUAGE plpgsql
    SET search_path FROM CURRENT AS $$
BEGIN
    -- Otherwise what follows would not see what is committed now.
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'claims are made at the isolation level read committed'
            USING ERRCODE = 'invalid_transaction_state';
    END IF;
    LOCK TABLE claim_halves IN ROW SHARE MODE;
    RETURN (SELECT h FROM claim_halves h WHERE h.source = kind);
END
$$;
COMMENT ON FUNCTION join_claiming IS
    'Lets what waits for claims to be over wait for this one; returns the halves of the kind';
CREATE FUNCTION await_claims() RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    LOCK TABLE claim_halves IN EXCLUSIVE MODE;
END
$$;
COMMENT ON FUNCTION await_claims IS
    'Waits for all claims that are under way; later ones wait until the transaction is over';

-- At most eight columns: with more, a row of which one is null would be eight bytes longer.

CREATE TABLE claims (
    batch_id     bigint NOT NULL,
    workspace_id uuid NOT NULL,
    key_high     uuid NOT NULL,
    key_low      uuid NOT NULL,
    claim_id     uuid NOT NULL,
    payload_hash bigint,
    half         smallint NOT NULL,
    release_ids  uuid[],
    PRIMARY KEY (workspace_id, key_high, key_low, half)
) PARTITION BY LIST (half);
CREATE TABLE webhook_deliveries PARTITION OF claims FOR VALUES IN (1, 2) PARTITION BY LIST (half);
CREATE TABLE form_submissions PARTITION OF claims FOR VALUES IN (3, 4) PARTITION BY LIST (half);
-- A half of deliveries is filled and emptied as a whole, so vacuum would find next to nothing.
CREATE TABLE claims_1 PARTITION OF webhook_deliveries FOR VALUES IN (1)
    WITH (autovacuum_enabled = false);
CREATE TABLE claims_2 PARTITION OF webhook_deliveries FOR VALUES IN (2)
    WITH (autovacuum_enabled = false);
CREATE TABLE claims_3 PARTITION OF form_submissions FOR VALUES IN (3);
CREATE TABLE claims_4 PARTITION OF form_submissions FOR VALUES IN (4);
CREATE INDEX form_submissions_by_id ON form_submissions (claim_id);
COMMENT ON TABLE claims IS
    'One distinct body received by one webhook, one id of its sender, or one idempotency key of a '
    'form: the claim by which it is accepted once';
COMMENT ON TABLE webhook_deliveries IS 'The claims of deliveries: halves 1 and 2';
COMMENT ON TABLE form_submissions IS 'The claims of submissions: halves 3 and 4';
COMMENT ON COLUMN claims.batch_id IS
    'The claim is open while this batch has a row in open_batches, otherwise settled';
COMMENT ON COLUMN claims.key_high IS
    'First half of SHA-256(webhook_id, SHA-256(body)), or of the id in place of the body; of '
    'SHA-256(workflow_id, SHA-256(idempotency key)): a retry through a newer link is still a retry';
COMMENT ON COLUMN claims.key_low IS 'Second half';
COMMENT ON COLUMN claims.claim_id IS
    'Id of the signal or the run; the same for every attempt';
COMMENT ON COLUMN claims.payload_hash IS
    'Unless the key is a body: first 8 bytes of SHA-256(SHA-256(id or idempotency key), payload), '
    'so that the payload can''t be guessed without the key; null if it was taken over or carried '
    'over, and when the input of its run is not kept';
COMMENT ON COLUMN claims.half IS
    'Each half of each kind has a table of its own; no key is in both halves';
COMMENT ON COLUMN claims.release_ids IS
    'Releases of the links through which a submission came, in one attempt each';

CREATE TABLE changed_repeats (
    workspace_id uuid NOT NULL,
    run_id       uuid NOT NULL,
    times        bigint NOT NULL,
    PRIMARY KEY (workspace_id, run_id)
);
COMMENT ON TABLE changed_repeats IS
    'Submissions whose idempotency key was repeated with another payload, which changed nothing';
COMMENT ON COLUMN changed_repeats.times IS 'How often';

-- Only a key of a live door is claimed, found or taken over. The gateway calls this under its own
-- rights, too.

CREATE FUNCTION live_keys(kind text, workspaces uuid[], highs uuid[], lows uuid[], doors bytea[],
    versions bigint[], hashes bytea[])
RETURNS TABLE (place bigint, workspace_id uuid, key_high uuid, key_low uuid, door bytea,
    sha256 bytea, memory uuid, first_half integer, release_id uuid, is_open boolean,
    is_counted boolean)
LANGUAGE plpgsql STABLE ROWS 1 SET search_path FROM CURRENT AS $$
BEGIN
    IF kind = 'deliveries' THEN
        RETURN QUERY
        SELECT n.place, n.workspace_id, n.key_high, n.key_low, n.door, n.sha256,
            coalesce(w.memory_id, w.webhook_id), 1, NULL::uuid, true, false
        FROM unnest(workspaces, highs, lows, doors, versions, hashes) WITH ORDINALITY
             AS n (workspace_id, key_high, key_low, door, version, sha256, place)
        JOIN webhooks w
            ON w.workspace_id = n.workspace_id AND w.webhook_id = encode(n.door, 'hex')::uuid
            AND w.deleted_at IS NULL AND (n.version IS NULL OR n.version = w.version)
            AND (w.ends_at IS NULL OR w.ends_at > statement_timestamp());
    ELSE
        RETURN QUERY
        SELECT n.place, n.workspace_id, n.key_high, n.key_low, n.door, n.sha256,
            l.workflow_id, 3, l.release_id, l.is_open, l.is_counted
        FROM unnest(workspaces, highs, lows, doors, hashes) WITH ORDINALITY
             AS n (workspace_id, key_high, key_low, door, sha256, place)
        JOIN live_links l ON l.token_sha256 = n.door AND l.workspace_id = n.workspace_id;
    END IF;
END
$$;
COMMENT ON FUNCTION live_keys IS
    'Those of the keys whose door is live: a webhook, by its id, of the version by which the entry '
    'was checked, or a form link, by the hash of its token; with the first of the halves that may '
    'have their claims. That they belong to the door is not checked';

-- A claim through a link with a limit locks the link's row, and so sees all earlier claims.

CREATE FUNCTION admit_answers(workspaces uuid[], highs uuid[], lows uuid[], doors bytea[],
    hashes bytea[])
RETURNS bigint[] LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    -- A link that others count on, or keep locked, is skipped: its keys stay unclaimed, and are
    -- tried again by those who wait for them alone.
    counted uuid[] := ARRAY(SELECT b.form_link_id FROM form_links b
        WHERE b.token_sha256 = ANY (doors) AND b.max_answers IS NOT NULL AND b.ended_at IS NULL
            AND b.answers < b.max_answers
            AND (b.closes_at IS NULL OR b.closes_at > statement_timestamp())
        ORDER BY b.workspace_id, b.form_link_id FOR NO KEY UPDATE SKIP LOCKED);
BEGIN
    IF counted = '{}' THEN
        RETURN '{}';
    END IF;
    RETURN ARRAY(
        SELECT k.place FROM (
            SELECT k.place, b.max_answers - b.answers AS free,
                row_number() OVER (PARTITION BY k.door ORDER BY k.key_high, k.key_low) AS number
            FROM live_keys('submissions', workspaces, highs, lows, doors, NULL, hashes) k
            JOIN form_links b ON b.token_sha256 = k.door
            WHERE b.form_link_id = ANY (counted)
              AND is_key_of(k.memory, k.sha256, k.key_high, k.key_low)
              AND k.key_high NOT IN (SELECT remembered(workspaces, highs))
              AND (SELECT true FROM form_submissions s
                  WHERE s.workspace_id = k.workspace_id AND s.key_high = k.key_high
                      AND s.key_low = k.key_low) IS NULL) k
        WHERE k.number <= k.free);
END
$$;
COMMENT ON FUNCTION admit_answers IS
    'Which of the submissions are new and have a place at their link with a limit; locks these '
    'links';

CREATE FUNCTION claim(kind text, workspaces uuid[], highs uuid[], lows uuid[], doors bytea[],
    versions bigint[], hashes bytea[], payloads bigint[], batches bigint[], ids uuid[],
    lease_seconds double precision, closing bigint[])
RETURNS TABLE (id uuid, is_new boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    halves claim_halves := join_claiming(kind);
    admitted bigint[];
BEGIN
    IF kind = 'submissions' THEN
        admitted := admit_answers(workspaces, highs, lows, doors, hashes);
    END IF;
    RETURN QUERY
    WITH closed AS (
        DELETE FROM open_batches o WHERE o.batch_id = ANY (closing)
    ), wanted AS (
        SELECT k.workspace_id, k.key_high, k.key_low, k.release_id, ids[k.place] AS new_id,
            batches[k.place] AS batch_id, payloads[k.place] AS payload_hash,
            k.key_high IN (SELECT remembered(workspaces, highs)) AS is_remembered
        FROM live_keys(kind, workspaces, highs, lows, doors, versions, hashes) k
        WHERE k.is_open AND is_key_of(k.memory, k.sha256, k.key_high, k.key_low)
            AND (NOT k.is_counted OR k.place = ANY (admitted))
            AND (SELECT true FROM claims c
                WHERE c.half = halves.other AND c.workspace_id = k.workspace_id
                    AND c.key_high = k.key_high AND c.key_low = k.key_low) IS NULL
    ), claimed AS (
        INSERT INTO claims AS c
            (workspace_id, key_high, key_low, half, batch_id, claim_id, payload_hash, release_ids)
        SELECT n.workspace_id, n.key_high, n.key_low, halves.filled, n.batch_id, n.new_id,
            n.payload_hash, CASE WHEN n.release_id IS NOT NULL THEN ARRAY[n.release_id] END
        FROM wanted n WHERE NOT n.is_remembered
        ORDER BY n.workspace_id, n.key_high, n.key_low
        ON CONFLICT DO NOTHING
        RETURNING c.batch_id, c.claim_id
    ), opened AS (
        INSERT INTO open_batches (batch_id, lease_until)
        SELECT c.batch_id, clock_timestamp() + lease_seconds * interval '1 second'
            FROM claimed c GROUP BY c.batch_id
    )
    SELECT c.claim_id, true FROM claimed c
    UNION ALL SELECT n.new_id, false FROM wanted n WHERE n.is_remembered;
    IF kind = 'deliveries' THEN
        -- A sender that uses the new secret no longer needs the replaced ones. Skips locked rows;
        -- the next delivery ends those.
        UPDATE webhooks o SET deleted_at = clock_timestamp(), secret_sealed = NULL
        FROM (
            SELECT f.workspace_id, f.webhook_id
            FROM (SELECT DISTINCT * FROM unnest(workspaces, doors)) AS u (workspace_id, door)
            JOIN webhooks n ON n.workspace_id = u.workspace_id
                AND n.webhook_id = encode(u.door, 'hex')::uuid
                AND n.replaces IS NOT NULL AND n.deleted_at IS NULL
                AND (n.ends_at IS NULL OR n.ends_at > statement_timestamp())
            JOIN webhooks f ON f.workspace_id = n.workspace_id AND f.memory_id = n.memory_id
                AND f.webhook_id <> n.webhook_id
                AND f.deleted_at IS NULL AND f.ends_at IS NOT NULL AND f.created_at < n.created_at
            ORDER BY f.workspace_id, f.webhook_id FOR NO KEY UPDATE OF f SKIP LOCKED
        ) former
        WHERE o.workspace_id = former.workspace_id AND o.webhook_id = former.webhook_id;
    ELSIF admitted <> '{}' THEN
        UPDATE form_links f SET answers = f.answers + t.times
        FROM (
            SELECT u.door, count(*) AS times
            FROM unnest(workspaces, highs, lows, doors, ids) WITH ORDINALITY
                 AS u (workspace_id, key_high, key_low, door, id, place)
            JOIN form_submissions s ON s.workspace_id = u.workspace_id
                AND s.key_high = u.key_high AND s.key_low = u.key_low AND s.claim_id = u.id
            WHERE u.place = ANY (admitted)
            GROUP BY u.door
        ) t
        WHERE f.token_sha256 = t.door;
    END IF;
END
$$;
COMMENT ON FUNCTION claim IS
    'Claims keys of live doors that have no row yet and are not remembered, and opens the batches '
    'for them; also deletes closed batches; returns the ids of the claims, and those that would '
    'have been given to what is remembered';

CREATE FUNCTION take_over(kind text, workspaces uuid[], highs uuid[], lows uuid[], doors bytea[],
    versions bigint[], hashes bytea[], batches bigint[], lease_seconds double precision)
RETURNS SETOF uuid LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    RETURN QUERY
    WITH free AS (
        SELECT c.part, c.place, k.release_id, batches[k.place] AS batch_id
        FROM live_keys(kind, workspaces, highs, lows, doors, versions, hashes) k
        CROSS JOIN LATERAL (
            SELECT c.tableoid AS part, c.ctid AS place FROM claims c
            WHERE c.workspace_id = k.workspace_id AND c.key_high = k.key_high
                AND c.key_low = k.key_low AND c.half BETWEEN k.first_half AND k.first_half + 1
                AND lease_is_over((SELECT o.lease_until FROM open_batches o
                    WHERE o.batch_id = c.batch_id), lease_seconds)
            FOR UPDATE SKIP LOCKED) c
        WHERE is_key_of(k.memory, k.sha256, k.key_high, k.key_low)
    ), taken AS (
        -- Payloads are no longer compared: which one counts is not known. Each of them may have
        -- been published, and was validated against the release of its own link.
        UPDATE claims c SET batch_id = f.batch_id, payload_hash = NULL,
            release_ids = CASE WHEN f.release_id <> ALL (c.release_ids)
                THEN c.release_ids || f.release_id ELSE c.release_ids END
        FROM free f WHERE c.tableoid = f.part AND c.ctid = f.place
        RETURNING c.batch_id, c.claim_id
    ), opened AS (
        INSERT INTO open_batches (batch_id, lease_until)
        SELECT t.batch_id, clock_timestamp() + lease_seconds * interval '1 second'
            FROM taken t GROUP BY t.batch_id
        -- Locked, so that it can't be forgotten just now.
        ON CONFLICT (batch_id) DO UPDATE SET lease_until = EXCLUDED.lease_until
    )
    SELECT t.claim_id FROM taken t;
END
$$;
COMMENT ON FUNCTION take_over IS
    'Moves claims whose lease is over into new batches, unless another gateway is doing it; '
    'returns the ids of the moved claims';

CREATE FUNCTION count_changed(kind text, workspaces uuid[], highs uuid[], lows uuid[],
    doors bytea[], versions bigint[], hashes bytea[], payloads bigint[])
RETURNS SETOF bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    RETURN QUERY
    WITH changed AS (
        SELECT c.workspace_id, c.claim_id, count(*) AS times
        FROM live_keys(kind, workspaces, highs, lows, doors, versions, hashes) k
        JOIN LATERAL (
            SELECT * FROM claims c
            WHERE c.workspace_id = k.workspace_id AND c.key_high = k.key_high
                AND c.key_low = k.key_low AND c.half BETWEEN k.first_half AND k.first_half + 1
            LIMIT 1) c ON is_key_of(k.memory, k.sha256, k.key_high, k.key_low)
        WHERE c.payload_hash <> payloads[k.place]
        GROUP BY c.workspace_id, c.claim_id
    ), kept AS (
        INSERT INTO changed_repeats AS r (workspace_id, run_id, times)
        SELECT c.workspace_id, c.claim_id, c.times FROM changed c WHERE kind = 'submissions'
        -- In order, so that two gateways can't deadlock.
        ORDER BY c.workspace_id, c.claim_id
        ON CONFLICT (workspace_id, run_id) DO UPDATE SET times = r.times + EXCLUDED.times
    )
    SELECT coalesce(sum(c.times), 0)::bigint FROM changed c;
END
$$;
COMMENT ON FUNCTION count_changed IS
    'Counts, among entries with known keys, those with another payload than the first, and notes '
    'it of submissions; returns their number';

CREATE FUNCTION claim_lost(kind text, workspace uuid, high uuid, low uuid, id uuid, releases uuid[])
RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    halves claim_halves := join_claiming(kind);
BEGIN
    INSERT INTO claims (batch_id, workspace_id, key_high, key_low, half, claim_id, release_ids)
    SELECT 0, workspace, high, low, halves.filled, id, releases
    WHERE high NOT IN (SELECT remembered(ARRAY[workspace], ARRAY[high]))
        AND NOT EXISTS (SELECT FROM claims c
            WHERE c.workspace_id = workspace AND c.key_high = high AND c.key_low = low)
    ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        UPDATE claims c SET batch_id = 0, release_ids = c.release_ids || releases
        WHERE c.workspace_id = workspace AND c.key_high = high AND c.key_low = low
            AND c.claim_id = id;
    END IF;
    RETURN FOUND;
END
$$;
COMMENT ON FUNCTION claim_lost IS
    'Claims anew, settled, what was lost with the database, a submission for its release; false if '
    'the key was claimed under another id, or is remembered';

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
FROM open_batches o JOIN claims c ON c.batch_id = o.batch_id
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

REVOKE EXECUTE ON FUNCTION join_claiming, await_claims, claim, take_over, count_changed,
    claim_lost, close_batches, end_leases, spill_batches, forget_batches FROM PUBLIC;
GRANT EXECUTE ON FUNCTION claim, take_over, count_changed, close_batches, end_leases, spill_batches
    TO letterbox_gateway;
GRANT EXECUTE ON FUNCTION forget_batches TO letterbox_worker;
GRANT EXECUTE ON FUNCTION claim_lost TO letterbox_operator;
GRANT SELECT ON open_batches TO letterbox_gateway;
GRANT SELECT (workspace_id, is_aside, spilled_at, length) ON spilled_messages TO letterbox_gateway;
GRANT SELECT, INSERT (workspace_id, batch_id, is_aside, routing_key, message_type, body, takes),
    UPDATE (lease_until, takes), DELETE ON spilled_messages TO letterbox_worker;
GRANT SELECT ON open_batches, webhook_deliveries, form_submissions, interrupted_batches
    TO letterbox_operator;
GRANT SELECT (batch_id, spilled_at) ON spilled_messages TO letterbox_operator;
GRANT SELECT (batch_id, workspace_id, key_high, key_low, claim_id, half) ON claims
    TO letterbox_gateway;
GRANT SELECT (workspace_id, key_high, key_low, half, claim_id, release_ids)
    ON claims, webhook_deliveries, form_submissions TO letterbox_worker;
GRANT SELECT, UPDATE (queues) ON work_queues TO letterbox_gateway, letterbox_operator;
GRANT SELECT ON work_queues TO letterbox_worker;
