-- Trials of accounts: a person asks, a worker sends a GET or a step of a draft, and the answer is
-- kept for an hour.

CREATE TABLE account_trials (
    workspace_id uuid NOT NULL,
    account_id   uuid NOT NULL,
    user_id      uuid NOT NULL,
    path         text CHECK (path LIKE '/%' AND char_length(path) <= 2000),
    step         text CHECK (octet_length(step) <= 1048576),
    asked_at     timestamptz NOT NULL DEFAULT now(),
    taken_until  timestamptz,
    begun_at     timestamptz,
    answered_at  timestamptz,
    status       integer,
    answer       text CHECK (octet_length(answer) <= 65536),
    error        text,
    PRIMARY KEY (workspace_id, account_id),
    CHECK (num_nonnulls(path, step) = 1),
    FOREIGN KEY (workspace_id, account_id, user_id)
        REFERENCES connected_accounts (workspace_id, account_id, user_id)
);
COMMENT ON TABLE account_trials IS 'The last trial of each account, for an hour';
COMMENT ON COLUMN account_trials.user_id IS 'The owner of the account';
COMMENT ON COLUMN account_trials.path IS 'Of a GET below the base URL of the account, with a query';
COMMENT ON COLUMN account_trials.step IS
    'JSON text of a draft, sample answers, and the action that is sent by them';
COMMENT ON COLUMN account_trials.taken_until IS 'A worker prepares it now, or has died';
COMMENT ON COLUMN account_trials.begun_at IS
    'From then on it may have been sent, and is not sent again';
COMMENT ON COLUMN account_trials.status IS 'Of the answer; null if none came';
COMMENT ON COLUMN account_trials.answer IS
    'JSON text of its type and its beginning, without the credential; null if none came';
COMMENT ON COLUMN account_trials.error IS
    'Why an action would fail, or be tried again; null if it would be done';

CREATE FUNCTION ask_trial(tenant uuid, account uuid, asked text, asked_step text)
    RETURNS timestamptz
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    asked_for timestamptz;
BEGIN
    PERFORM FROM connected_accounts a WHERE a.workspace_id = tenant AND a.account_id = account
        AND a.disconnected_at IS NULL
        AND (is_operator() OR a.user_id = (SELECT user_id FROM acting())
            AND tenant = ANY (workspaces_as('runner')));
    IF NOT FOUND THEN
        RAISE EXCEPTION 'only its owner tries an account' USING ERRCODE = 'insufficient_privilege';
    END IF;
    INSERT INTO account_trials AS t (workspace_id, account_id, user_id, path, step)
    SELECT a.workspace_id, a.account_id, a.user_id, asked, asked_step FROM connected_accounts a
    WHERE a.workspace_id = tenant AND a.account_id = account
    ON CONFLICT (workspace_id, account_id) DO UPDATE SET path = EXCLUDED.path,
        step = EXCLUDED.step, asked_at = clock_timestamp(), taken_until = NULL, begun_at = NULL,
        answered_at = NULL, status = NULL, answer = NULL, error = NULL
    -- Not by the time at which this transaction began: one that began later may be done.
    WHERE t.asked_at NOT BETWEEN clock_timestamp() - interval '5 seconds' AND clock_timestamp()
      AND (t.answered_at IS NOT NULL
          OR (t.begun_at > clock_timestamp() - interval '150 seconds') IS NOT TRUE)
    RETURNING asked_at INTO asked_for;
    RETURN asked_for;
END
$$;
COMMENT ON FUNCTION ask_trial IS
    'Asks for a trial, for an operator or the owner of the account, which forgets the one before; '
    'null if that was asked for less than five seconds ago, or is being sent';

REVOKE EXECUTE ON FUNCTION ask_trial FROM PUBLIC;
GRANT EXECUTE ON FUNCTION ask_trial TO letterbox_operator, letterbox_desk;
GRANT SELECT, DELETE, UPDATE (taken_until, begun_at, answered_at, status, answer,
    error) ON account_trials
    TO letterbox_worker;
GRANT SELECT ON account_trials TO letterbox_operator, letterbox_desk;

-- Of people, nobody but the owner of an account sees what it answers.

ALTER TABLE account_trials ENABLE ROW LEVEL SECURITY;
CREATE POLICY processes_see_all ON account_trials TO letterbox_worker, letterbox_operator
    USING (true);
CREATE POLICY owners_see ON account_trials FOR SELECT TO letterbox_desk USING (
    user_id = (SELECT user_id FROM acting())
    AND workspace_id = ANY ((SELECT workspaces_as('viewer'))::uuid[]));

CREATE TRIGGER audit AFTER INSERT OR UPDATE OF asked_at ON account_trials
    FOR EACH ROW WHEN (COALESCE(current_setting('role', true), '') NOT IN ('letterbox_gateway',
        'letterbox_worker')) EXECUTE FUNCTION audit('account_id');
