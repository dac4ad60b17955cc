-- Why: a gateway that has been taken over is confined to webhooks and links that live. It could write any claim into the
-- tables, for any tenant. Now it claims through functions that check the door themselves, and that the key belongs to the
-- door; and workers believe only what is claimed. What the functions search in comes first in their path, because whoever
-- calls them may make temporary tables.
--
-- Gateways of before this file can't claim any more. Stop them first; what they have published is understood.

REVOKE CREATE ON SCHEMA public FROM PUBLIC;

ALTER TABLE form_submissions ADD COLUMN release_ids uuid[];
COMMENT ON COLUMN form_submissions.release_ids IS 'Releases of the links that it came through, each at an attempt of its own; null for what was claimed before this was kept';
CREATE INDEX form_submissions_by_id ON form_submissions (submission_id);

CREATE FUNCTION is_key_of(door uuid, sha256 bytea, key_high uuid, key_low uuid) RETURNS boolean LANGUAGE sql IMMUTABLE
RETURN sha256(uuid_send(door) || sha256) = uuid_send(key_high) || uuid_send(key_low);
COMMENT ON FUNCTION is_key_of IS 'Whether the halves are those of SHA-256(door, sha256)';

CREATE FUNCTION claim_deliveries(workspaces uuid[], highs uuid[], lows uuid[], doors uuid[], hashes bytea[],
    batches bigint[], ids uuid[], lease_seconds double precision, closing bigint[])
RETURNS SETOF uuid LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
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
        WHERE is_key_of(w.webhook_id, n.sha256, n.key_high, n.key_low)
        ORDER BY n.workspace_id, n.key_high, n.key_low
        ON CONFLICT DO NOTHING
        RETURNING d.batch_id, d.delivery_id
    ), opened AS (
        INSERT INTO open_batches (batch_id, lease_until)
        SELECT c.batch_id, clock_timestamp() + lease_seconds * interval '1 second' FROM claimed c GROUP BY c.batch_id
    )
    SELECT delivery_id FROM claimed;
END
$$;
COMMENT ON FUNCTION claim_deliveries IS 'Claims bodies that have no row yet, of live webhooks, and opens the batches that this needs; deletes, on the way, batches that are closed; returns the ids of what was claimed';

CREATE FUNCTION take_over_deliveries(workspaces uuid[], highs uuid[], lows uuid[], doors uuid[], hashes bytea[],
    batches bigint[], lease_seconds double precision)
RETURNS SETOF uuid LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    RETURN QUERY
    WITH free AS (
        SELECT d.workspace_id, d.key_high, d.key_low, n.batch_id
        FROM unnest(workspaces, highs, lows, doors, hashes, batches)
             AS n (workspace_id, key_high, key_low, webhook_id, sha256, batch_id)
        JOIN webhooks w ON w.workspace_id = n.workspace_id AND w.webhook_id = n.webhook_id AND w.deleted_at IS NULL
        JOIN webhook_deliveries d
            ON d.workspace_id = n.workspace_id AND d.key_high = n.key_high AND d.key_low = n.key_low
        JOIN open_batches o ON o.batch_id = d.batch_id
        WHERE o.spilled_at IS NULL AND o.lease_until <= clock_timestamp()
          AND is_key_of(w.webhook_id, n.sha256, n.key_high, n.key_low)
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
COMMENT ON FUNCTION take_over_deliveries IS 'Moves claims whose lease is over into new batches, unless somebody else is doing it; returns the ids of what was moved';

CREATE FUNCTION claim_submissions(workspaces uuid[], highs uuid[], lows uuid[], doors bytea[], hashes bytea[],
    batches bigint[], ids uuid[], lease_seconds double precision, closing bigint[])
RETURNS SETOF uuid LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    RETURN QUERY
    WITH closed AS (
        DELETE FROM open_batches o WHERE o.batch_id = ANY (closing)
    ), claimed AS (
        INSERT INTO form_submissions AS s (workspace_id, key_high, key_low, batch_id, submission_id, release_ids)
        SELECT n.workspace_id, n.key_high, n.key_low, n.batch_id, n.id, ARRAY[l.release_id]
        FROM unnest(workspaces, highs, lows, doors, hashes, batches, ids)
             AS n (workspace_id, key_high, key_low, token_sha256, sha256, batch_id, id)
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

CREATE FUNCTION take_over_submissions(workspaces uuid[], highs uuid[], lows uuid[], doors bytea[], hashes bytea[],
    batches bigint[], lease_seconds double precision)
RETURNS SETOF uuid LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
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
        UPDATE form_submissions s SET batch_id = f.batch_id, release_ids =
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
COMMENT ON FUNCTION take_over_submissions IS 'As take_over_deliveries; what is published now was validated against the release of this link, and what an earlier attempt may have published against that of its own';

REVOKE EXECUTE ON FUNCTION claim_deliveries, take_over_deliveries, claim_submissions, take_over_submissions FROM PUBLIC;
GRANT EXECUTE ON FUNCTION claim_deliveries, take_over_deliveries, claim_submissions, take_over_submissions
    TO letterbox_gateway;
REVOKE INSERT, UPDATE ON webhook_deliveries, form_submissions FROM letterbox_gateway;
REVOKE INSERT ON open_batches FROM letterbox_gateway;
GRANT SELECT (workspace_id, key_high, key_low, delivery_id) ON webhook_deliveries TO letterbox_worker;
GRANT SELECT (workspace_id, submission_id, release_ids) ON form_submissions TO letterbox_worker;

CREATE FUNCTION gateways_only_add_queues() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'a gateway adds queues and takes none away' USING ERRCODE = 'insufficient_privilege';
END
$$;
COMMENT ON FUNCTION gateways_only_add_queues IS 'Without it a gateway could take workers away from queues of others';
CREATE TRIGGER gateways_only_add_queues BEFORE UPDATE ON work_queues FOR EACH ROW
WHEN (NEW.queues < OLD.queues AND NOT pg_has_role(current_user, 'letterbox_operator', 'MEMBER')) EXECUTE FUNCTION gateways_only_add_queues();

-- Where the tables are in another schema than public, so are the functions, and there they search.
DO $$
DECLARE
    definer regprocedure;
BEGIN
    FOR definer IN SELECT oid::regprocedure FROM pg_proc
        WHERE prosecdef AND pronamespace = current_schema()::regnamespace LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = %I, pg_temp', definer, current_schema());
    END LOOP;
END
$$;
