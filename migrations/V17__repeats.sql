-- Why: who sends another payload under an idempotency key that was used before is answered as ever, and nobody learned of
-- it: a form that makes its keys badly loses submissions, and somebody else's key that was guessed looks the same. Now it
-- is known what was first sent, by a hash, and counted what came back otherwise.
--
-- Gateways of before this file go on; what they claim has no hash, and is not compared.

-- Where functions with rights of their own search.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

ALTER TABLE form_submissions
    ADD COLUMN payload_hash bigint,
    ADD COLUMN changed_repeats integer NOT NULL DEFAULT 0;
COMMENT ON COLUMN form_submissions.payload_hash IS 'First 8 bytes of SHA-256(SHA-256(idempotency key), payload), so that nobody who does not know the key can guess at the payload; null for what was claimed before this was kept, and when the run was erased';
COMMENT ON COLUMN form_submissions.changed_repeats IS 'How often the key came back with another payload, which changed nothing';

DROP FUNCTION claim_submissions(uuid[], uuid[], uuid[], bytea[], bytea[], bigint[], uuid[], double precision, bigint[]);
CREATE FUNCTION claim_submissions(workspaces uuid[], highs uuid[], lows uuid[], doors bytea[], hashes bytea[],
    batches bigint[], ids uuid[], lease_seconds double precision, closing bigint[], payloads bigint[] DEFAULT NULL)
RETURNS SETOF uuid LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    RETURN QUERY
    WITH closed AS (
        DELETE FROM open_batches o WHERE o.batch_id = ANY (closing)
    ), claimed AS (
        INSERT INTO form_submissions AS s
            (workspace_id, key_high, key_low, batch_id, submission_id, release_ids, payload_hash)
        SELECT n.workspace_id, n.key_high, n.key_low, n.batch_id, n.id, ARRAY[l.release_id], n.payload_hash
        FROM unnest(workspaces, highs, lows, doors, hashes, batches, ids, payloads)
             AS n (workspace_id, key_high, key_low, token_sha256, sha256, batch_id, id, payload_hash)
        JOIN live_form_links l ON l.token_sha256 = n.token_sha256 AND l.workspace_id = n.workspace_id
        WHERE is_key_of(l.workflow_id, n.sha256, n.key_high, n.key_low)
        ORDER BY n.workspace_id, n.key_high, n.key_low
        ON CONFLICT DO NOTHING
        RETURNING s.batch_id, s.submission_id
    ), opened AS (
        INSERT INTO open_batches (batch_id, lease_until)
        SELECT c.batch_id, clock_timestamp() + lease_seconds * interval '1 second' FROM claimed c GROUP BY c.batch_id
    )
    SELECT submission_id FROM claimed;
END
$$;
COMMENT ON FUNCTION claim_submissions IS 'As claim_deliveries, for idempotency keys of workflows with a live link';

CREATE FUNCTION count_changed_repeats(workspaces uuid[], highs uuid[], lows uuid[], doors bytea[], hashes bytea[],
    payloads bigint[])
RETURNS SETOF bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    RETURN QUERY
    WITH changed AS (
        SELECT s.workspace_id, s.key_high, s.key_low, count(*) AS times
        FROM unnest(workspaces, highs, lows, doors, hashes, payloads)
             AS n (workspace_id, key_high, key_low, token_sha256, sha256, payload_hash)
        JOIN live_form_links l ON l.token_sha256 = n.token_sha256 AND l.workspace_id = n.workspace_id
        JOIN form_submissions s
            ON s.workspace_id = n.workspace_id AND s.key_high = n.key_high AND s.key_low = n.key_low
        WHERE is_key_of(l.workflow_id, n.sha256, n.key_high, n.key_low) AND s.payload_hash <> n.payload_hash
        GROUP BY s.workspace_id, s.key_high, s.key_low
    ), locked AS (
        -- In order, so that two gateways can't wait for each other in a circle.
        SELECT s.workspace_id, s.key_high, s.key_low, c.times
        FROM form_submissions s JOIN changed c USING (workspace_id, key_high, key_low)
        ORDER BY s.workspace_id, s.key_high, s.key_low FOR UPDATE OF s
    ), kept AS (
        UPDATE form_submissions s SET changed_repeats = least(s.changed_repeats + c.times, 2147483647)
        FROM locked c
        WHERE s.workspace_id = c.workspace_id AND s.key_high = c.key_high AND s.key_low = c.key_low
        RETURNING c.times
    )
    SELECT coalesce(sum(times), 0)::bigint FROM kept;
END
$$;
COMMENT ON FUNCTION count_changed_repeats IS 'Counts, of submissions whose keys were known, those with another payload than the first; returns how many they were';

REVOKE EXECUTE ON FUNCTION claim_submissions, count_changed_repeats FROM PUBLIC;
GRANT EXECUTE ON FUNCTION claim_submissions, count_changed_repeats TO letterbox_gateway;

CREATE OR REPLACE FUNCTION erase_run(tenant uuid, erased uuid) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE runs SET input = NULL WHERE workspace_id = tenant AND run_id = erased
        AND state IN ('succeeded', 'failed', 'denied', 'refused');
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    UPDATE run_actions SET request = NULL, error = NULL WHERE workspace_id = tenant AND run_id = erased;
    UPDATE form_submissions SET payload_hash = NULL WHERE workspace_id = tenant AND submission_id = erased;
    RETURN true;
END
$$;

-- Of gateways that claim through functions none uses it any more.
DROP FUNCTION take_hits(bytea[], integer[], integer[], integer[]);
