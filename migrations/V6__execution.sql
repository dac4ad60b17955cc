-- Why: runs act. A run walks through the actions of its release; before and after each, what happens is recorded here, so
-- that another worker can go on from the record at any moment. Whoever works on a run holds its lease and counts a turn;
-- only the holder of the last turn may write. What shall be done later, or by somebody else, stands in run_wakes, in the
-- transaction that makes it necessary; a relay hands it to RabbitMQ when it is due.

CREATE TABLE connected_accounts (
    workspace_id      uuid NOT NULL REFERENCES workspaces,
    account_id        uuid NOT NULL,
    user_id           uuid NOT NULL REFERENCES users,
    name              text NOT NULL CHECK (char_length(name) BETWEEN 1 AND 100),
    base_url          text NOT NULL,
    header_name       text NOT NULL,
    credential_sealed bytea,
    created_at        timestamptz NOT NULL DEFAULT now(),
    disconnected_at   timestamptz,
    PRIMARY KEY (workspace_id, account_id),
    CONSTRAINT disconnecting_destroys_the_credential CHECK ((disconnected_at IS NULL) = (credential_sealed IS NOT NULL))
);
CREATE UNIQUE INDEX connected_accounts_by_name ON connected_accounts (workspace_id, user_id, name)
    WHERE disconnected_at IS NULL;
COMMENT ON TABLE connected_accounts IS 'What a user''s workflows may call, and with which credential';
COMMENT ON COLUMN connected_accounts.workspace_id IS 'Tenant';
COMMENT ON COLUMN connected_accounts.account_id IS 'Identity, also when another account takes the name later';
COMMENT ON COLUMN connected_accounts.user_id IS 'Whose it is; nobody else''s workflows use it';
COMMENT ON COLUMN connected_accounts.name IS 'By which actions know it';
COMMENT ON COLUMN connected_accounts.base_url IS 'Scheme, host, port and path that every request begins with';
COMMENT ON COLUMN connected_accounts.header_name IS 'The header that carries the credential';
COMMENT ON COLUMN connected_accounts.credential_sealed IS 'Value of that header, sealed to this row; destroyed when disconnected';
COMMENT ON COLUMN connected_accounts.created_at IS 'Database clock';
COMMENT ON COLUMN connected_accounts.disconnected_at IS 'Null while connected';

CREATE TABLE policies (
    workspace_id uuid NOT NULL REFERENCES workspaces,
    version      integer NOT NULL CHECK (version > 0),
    policy       text NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (workspace_id, version)
);
CREATE TRIGGER policies_are_immutable BEFORE UPDATE ON policies FOR EACH ROW EXECUTE FUNCTION refuse_change();
COMMENT ON TABLE policies IS 'What actions of a workspace may do; the highest version holds, a workspace without one has the default';
COMMENT ON COLUMN policies.workspace_id IS 'Tenant';
COMMENT ON COLUMN policies.version IS 'Counts from 1; 0 stands for the default policy';
COMMENT ON COLUMN policies.policy IS 'JSON text {"rules", "default"}';
COMMENT ON COLUMN policies.created_at IS 'Database clock';

ALTER TABLE runs
    DROP CONSTRAINT runs_state_check,
    ADD CONSTRAINT runs_state_check
        CHECK (state IN ('queued', 'running', 'waiting_approval', 'succeeded', 'failed', 'denied', 'refused')),
    ADD COLUMN failure text,
    ADD COLUMN turn integer NOT NULL DEFAULT 0,
    ADD COLUMN lease_until timestamptz,
    ADD COLUMN started_at timestamptz,
    ADD COLUMN finished_at timestamptz,
    ADD CONSTRAINT failed_says_why CHECK (failure IS NULL OR state IN ('failed', 'denied'));
COMMENT ON COLUMN runs.state IS 'queued: waits for a worker; running; waiting_approval; succeeded, failed, denied: over; refused: never started';
COMMENT ON COLUMN runs.failure IS 'Why it failed or was denied';
COMMENT ON COLUMN runs.turn IS 'Counts who has worked on it; only the last one may write';
COMMENT ON COLUMN runs.lease_until IS 'Until then one worker has it, by the database''s clock';
COMMENT ON COLUMN runs.started_at IS 'When a worker first took it';
COMMENT ON COLUMN runs.finished_at IS 'When it was over';

CREATE TABLE run_actions (
    workspace_id    uuid NOT NULL,
    run_id          uuid NOT NULL,
    action_id       text NOT NULL,
    position        integer NOT NULL,
    type            text NOT NULL,
    state           text NOT NULL
        CHECK (state IN ('running', 'retrying', 'waiting_approval', 'succeeded', 'failed', 'denied')),
    untrusted       text[] NOT NULL DEFAULT '{}' CHECK (untrusted <@ '{data,control}'),
    steered_by      text CHECK (steered_by IN ('condition', 'ai.condition')),
    decision        text CHECK (decision IN ('allow', 'approve', 'deny')),
    decision_rule   integer,
    policy_version  integer,
    request         text,
    idempotency_key uuid NOT NULL,
    attempts        integer NOT NULL DEFAULT 0,
    response_status integer,
    outcome         text,
    error           text,
    retry_at        timestamptz,
    started_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    finished_at     timestamptz,
    PRIMARY KEY (workspace_id, run_id, action_id),
    FOREIGN KEY (workspace_id, run_id) REFERENCES runs (workspace_id, run_id)
);
COMMENT ON TABLE run_actions IS 'What a run has done and is about to do, one row an action';
COMMENT ON COLUMN run_actions.workspace_id IS 'Tenant';
COMMENT ON COLUMN run_actions.run_id IS 'The run';
COMMENT ON COLUMN run_actions.action_id IS 'Its id in the release';
COMMENT ON COLUMN run_actions.position IS 'Order in which the run came to its actions, from 1';
COMMENT ON COLUMN run_actions.type IS 'Type of the action';
COMMENT ON COLUMN run_actions.state IS 'running: begun, its outcome may be unknown; retrying: waits for its next attempt';
COMMENT ON COLUMN run_actions.untrusted IS 'data: what a submitter wrote fills it; control: it steered the run here';
COMMENT ON COLUMN run_actions.steered_by IS 'What asked the submitter''s text which way to go; null without control';
COMMENT ON COLUMN run_actions.decision IS 'What the policy said';
COMMENT ON COLUMN run_actions.decision_rule IS 'Which of its rules, from 1; null where its default decided';
COMMENT ON COLUMN run_actions.policy_version IS 'The policy that was asked';
COMMENT ON COLUMN run_actions.request IS 'JSON text of what is sent, without the credential; rendered once, the same for every attempt';
COMMENT ON COLUMN run_actions.idempotency_key IS 'Sent with every attempt';
COMMENT ON COLUMN run_actions.attempts IS 'How often it was begun';
COMMENT ON COLUMN run_actions.response_status IS 'HTTP status of the last answer';
COMMENT ON COLUMN run_actions.outcome IS 'Which way a condition went: then or else';
COMMENT ON COLUMN run_actions.error IS 'What went wrong the last time';
COMMENT ON COLUMN run_actions.retry_at IS 'Not before then, while retrying';
COMMENT ON COLUMN run_actions.started_at IS 'Database clock';
COMMENT ON COLUMN run_actions.finished_at IS 'Database clock; null while it is not over';

CREATE TABLE approvals (
    workspace_id uuid NOT NULL,
    approval_id  uuid NOT NULL,
    run_id       uuid NOT NULL,
    action_id    text NOT NULL,
    state        text NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'approved', 'denied', 'expired')),
    expires_at   timestamptz NOT NULL,
    decided_by   uuid REFERENCES users,
    decided_at   timestamptz,
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (workspace_id, approval_id),
    UNIQUE (workspace_id, run_id, action_id),
    FOREIGN KEY (workspace_id, run_id, action_id) REFERENCES run_actions (workspace_id, run_id, action_id)
);
COMMENT ON TABLE approvals IS 'Questions to people: may this request be sent? It stands in run_actions, exactly as it will be sent';
COMMENT ON COLUMN approvals.workspace_id IS 'Tenant';
COMMENT ON COLUMN approvals.approval_id IS 'Identity';
COMMENT ON COLUMN approvals.run_id IS 'The run that waits';
COMMENT ON COLUMN approvals.action_id IS 'The action that waits';
COMMENT ON COLUMN approvals.state IS 'Decided at most once';
COMMENT ON COLUMN approvals.expires_at IS 'After that nobody can approve it';
COMMENT ON COLUMN approvals.decided_by IS 'Who decided; null where nobody did';
COMMENT ON COLUMN approvals.decided_at IS 'Database clock';
COMMENT ON COLUMN approvals.created_at IS 'Database clock';

CREATE TABLE run_wakes (
    workspace_id uuid NOT NULL,
    run_id       uuid NOT NULL,
    due_at       timestamptz NOT NULL,
    PRIMARY KEY (workspace_id, run_id),
    FOREIGN KEY (workspace_id, run_id) REFERENCES runs (workspace_id, run_id)
);
CREATE INDEX run_wakes_by_time ON run_wakes (due_at);
COMMENT ON TABLE run_wakes IS 'Outbox: runs that somebody has to look at, and when. At most one row a run';
COMMENT ON COLUMN run_wakes.workspace_id IS 'Tenant';
COMMENT ON COLUMN run_wakes.run_id IS 'The run';
COMMENT ON COLUMN run_wakes.due_at IS 'Not before then; while a worker has the run, the end of its lease';

-- Runs that were queued before there was an executor.
INSERT INTO run_wakes SELECT workspace_id, run_id, now() FROM runs WHERE state = 'queued';

GRANT SELECT (workspace_id, account_id, user_id, name, base_url, header_name, credential_sealed, disconnected_at)
    ON connected_accounts TO letterbox_worker;
GRANT SELECT ON policies TO letterbox_worker;
GRANT SELECT (workspace_id, workflow_id, release_id, form, actions) ON releases TO letterbox_worker;
GRANT SELECT, UPDATE (state, failure, turn, lease_until, started_at, finished_at) ON runs TO letterbox_worker;
GRANT SELECT, INSERT, UPDATE ON run_actions TO letterbox_worker;
GRANT SELECT (workspace_id, approval_id, run_id, action_id, state, expires_at), INSERT, UPDATE (state, decided_at)
    ON approvals TO letterbox_worker;
GRANT SELECT, INSERT, UPDATE, DELETE ON run_wakes TO letterbox_worker;
GRANT SELECT, INSERT, UPDATE, DELETE ON connected_accounts, policies, run_actions, approvals, run_wakes
    TO letterbox_operator;
