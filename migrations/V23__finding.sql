-- Why: a run could not be found by what was submitted to it, and an index over the states of runs made every change of a state
-- write into all indexes of its table. Runs are found by ids of their values, which say nothing without them and go with the
-- input; those that are not over, and those that went wrong, by what is set once at the end.

-- Where functions with rights of their own search.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

DROP INDEX runs_by_state;
CREATE INDEX runs_that_went_wrong ON runs (workspace_id, run_id) WHERE failure IS NOT NULL OR refused_reason IS NOT NULL;
CREATE INDEX runs_under_way ON runs (workspace_id, run_id) WHERE finished_at IS NULL;
-- Room for the next version of a row on the page of this one.
ALTER TABLE runs SET (fillfactor = 80);
ALTER TABLE run_actions SET (fillfactor = 60);

ALTER TABLE runs ADD COLUMN found_by uuid[];
CREATE INDEX runs_by_value ON runs USING gin (found_by) WHERE found_by IS NOT NULL;
COMMENT ON COLUMN runs.found_by IS 'Ids that stand for the values of its input; null where it is not searched';
ALTER TABLE workspaces ADD COLUMN is_searchable boolean NOT NULL DEFAULT true;
COMMENT ON COLUMN workspaces.is_searchable IS 'Whether new runs can be found by what was submitted to them';
GRANT SELECT (is_searchable) ON workspaces TO letterbox_worker;

CREATE FUNCTION forget_values() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.found_by := NULL;
    RETURN NEW;
END
$$;
COMMENT ON FUNCTION forget_values IS 'A run whose input is forgotten is not found by it';
CREATE TRIGGER forget_values BEFORE UPDATE OF input ON runs FOR EACH ROW
WHEN (NEW.input IS NULL AND OLD.input IS NOT NULL) EXECUTE FUNCTION forget_values();

-- What stands for values is no order.
CREATE OR REPLACE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    former jsonb := '{}';
    latter jsonb := '{}';
    one jsonb;
BEGIN
    IF TG_OP <> 'INSERT' THEN
        former := to_jsonb(OLD);
    END IF;
    IF TG_OP <> 'DELETE' THEN
        latter := to_jsonb(NEW);
    END IF;
    one := former || latter;
    INSERT INTO audit_log (workspace_id, ordered_by, login, command, subject, subject_id, reason, before, after)
    SELECT coalesce((one ->> 'workspace_id')::uuid, '00000000-0000-0000-0000-000000000000'),
           coalesce(nullif(current_setting('letterbox.ordered_by', true), ''), one ->> 'decided_by')::uuid,
           session_user,
           coalesce(nullif(current_setting('letterbox.command', true), ''), lower(TG_OP) || ' ' || TG_TABLE_NAME),
           TG_TABLE_NAME, one ->> TG_ARGV[0], nullif(current_setting('letterbox.reason', true), ''),
           coalesce(jsonb_object_agg(name, shown_in_audit(TG_TABLE_NAME, name, former -> name)) FILTER (WHERE former ? name), '{}'),
           coalesce(jsonb_object_agg(name, shown_in_audit(TG_TABLE_NAME, name, latter -> name)) FILTER (WHERE latter ? name), '{}')
    FROM jsonb_object_keys(one) AS name
    WHERE coalesce(former -> name, 'null') <> coalesce(latter -> name, 'null')
      AND NOT (TG_TABLE_NAME = 'runs' AND name = 'found_by')
    HAVING count(*) > 0;
    RETURN NULL;
END
$$;

-- What waits for an answer is found by workflow, however much of it another one has.
ALTER TABLE approvals ADD COLUMN workflow_id uuid;
ALTER TABLE approvals DISABLE TRIGGER USER; -- nobody has ordered this
UPDATE approvals a SET workflow_id = r.workflow_id FROM runs r WHERE r.workspace_id = a.workspace_id AND r.run_id = a.run_id;
ALTER TABLE approvals ENABLE TRIGGER USER;
ALTER TABLE approvals ALTER COLUMN workflow_id SET NOT NULL;
COMMENT ON COLUMN approvals.workflow_id IS 'The workflow of the run';
CREATE FUNCTION name_workflow() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    SELECT workflow_id INTO NEW.workflow_id FROM runs WHERE workspace_id = NEW.workspace_id AND run_id = NEW.run_id;
    RETURN NEW;
END
$$;
COMMENT ON FUNCTION name_workflow IS 'A question is about the workflow of its run';
CREATE TRIGGER name_workflow BEFORE INSERT ON approvals FOR EACH ROW EXECUTE FUNCTION name_workflow();
DROP INDEX approvals_pending;
CREATE INDEX approvals_pending ON approvals (workspace_id, workflow_id, created_at) WHERE state = 'pending';

CREATE FUNCTION stop_search(tenant uuid, beyond uuid, most integer) RETURNS uuid
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    -- Whoever is recording runs of the workspace has begun before it was told not to have them found.
    SELECT FROM run_usage WHERE workspace_id = tenant FOR UPDATE;
    WITH next AS (
        SELECT run_id FROM runs WHERE workspace_id = tenant AND run_id > beyond AND found_by IS NOT NULL
        ORDER BY run_id LIMIT most FOR UPDATE
    ), stopped AS (
        UPDATE runs r SET found_by = NULL FROM next WHERE r.workspace_id = tenant AND r.run_id = next.run_id
    )
    SELECT run_id FROM next ORDER BY run_id DESC LIMIT 1
$$;
COMMENT ON FUNCTION stop_search IS 'Takes the next `most` runs beyond one out of the search; the last of them, null when there are no more';
REVOKE EXECUTE ON FUNCTION stop_search FROM PUBLIC;
GRANT EXECUTE ON FUNCTION stop_search TO letterbox_operator;

-- Some orders change no table.
CREATE FUNCTION note_order(about text, told jsonb) RETURNS void LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    INSERT INTO audit_log (workspace_id, ordered_by, login, command, subject, reason, before, after)
    VALUES ('00000000-0000-0000-0000-000000000000', nullif(current_setting('letterbox.ordered_by', true), '')::uuid, session_user,
            coalesce(nullif(current_setting('letterbox.command', true), ''), about), about,
            nullif(current_setting('letterbox.reason', true), ''), '{}', told)
$$;
COMMENT ON FUNCTION note_order IS 'Writes down an order that changes no table';
REVOKE EXECUTE ON FUNCTION note_order FROM PUBLIC;
GRANT EXECUTE ON FUNCTION note_order TO letterbox_operator;
