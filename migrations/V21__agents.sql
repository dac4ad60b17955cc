-- Why: what an account answered was thrown away, so no later action could use it, nobody could say why a 422 came, and no model
-- could be given a tool. Answers that are used later are kept, sealed, while their run may need them; of a failed action the
-- beginning of its answer is kept. An agent's questions and calls are actions of its own run. A run can wait, and can do
-- something when it fails.

-- Where functions with rights of their own search.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

ALTER TABLE run_actions
    DROP CONSTRAINT run_actions_state_check, ADD CONSTRAINT run_actions_state_check CHECK (state IN
        ('running', 'retrying', 'waiting', 'waiting_approval', 'succeeded', 'failed', 'denied', 'cancelled')) NOT VALID,
    DROP CONSTRAINT run_actions_untrusted_check,
    ADD CONSTRAINT run_actions_untrusted_check CHECK (untrusted <@ '{data,control,account}') NOT VALID,
    DROP CONSTRAINT run_actions_steered_by_check,
    ADD CONSTRAINT run_actions_steered_by_check CHECK (steered_by <@ '{condition,ai.condition,ai.agent,outcome}') NOT VALID,
    ADD COLUMN answer_sealed bytea,
    ADD COLUMN part_of text,
    ADD COLUMN is_told boolean NOT NULL DEFAULT false,
    ADD CONSTRAINT only_parts_are_told CHECK (part_of IS NOT NULL OR NOT is_told);
ALTER TABLE run_actions VALIDATE CONSTRAINT run_actions_state_check;
ALTER TABLE run_actions VALIDATE CONSTRAINT run_actions_untrusted_check;
ALTER TABLE run_actions VALIDATE CONSTRAINT run_actions_steered_by_check;
COMMENT ON COLUMN run_actions.state IS 'running: begun, its outcome may be unknown; retrying: for its next attempt; waiting: for its time';
COMMENT ON COLUMN run_actions.untrusted IS 'data: what a submitter wrote fills it; account: what an account answered does; control: one of them steered the run here';
COMMENT ON COLUMN run_actions.answer_sealed IS 'Body of the last answer, sealed to this row: where later actions may use it, and the beginning of it where the action failed';
COMMENT ON COLUMN run_actions.part_of IS 'The agent whose question or call it is; null for actions of the release';
COMMENT ON COLUMN run_actions.is_told IS 'It failed or was denied, and its agent was told so: the run goes on';
GRANT UPDATE (answer_sealed) ON run_actions TO letterbox_operator;
CREATE INDEX run_actions_answered ON run_actions (workspace_id, run_id, action_id) WHERE answer_sealed IS NOT NULL;

ALTER TABLE releases ADD COLUMN on_failure text;
COMMENT ON COLUMN releases.on_failure IS 'JSON text of the actions that follow when a run has failed; null where there are none';
GRANT SELECT (on_failure) ON releases TO letterbox_worker;

ALTER TABLE runs ADD COLUMN failing text;
COMMENT ON COLUMN runs.failing IS 'Why it fails, once what follows a failure has begun';
GRANT SELECT (failing), UPDATE (failing) ON runs TO letterbox_worker;

ALTER TABLE workspaces ADD COLUMN keep_answers boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN workspaces.keep_answers IS 'Whether answers are kept when their run has succeeded';

-- Answers go with what they are an answer to, and when nothing can need them any more. A run that failed may be retried.
CREATE FUNCTION drop_answers() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE run_actions SET answer_sealed = NULL
    WHERE workspace_id = NEW.workspace_id AND run_id = NEW.run_id AND answer_sealed IS NOT NULL
      AND (NEW.input IS NULL OR NOT EXISTS (
        SELECT FROM workspaces WHERE workspace_id = NEW.workspace_id AND keep_answers));
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION drop_answers IS 'Drops the answers of a run that has succeeded, or whose input was forgotten';
CREATE TRIGGER drop_answers_of_succeeded AFTER UPDATE OF state ON runs FOR EACH ROW
WHEN (NEW.state = 'succeeded' AND OLD.state <> 'succeeded') EXECUTE FUNCTION drop_answers();
CREATE TRIGGER drop_answers_of_forgotten AFTER UPDATE OF input ON runs FOR EACH ROW
WHEN (NEW.input IS NULL AND OLD.input IS NOT NULL) EXECUTE FUNCTION drop_answers();

CREATE FUNCTION drop_answer() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.answer_sealed := NULL;
    RETURN NEW;
END
$$;
COMMENT ON FUNCTION drop_answer IS 'Of a request that was forgotten no answer is kept';
CREATE TRIGGER drop_answer BEFORE UPDATE OF request ON run_actions FOR EACH ROW
WHEN (NEW.request IS NULL AND OLD.request IS NOT NULL) EXECUTE FUNCTION drop_answer();

-- What an agent was told of is done; it goes on behind it.
CREATE OR REPLACE FUNCTION retry_run(tenant uuid, retried uuid, due_in double precision) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    run runs;
BEGIN
    SELECT * INTO run FROM runs WHERE workspace_id = tenant AND run_id = retried FOR UPDATE;
    IF run.run_id IS NULL OR run.state NOT IN ('failed', 'denied', 'cancelled') THEN
        RETURN 'not_ended';
    ELSIF run.input IS NULL OR EXISTS (
        -- What it was answered went with what it had sent.
        SELECT FROM run_actions WHERE workspace_id = tenant AND run_id = retried AND state = 'succeeded'
            AND response_status IS NOT NULL AND request IS NULL AND (type <> 'ai.agent' OR part_of IS NOT NULL)) THEN
        RETURN 'forgotten';
    END IF;
    UPDATE runs SET state = 'queued', failure = NULL, failing = NULL, cancel_reason = NULL, finished_at = NULL, turn = turn + 1,
        idle_turns = 0, lease_until = NULL
    WHERE workspace_id = tenant AND run_id = retried;
    -- An answer was given under the former key, and might be given again. A request is made anew where its account is gone.
    WITH again AS (
        UPDATE run_actions a SET state = 'retrying', attempts = 0, retry_at = NULL, finished_at = NULL,
            idempotency_key = CASE WHEN a.unanswered = 0 THEN gen_random_uuid() ELSE a.idempotency_key END,
            request = CASE WHEN a.unanswered > 0 OR EXISTS (
                    SELECT FROM connected_accounts c
                    WHERE c.workspace_id = tenant AND c.account_id = (a.request::json ->> 'account_id')::uuid
                      AND c.disconnected_at IS NULL)
                THEN a.request END
        WHERE a.workspace_id = tenant AND a.run_id = retried AND a.state IN ('failed', 'denied', 'cancelled') AND NOT a.is_told
        RETURNING a.action_id, a.request IS NULL AS is_new
    )
    UPDATE approvals p SET state = 'withdrawn', decided_at = clock_timestamp(), decided_by = NULL
    FROM again
    WHERE p.workspace_id = tenant AND p.run_id = retried AND p.action_id = again.action_id
      AND (p.state IN ('denied', 'expired') OR again.is_new);
    INSERT INTO run_wakes (workspace_id, run_id, due_at)
    VALUES (tenant, retried, clock_timestamp() + due_in * interval '1 second')
    ON CONFLICT (workspace_id, run_id) DO UPDATE
    SET due_at = EXCLUDED.due_at, state = 'scheduled', handovers = 0;
    RETURN 'queued';
END
$$;
