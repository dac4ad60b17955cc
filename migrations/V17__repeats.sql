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
COMMENT ON COLUMN form_submissions.payload_hash IS 'First 8 bytes of SHA-256(SHA-256(idempotency key), payload), so that nobody who does not know the key can guess at the payload; null for what was claimed before this was kept or was taken over, and when the input of its run is not kept';
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

-- What was sent first was perhaps not recorded: what is recorded now is not compared.
CREATE OR REPLACE FUNCTION take_over_submissions(workspaces uuid[], highs uuid[], lows uuid[], doors bytea[], hashes bytea[],
    batches bigint[], lease_seconds double precision)
RETURNS SETOF uuid LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    RETURN QUERY
    WITH free AS (
        SELECT s.workspace_id, s.key_high, s.key_low, n.batch_id, l.release_id
        FROM unnest(workspaces, highs, lows, doors, hashes, batches)
             AS n (workspace_id, key_high, key_low, token_sha256, sha256, batch_id)
        JOIN live_form_links l ON l.token_sha256 = n.token_sha256 AND l.workspace_id = n.workspace_id
        JOIN form_submissions s
            ON s.workspace_id = n.workspace_id AND s.key_high = n.key_high AND s.key_low = n.key_low
        JOIN open_batches o ON o.batch_id = s.batch_id
        WHERE o.spilled_at IS NULL AND o.lease_until <= clock_timestamp()
          AND is_key_of(l.workflow_id, n.sha256, n.key_high, n.key_low)
        FOR UPDATE OF s SKIP LOCKED
    ), taken AS (
        UPDATE form_submissions s SET batch_id = f.batch_id, payload_hash = NULL, release_ids =
            CASE WHEN f.release_id = ANY (s.release_ids) THEN s.release_ids ELSE s.release_ids || f.release_id END
        FROM free f
        WHERE s.workspace_id = f.workspace_id AND s.key_high = f.key_high AND s.key_low = f.key_low
        RETURNING s.batch_id, s.submission_id
    ), opened AS (
        INSERT INTO open_batches (batch_id, lease_until)
        SELECT t.batch_id, clock_timestamp() + lease_seconds * interval '1 second' FROM taken t GROUP BY t.batch_id
        ON CONFLICT DO NOTHING
    )
    SELECT submission_id FROM taken;
END
$$;

CREATE FUNCTION forget_payload_hash() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE form_submissions SET payload_hash = NULL
    WHERE workspace_id = coalesce(NEW.workspace_id, OLD.workspace_id) AND submission_id = coalesce(NEW.run_id, OLD.run_id)
      AND payload_hash IS NOT NULL;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION forget_payload_hash IS 'Of an input that is not kept no hash is kept either';
CREATE TRIGGER forget_payload_hash_of_refused AFTER INSERT ON runs FOR EACH ROW
WHEN (NEW.input IS NULL) EXECUTE FUNCTION forget_payload_hash();
CREATE TRIGGER forget_payload_hash_of_erased AFTER UPDATE OF input ON runs FOR EACH ROW
WHEN (NEW.input IS NULL) EXECUTE FUNCTION forget_payload_hash();
CREATE TRIGGER forget_payload_hash_of_deleted AFTER DELETE ON runs FOR EACH ROW EXECUTE FUNCTION forget_payload_hash();

REVOKE SELECT ON form_submissions FROM letterbox_gateway;
GRANT SELECT (workspace_id, key_high, key_low, submission_id, batch_id) ON form_submissions TO letterbox_gateway;

-- Of gateways that claim through functions none uses it any more.
DROP FUNCTION take_hits(bytea[], integer[], integer[], integer[]);
