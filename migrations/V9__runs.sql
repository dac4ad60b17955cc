-- Why: attempts counted requests that began, so a worker that died took one away from an action that had not failed. Now
-- attempts count answers, and what makes its workers die, or never comes to a record, is bounded by turns that came to
-- nothing.
--
-- Workers of before this file can't record runs any more. Stop them first.

ALTER TABLE runs ADD COLUMN idle_turns integer NOT NULL DEFAULT 0;
COMMENT ON COLUMN runs.idle_turns IS 'Holders in a row that have recorded nothing but the beginning of an attempt';
COMMENT ON COLUMN run_actions.attempts IS 'Attempts that were answered, or are known to have failed';
GRANT UPDATE (idle_turns) ON runs TO letterbox_worker;
GRANT SELECT (decided_at) ON approvals TO letterbox_worker;

-- Why: what steered an action is a set: a comparison inside of what a model decided, or the outcome of an action that a
-- submitter could make fail.

ALTER TABLE run_actions DROP CONSTRAINT run_actions_steered_by_check;
ALTER TABLE run_actions ALTER COLUMN steered_by TYPE text[]
    USING CASE WHEN steered_by IS NULL THEN '{}' ELSE ARRAY[steered_by] END;
ALTER TABLE run_actions ALTER COLUMN steered_by SET NOT NULL,
    ADD CONSTRAINT run_actions_steered_by_check CHECK (steered_by <@ '{condition,ai.condition,outcome}');
COMMENT ON COLUMN run_actions.steered_by IS 'What let the submitter''s text decide that it runs; empty without control';
