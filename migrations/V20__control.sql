-- Why: nobody could stop a run, let one go on that had failed, or hold everything for a while. A cancelled run is over; one that a
-- worker has in hand is over when the worker has recorded what it was doing. A retried run goes on at the action that ended it,
-- under the same key where its outcome is not known, so that nothing is done twice. What is held waits.

-- Where functions with rights of their own search.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

ALTER TABLE runs
    DROP CONSTRAINT runs_state_check, ADD CONSTRAINT runs_state_check CHECK (state IN
        ('queued', 'running', 'waiting_approval', 'succeeded', 'failed', 'denied', 'cancelled', 'refused')) NOT VALID,
    DROP CONSTRAINT failed_says_why, ADD CONSTRAINT failed_says_why
        CHECK (failure IS NULL OR state IN ('failed', 'denied', 'cancelled')) NOT VALID,
    DROP CONSTRAINT active_run_has_its_input, ADD CONSTRAINT active_run_has_its_input
        CHECK (input IS NOT NULL OR state IN ('succeeded', 'failed', 'denied', 'cancelled', 'refused')) NOT VALID,
    ADD COLUMN cancel_reason text;
ALTER TABLE runs VALIDATE CONSTRAINT runs_state_check;
ALTER TABLE runs VALIDATE CONSTRAINT failed_says_why;
ALTER TABLE runs VALIDATE CONSTRAINT active_run_has_its_input;
COMMENT ON COLUMN runs.state IS 'queued: waits for a worker; running; waiting_approval; succeeded, failed, denied, cancelled: over; refused: never started';
COMMENT ON COLUMN runs.failure IS 'Why it failed, was denied or was cancelled';
COMMENT ON COLUMN runs.cancel_reason IS 'Why it shall be cancelled; null where nobody has ordered it';

ALTER TABLE run_actions
    DROP CONSTRAINT run_actions_state_check, ADD CONSTRAINT run_actions_state_check CHECK (state IN
        ('running', 'retrying', 'waiting_approval', 'succeeded', 'failed', 'denied', 'cancelled')) NOT VALID,
    ADD COLUMN unanswered integer NOT NULL DEFAULT 0 CHECK (unanswered >= 0);
ALTER TABLE run_actions VALIDATE CONSTRAINT run_actions_state_check;
-- Of earlier attempts it is not known whether all were answered.
UPDATE run_actions SET unanswered = 1 WHERE state IN ('running', 'retrying', 'failed') AND request IS NOT NULL;
COMMENT ON COLUMN run_actions.unanswered IS 'Attempts under its key that may have been done without an answer having come';

-- How often an action is tried.
ALTER TABLE workspaces
    ADD COLUMN retry_attempts integer CHECK (retry_attempts BETWEEN 1 AND 30),
    ADD COLUMN retry_first_milliseconds integer CHECK (retry_first_milliseconds BETWEEN 1 AND 3600000);
COMMENT ON COLUMN workspaces.retry_attempts IS 'Attempts at one action; null where workers decide';
COMMENT ON COLUMN workspaces.retry_first_milliseconds IS 'Pause before the second attempt, doubled for each further one; null where workers decide';
GRANT SELECT (retry_attempts, retry_first_milliseconds) ON workspaces TO letterbox_worker;

-- What holds: one workspace, or all.
ALTER TABLE workspaces ADD COLUMN held_at timestamptz;
CREATE INDEX workspaces_held ON workspaces (workspace_id) WHERE held_at IS NOT NULL;
COMMENT ON COLUMN workspaces.held_at IS 'Since when its runs begin no action; null while they do';
CREATE TABLE all_workspaces (
    one     boolean PRIMARY KEY DEFAULT true CHECK (one),
    held_at timestamptz
);
INSERT INTO all_workspaces DEFAULT VALUES;
COMMENT ON TABLE all_workspaces IS 'What holds for all workspaces';
COMMENT ON COLUMN all_workspaces.one IS 'There is one row';
COMMENT ON COLUMN all_workspaces.held_at IS 'Since when no run begins an action; null while they do';
CREATE TRIGGER audit AFTER UPDATE ON all_workspaces FOR EACH ROW
WHEN (coalesce(current_setting('role', true), '') NOT IN ('letterbox_gateway', 'letterbox_worker')) EXECUTE FUNCTION audit('one');
GRANT SELECT (held_at) ON workspaces TO letterbox_worker;
GRANT SELECT ON all_workspaces TO letterbox_worker;
GRANT SELECT, UPDATE (held_at) ON all_workspaces TO letterbox_operator;

CREATE FUNCTION is_held(tenant uuid) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT FROM all_workspaces WHERE held_at IS NOT NULL)
        OR EXISTS (SELECT FROM workspaces WHERE workspace_id = tenant AND held_at IS NOT NULL)
$$;
COMMENT ON FUNCTION is_held IS 'Whether runs of a workspace begin no action';

-- While a workspace is held nobody's time to answer runs out.
CREATE FUNCTION release_hold(tenant uuid) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    since timestamptz;
BEGIN
    IF tenant IS NULL THEN
        SELECT held_at INTO since FROM all_workspaces FOR UPDATE;
        UPDATE all_workspaces SET held_at = NULL WHERE held_at IS NOT NULL;
    ELSE
        SELECT held_at INTO since FROM workspaces WHERE workspace_id = tenant FOR UPDATE;
        UPDATE workspaces SET held_at = NULL WHERE workspace_id = tenant AND held_at IS NOT NULL;
    END IF;
    IF since IS NULL THEN
        RETURN false;
    END IF;
    UPDATE approvals SET expires_at = expires_at + (clock_timestamp() - greatest(created_at, since))
    WHERE state = 'pending' AND (tenant IS NULL OR workspace_id = tenant);
    RETURN true;
END
$$;
COMMENT ON FUNCTION release_hold IS 'Lets the runs of a workspace, or of all (null), begin actions again; false where they were not held';

CREATE FUNCTION cancel_run(tenant uuid, cancelled uuid, why text, holder integer) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    run runs;
BEGIN
    SELECT * INTO run FROM runs WHERE workspace_id = tenant AND run_id = cancelled FOR UPDATE;
    IF run.run_id IS NULL OR run.state NOT IN ('queued', 'running', 'waiting_approval')
        OR (holder IS NOT NULL AND (run.turn <> holder OR run.cancel_reason IS NULL)) THEN
        RETURN NULL;
    END IF;
    -- Whoever has it records first what became of the action that it has begun.
    IF holder IS NULL AND run.lease_until > clock_timestamp() THEN
        UPDATE runs SET cancel_reason = why WHERE workspace_id = tenant AND run_id = cancelled;
        RETURN 'requested';
    END IF;
    UPDATE runs SET state = 'cancelled', cancel_reason = coalesce(cancel_reason, why), failure = coalesce(cancel_reason, why),
        turn = turn + 1, lease_until = NULL, finished_at = clock_timestamp()
    WHERE workspace_id = tenant AND run_id = cancelled;
    UPDATE run_actions SET state = 'cancelled', retry_at = NULL, finished_at = clock_timestamp()
    WHERE workspace_id = tenant AND run_id = cancelled AND state IN ('retrying', 'waiting', 'waiting_approval');
    UPDATE approvals SET state = 'expired', decided_at = clock_timestamp()
    WHERE workspace_id = tenant AND run_id = cancelled AND state = 'pending';
    DELETE FROM run_wakes WHERE workspace_id = tenant AND run_id = cancelled;
    RETURN 'cancelled';
END
$$;
COMMENT ON FUNCTION cancel_run IS 'Cancels a run: cancelled, or requested while a worker has it in hand; null where it is over. `holder`: the turn of the worker that has it, which cancels what was requested';

CREATE FUNCTION retry_run(tenant uuid, retried uuid, due_in double precision) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    run runs;
BEGIN
    SELECT * INTO run FROM runs WHERE workspace_id = tenant AND run_id = retried FOR UPDATE;
    IF run.run_id IS NULL OR run.state NOT IN ('failed', 'denied', 'cancelled') THEN
        RETURN 'not_ended';
    ELSIF run.input IS NULL THEN
        RETURN 'forgotten';
    END IF;
    UPDATE runs SET state = 'queued', failure = NULL, cancel_reason = NULL, finished_at = NULL, turn = turn + 1, idle_turns = 0,
        lease_until = NULL
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
        WHERE a.workspace_id = tenant AND a.run_id = retried AND a.state IN ('failed', 'denied', 'cancelled')
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
COMMENT ON FUNCTION retry_run IS 'Lets a run go on that failed, was denied or cancelled: queued; not_ended, or forgotten where its input is gone';

-- Four eyes: a policy can want that whoever approves is not the user as whom the run acts.
CREATE FUNCTION needs_another(tenant uuid) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT coalesce((SELECT policy::json ->> 'approve_by' = 'another' FROM policies
                     WHERE workspace_id = tenant ORDER BY version DESC LIMIT 1), false)
$$;
COMMENT ON FUNCTION needs_another IS 'Whether the policy that holds wants another person to approve than the one as whom a run acts';

-- What is not over, and what went wrong, is found without looking through everything else.
CREATE INDEX runs_by_state ON runs (workspace_id, state, run_id) WHERE state <> 'succeeded';

REVOKE EXECUTE ON FUNCTION cancel_run, retry_run, release_hold FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cancel_run TO letterbox_worker, letterbox_operator;
GRANT EXECUTE ON FUNCTION retry_run, release_hold TO letterbox_operator;
GRANT SELECT (cancel_reason) ON runs TO letterbox_worker;
GRANT SELECT ON run_wakes, relay_lease TO letterbox_operator;

CREATE OR REPLACE FUNCTION erase_run(tenant uuid, erased uuid) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE runs SET input = NULL WHERE workspace_id = tenant AND run_id = erased
        AND state IN ('succeeded', 'failed', 'denied', 'cancelled', 'refused');
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    UPDATE run_actions SET request = NULL, error = NULL WHERE workspace_id = tenant AND run_id = erased;
    RETURN true;
END
$$;
