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

CREATE TABLE forgotten (
    workspace_id uuid NOT NULL,
    what         text NOT NULL CHECK (what IN ('bodies', 'inputs', 'requests', 'runs')),
    until_id     uuid NOT NULL,
    PRIMARY KEY (workspace_id, what)
);
COMMENT ON TABLE forgotten IS 'How far retention has come. Ids of signals and runs begin with their time';
COMMENT ON COLUMN forgotten.workspace_id IS 'Tenant';
COMMENT ON COLUMN forgotten.what IS 'Bodies of signals, inputs of runs, requests of actions, or whole runs';
COMMENT ON COLUMN forgotten.until_id IS 'Last signal or run that was looked at';

-- Workers decide when, the functions what: nothing younger than a day, and no run that is not over.
CREATE FUNCTION forget(tenant uuid, wanted text, days integer, most integer) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    milliseconds bigint := (extract(epoch FROM clock_timestamp() - make_interval(days => days)) * 1000)::bigint;
    first_kept uuid := (lpad(to_hex(milliseconds), 12, '0') || repeat('0', 20))::uuid;
    since uuid;
    ids uuid[];
BEGIN
    IF days IS NULL OR days < 1 THEN
        RAISE EXCEPTION 'nothing is forgotten within a day' USING ERRCODE = 'insufficient_privilege';
    END IF;
    INSERT INTO forgotten (workspace_id, what, until_id) VALUES (tenant, wanted, '00000000-0000-0000-0000-000000000000')
    ON CONFLICT (workspace_id, what) DO UPDATE SET until_id = forgotten.until_id RETURNING until_id INTO since;
    IF wanted = 'bodies' THEN
        ids := ARRAY(SELECT signal_id FROM signals WHERE workspace_id = tenant AND signal_id > since
            AND signal_id < first_kept ORDER BY signal_id LIMIT most);
        UPDATE signals SET body = NULL WHERE workspace_id = tenant AND signal_id = ANY (ids) AND body IS NOT NULL;
    ELSE
        -- Up to the first run that is not over.
        ids := ARRAY(SELECT run_id FROM (
                SELECT run_id, bool_and(state IN ('succeeded', 'failed', 'denied', 'refused')) OVER (ORDER BY run_id) AS over
                FROM (SELECT run_id, state FROM runs WHERE workspace_id = tenant AND run_id > since
                      AND run_id < first_kept ORDER BY run_id LIMIT most) AS next) AS all_before
            WHERE over ORDER BY run_id);
        IF wanted = 'inputs' THEN
            UPDATE runs SET input = NULL WHERE workspace_id = tenant AND run_id = ANY (ids) AND input IS NOT NULL;
        ELSIF wanted = 'requests' THEN
            UPDATE run_actions SET request = NULL
            WHERE workspace_id = tenant AND run_id = ANY (ids) AND request IS NOT NULL;
        ELSE
            INSERT INTO erased_runs SELECT tenant, unnest(ids) ON CONFLICT DO NOTHING;
            DELETE FROM approvals WHERE workspace_id = tenant AND run_id = ANY (ids);
            DELETE FROM run_actions WHERE workspace_id = tenant AND run_id = ANY (ids);
            DELETE FROM run_wakes WHERE workspace_id = tenant AND run_id = ANY (ids);
            DELETE FROM runs WHERE workspace_id = tenant AND run_id = ANY (ids);
        END IF;
    END IF;
    IF cardinality(ids) > 0 THEN
        UPDATE forgotten SET until_id = ids[cardinality(ids)] WHERE workspace_id = tenant AND what = wanted;
    END IF;
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
    person uuid;
BEGIN
    IF EXISTS (SELECT FROM webhooks WHERE workspace_id = tenant AND deleted_at IS NULL)
        OR EXISTS (SELECT FROM workflows WHERE workspace_id = tenant AND state <> 'deleted') THEN
        RAISE EXCEPTION 'a workspace is closed before it is emptied' USING ERRCODE = 'restrict_violation';
    END IF;
    -- What refers to others comes before them.
    FOREACH emptied IN ARRAY ARRAY['approvals', 'run_actions', 'run_wakes', 'runs', 'erased_runs', 'run_usage',
        'signals', 'stored_bytes', 'forgotten', 'webhook_deliveries', 'form_submissions', 'form_links', 'workflows',
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
    WITH gone AS (
        DELETE FROM members WHERE workspace_id = tenant RETURNING user_id
    ) SELECT array_agg(user_id) INTO former FROM gone;
    DELETE FROM workspaces WHERE workspace_id = tenant;
    -- People of other workspaces stay.
    FOREACH person IN ARRAY coalesce(former, '{}') LOOP
        BEGIN
            DELETE FROM users u WHERE u.user_id = person
                AND NOT EXISTS (SELECT FROM members m WHERE m.user_id = person);
        EXCEPTION WHEN foreign_key_violation THEN
            NULL; -- What they did elsewhere still names them.
        END;
    END LOOP;
    RETURN 0;
END
$$;
COMMENT ON FUNCTION empty_workspace IS 'Deletes at most `most` rows of a closed workspace; returns how many, 0 when the workspace itself is gone';
REVOKE EXECUTE ON FUNCTION erase_run, close_workspace, empty_workspace FROM PUBLIC;
GRANT EXECUTE ON FUNCTION erase_run, close_workspace, empty_workspace TO letterbox_operator;

CREATE INDEX approvals_pending ON approvals (workspace_id, created_at) WHERE state = 'pending';
