-- Why: strangers can't fill the disk. What a workspace and a webhook store in a day is counted and has a ceiling; a run that
-- was refused keeps no input; and what is old is forgotten, if its owner wants that. What makes a repeat a repeat is never
-- forgotten: claims stay, a signal stays without its body, and a run that is deleted leaves its id.

ALTER TABLE signals ALTER COLUMN body DROP NOT NULL;
COMMENT ON COLUMN signals.body IS 'The exact bytes that were signed; null when they were forgotten';
ALTER TABLE runs ALTER COLUMN input DROP NOT NULL;
COMMENT ON COLUMN runs.input IS 'JSON text of what was submitted, validated; null for a refused run, and when it was forgotten';
ALTER TABLE runs ADD CONSTRAINT active_run_has_its_input
    CHECK (input IS NOT NULL OR state IN ('succeeded', 'failed', 'denied', 'refused')) NOT VALID;
ALTER TABLE runs VALIDATE CONSTRAINT active_run_has_its_input;
ALTER TABLE runs DROP CONSTRAINT runs_refused_reason_check, ADD CONSTRAINT runs_refused_reason_check
    CHECK (refused_reason IN ('owner_cannot_run', 'workflow_unavailable', 'allowance_exhausted', 'storage_exhausted'));

CREATE TABLE stored_bytes (
    workspace_id uuid NOT NULL,
    day          date NOT NULL,
    webhook_id   uuid NOT NULL,
    bytes        bigint NOT NULL,
    PRIMARY KEY (workspace_id, day, webhook_id)
);
COMMENT ON TABLE stored_bytes IS 'How much was stored in a day, noted every few seconds: a ceiling, not an account';
COMMENT ON COLUMN stored_bytes.workspace_id IS 'Tenant';
COMMENT ON COLUMN stored_bytes.day IS 'In UTC';
COMMENT ON COLUMN stored_bytes.webhook_id IS 'What this webhook has delivered; nil for everything in the workspace, forms included';
COMMENT ON COLUMN stored_bytes.bytes IS 'Bodies of signals and inputs of runs';
GRANT SELECT ON stored_bytes TO letterbox_gateway;
GRANT SELECT, INSERT, UPDATE (bytes), DELETE ON stored_bytes TO letterbox_worker;

CREATE TABLE erased_runs (
    workspace_id uuid NOT NULL,
    run_id       uuid NOT NULL,
    PRIMARY KEY (workspace_id, run_id)
);
COMMENT ON TABLE erased_runs IS 'Runs that were deleted: their submissions start nothing if they come once more';
COMMENT ON COLUMN erased_runs.workspace_id IS 'Tenant';
COMMENT ON COLUMN erased_runs.run_id IS 'The id of the submission';
GRANT SELECT ON erased_runs TO letterbox_worker;

-- What is retained is found by when it was stored, or was over, by the database's clock: rows come to the end of these
-- indexes. A run that was refused is over at once.
UPDATE runs SET finished_at = created_at WHERE state = 'refused' AND finished_at IS NULL;
CREATE INDEX signals_by_time ON signals (stored_at, signal_id);
CREATE INDEX runs_by_end ON runs (finished_at, run_id) WHERE finished_at IS NOT NULL;

CREATE TABLE forgotten (
    what     text PRIMARY KEY CHECK (what IN ('bodies', 'inputs', 'requests', 'runs')),
    until_at timestamptz NOT NULL DEFAULT '-infinity',
    until_id uuid NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000'
);
INSERT INTO forgotten (what) VALUES ('bodies'), ('inputs'), ('requests'), ('runs');
COMMENT ON TABLE forgotten IS 'How far retention has come';
COMMENT ON COLUMN forgotten.what IS 'Bodies of signals, inputs of runs, requests of actions, or whole runs';
COMMENT ON COLUMN forgotten.until_at IS 'When the last signal or run was stored, or was over, that was looked at';
COMMENT ON COLUMN forgotten.until_id IS 'Its id';

-- Workers decide when, the function what: nothing younger than a day, and no run that is not over.
CREATE FUNCTION forget(wanted text, days integer, most integer) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    since forgotten;
    tenants uuid[];
    ids uuid[];
    times timestamptz[];
BEGIN
    IF days IS NULL OR days < 1 OR days > 36500 THEN
        RAISE EXCEPTION 'things are kept from 1 to 36500 days' USING ERRCODE = 'insufficient_privilege';
    END IF;
    SELECT * INTO since FROM forgotten WHERE what = wanted FOR UPDATE;
    IF wanted = 'bodies' THEN
        SELECT array_agg(workspace_id), array_agg(signal_id), array_agg(stored_at) INTO tenants, ids, times
        FROM (SELECT workspace_id, signal_id, stored_at FROM signals
              WHERE (stored_at, signal_id) > (since.until_at, since.until_id)
                AND stored_at < now() - make_interval(days => days)
              ORDER BY stored_at, signal_id LIMIT most) AS next;
        UPDATE signals s SET body = NULL FROM unnest(tenants, ids) AS old (workspace_id, signal_id)
        WHERE s.workspace_id = old.workspace_id AND s.signal_id = old.signal_id AND s.body IS NOT NULL;
    ELSE
        SELECT array_agg(workspace_id), array_agg(run_id), array_agg(finished_at) INTO tenants, ids, times
        FROM (SELECT workspace_id, run_id, finished_at FROM runs
              WHERE (finished_at, run_id) > (since.until_at, since.until_id)
                AND finished_at < now() - make_interval(days => days)
              ORDER BY finished_at, run_id LIMIT most) AS next;
    END IF;
    IF wanted = 'inputs' THEN
        UPDATE runs r SET input = NULL FROM unnest(tenants, ids) AS old (workspace_id, run_id)
        WHERE r.workspace_id = old.workspace_id AND r.run_id = old.run_id AND r.input IS NOT NULL;
    ELSIF wanted = 'requests' THEN
        UPDATE run_actions a SET request = NULL FROM unnest(tenants, ids) AS old (workspace_id, run_id)
        WHERE a.workspace_id = old.workspace_id AND a.run_id = old.run_id AND a.request IS NOT NULL;
    ELSIF wanted = 'runs' THEN
        INSERT INTO erased_runs SELECT * FROM unnest(tenants, ids) ON CONFLICT DO NOTHING;
        DELETE FROM approvals p USING unnest(tenants, ids) AS old (workspace_id, run_id)
        WHERE p.workspace_id = old.workspace_id AND p.run_id = old.run_id;
        DELETE FROM run_actions a USING unnest(tenants, ids) AS old (workspace_id, run_id)
        WHERE a.workspace_id = old.workspace_id AND a.run_id = old.run_id;
        DELETE FROM run_wakes w USING unnest(tenants, ids) AS old (workspace_id, run_id)
        WHERE w.workspace_id = old.workspace_id AND w.run_id = old.run_id;
        DELETE FROM runs r USING unnest(tenants, ids) AS old (workspace_id, run_id)
        WHERE r.workspace_id = old.workspace_id AND r.run_id = old.run_id;
    END IF;
    IF ids IS NULL THEN
        RETURN 0;
    END IF;
    UPDATE forgotten SET until_at = times[cardinality(times)], until_id = ids[cardinality(ids)] WHERE what = wanted;
    RETURN cardinality(ids);
END
$$;
COMMENT ON FUNCTION forget IS 'Forgets what is older than `days`, at most `most` of it; returns how much it has looked at, 0 when it is done';
REVOKE EXECUTE ON FUNCTION forget FROM PUBLIC;
GRANT EXECUTE ON FUNCTION forget TO letterbox_worker;

CREATE FUNCTION erase_run(tenant uuid, erased uuid) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    UPDATE runs SET input = NULL WHERE workspace_id = tenant AND run_id = erased
        AND state IN ('succeeded', 'failed', 'denied', 'refused');
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    UPDATE run_actions SET request = NULL, error = NULL WHERE workspace_id = tenant AND run_id = erased;
    RETURN true;
END
$$;
COMMENT ON FUNCTION erase_run IS 'Forgets what a person has submitted and what was sent of it; false unless the run is over';

-- Closed first, so that nothing new comes; then emptied in small pieces.
CREATE FUNCTION close_workspace(tenant uuid) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    UPDATE workflows SET state = 'deleted' WHERE workspace_id = tenant AND state <> 'deleted';
    UPDATE webhooks SET deleted_at = now(), secret_sealed = NULL WHERE workspace_id = tenant AND deleted_at IS NULL;
    UPDATE connected_accounts SET disconnected_at = now(), credential_sealed = NULL
    WHERE workspace_id = tenant AND disconnected_at IS NULL;
END
$$;
COMMENT ON FUNCTION close_workspace IS 'Ends forms, webhooks and accounts of a workspace';

CREATE FUNCTION empty_workspace(tenant uuid, most integer) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    emptied text;
    deleted bigint;
    former uuid[];
BEGIN
    IF EXISTS (SELECT FROM webhooks WHERE workspace_id = tenant AND deleted_at IS NULL)
        OR EXISTS (SELECT FROM workflows WHERE workspace_id = tenant AND state <> 'deleted') THEN
        RAISE EXCEPTION 'a workspace is closed before it is emptied' USING ERRCODE = 'restrict_violation';
    END IF;
    -- What refers to others comes before them.
    FOREACH emptied IN ARRAY ARRAY['approvals', 'run_actions', 'run_wakes', 'runs', 'erased_runs', 'run_usage',
        'signals', 'stored_bytes', 'webhook_deliveries', 'form_submissions', 'form_links', 'workflows',
        'webhooks', 'connected_accounts', 'policies'] LOOP
        IF emptied = 'workflows' THEN
            -- They and their releases refer to each other.
            WITH piece AS (
                DELETE FROM workflows WHERE ctid = ANY (ARRAY(SELECT ctid FROM workflows WHERE workspace_id = tenant LIMIT most))
                RETURNING workflow_id
            ) DELETE FROM releases r USING piece WHERE r.workspace_id = tenant AND r.workflow_id = piece.workflow_id;
            GET DIAGNOSTICS deleted = ROW_COUNT;
            IF deleted > 0 OR EXISTS (SELECT FROM workflows WHERE workspace_id = tenant) THEN
                RETURN greatest(deleted, 1);
            END IF;
            CONTINUE;
        END IF;
        EXECUTE format('DELETE FROM %1$I WHERE ctid = ANY (ARRAY(SELECT ctid FROM %1$I WHERE workspace_id = $1 LIMIT $2))',
            emptied) USING tenant, most;
        GET DIAGNOSTICS deleted = ROW_COUNT;
        IF deleted > 0 THEN
            RETURN deleted;
        END IF;
    END LOOP;
    -- Of people who belong to no other workspace nothing is left but an id, which others may still name.
    WITH gone AS (
        DELETE FROM members WHERE ctid = ANY (ARRAY(SELECT ctid FROM members WHERE workspace_id = tenant LIMIT most))
        RETURNING user_id
    ) SELECT array_agg(user_id) INTO former FROM gone;
    IF former IS NOT NULL THEN
        UPDATE users u SET email = u.user_id || '@deleted.invalid', name = 'deleted' WHERE u.user_id = ANY (former)
            AND NOT EXISTS (SELECT FROM members m WHERE m.user_id = u.user_id);
        RETURN cardinality(former);
    END IF;
    DELETE FROM workspaces WHERE workspace_id = tenant;
    RETURN 0;
END
$$;
COMMENT ON FUNCTION empty_workspace IS 'Deletes at most `most` rows of a closed workspace; returns how many, 0 when the workspace itself is gone';
REVOKE EXECUTE ON FUNCTION erase_run, close_workspace, empty_workspace FROM PUBLIC;
GRANT EXECUTE ON FUNCTION erase_run, close_workspace, empty_workspace TO letterbox_operator;

CREATE INDEX approvals_pending ON approvals (workspace_id, created_at) WHERE state = 'pending';

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
