-- Runs act. A run walks through the actions of its release; before and after each, what happens is
-- recorded here, so that another worker can go on from the record at any moment. Whoever works on a
-- run holds its lease and counts a turn; only the holder of the last turn may write. What shall be
-- done later, or by somebody else, stands in run_wakes, in the transaction that makes it necessary;
-- a relay hands it to RabbitMQ when it is due.

-- Where functions with rights of their own search.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

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
    CONSTRAINT disconnecting_destroys_the_credential
        CHECK ((disconnected_at IS NULL) = (credential_sealed IS NOT NULL))
);
COMMENT ON TABLE connected_accounts IS
    'What a user''s workflows may call, and with which credential';
COMMENT ON COLUMN connected_accounts.workspace_id IS 'Tenant';
COMMENT ON COLUMN connected_accounts.account_id IS
    'Identity, also when another account takes the name later';
COMMENT ON COLUMN connected_accounts.user_id IS 'Whose it is; nobody else''s workflows use it';
COMMENT ON COLUMN connected_accounts.name IS 'By which actions know it';
COMMENT ON COLUMN connected_accounts.base_url IS
    'Scheme, host, port and path that every request begins with';
COMMENT ON COLUMN connected_accounts.header_name IS 'The header that carries the credential';
COMMENT ON COLUMN connected_accounts.credential_sealed IS
    'Value of that header, sealed to this row; destroyed when disconnected';
COMMENT ON COLUMN connected_accounts.created_at IS 'Database clock';
COMMENT ON COLUMN connected_accounts.disconnected_at IS 'Null while connected';
CREATE UNIQUE INDEX connected_accounts_by_name ON connected_accounts (workspace_id, user_id, name)
    WHERE disconnected_at IS NULL;

CREATE TABLE policies (
    workspace_id uuid NOT NULL REFERENCES workspaces,
    version      integer NOT NULL CHECK (version > 0),
    policy       text NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (workspace_id, version)
);
COMMENT ON TABLE policies IS
    'What actions of a workspace may do; the highest version holds, a workspace without one has '
    'the default';
COMMENT ON COLUMN policies.workspace_id IS 'Tenant';
COMMENT ON COLUMN policies.version IS 'Counts from 1; 0 stands for the default policy';
COMMENT ON COLUMN policies.policy IS 'JSON text {"rules", "default"}';
COMMENT ON COLUMN policies.created_at IS 'Database clock';
CREATE TRIGGER policies_are_immutable BEFORE UPDATE ON policies
    FOR EACH ROW EXECUTE FUNCTION refuse_change();

CREATE TABLE runs (
    workspace_id   uuid NOT NULL,
    run_id         uuid NOT NULL,
    workflow_id    uuid NOT NULL,
    release_id     uuid NOT NULL,
    run_as         uuid NOT NULL REFERENCES users,
    state          text NOT NULL
        CHECK (state IN ('queued', 'running', 'waiting_approval', 'succeeded', 'failed', 'denied',
        'cancelled', 'refused')),
    refused_reason text
        CHECK (refused_reason IN ('owner_cannot_run', 'workflow_unavailable',
        'allowance_exhausted', 'storage_exhausted')),
    input          bytea,
    input_trust    text NOT NULL DEFAULT 'untrusted' CHECK (input_trust = 'untrusted'),
    received_at    timestamptz NOT NULL,
    created_at     timestamptz NOT NULL DEFAULT now(),
    failure        text,
    turn           integer NOT NULL DEFAULT 0,
    lease_until    timestamptz,
    started_at     timestamptz,
    finished_at    timestamptz,
    idle_turns     integer NOT NULL DEFAULT 0,
    cancel_reason  text,
    failing        text,
    found_by       uuid[],
    request_id     text,
    traceparent    text,
    PRIMARY KEY (workspace_id, run_id),
    CONSTRAINT active_run_has_its_input
        CHECK (input IS NOT NULL OR state IN ('succeeded', 'failed', 'denied', 'cancelled',
        'refused')),
    CONSTRAINT failed_says_why
        CHECK (failure IS NULL OR state IN ('failed', 'denied', 'cancelled')),
    CONSTRAINT refused_says_why CHECK ((state = 'refused') = (refused_reason IS NOT NULL)),
    CONSTRAINT request_ids_are_short CHECK (length(request_id) BETWEEN 1 AND 64),
    CONSTRAINT traceparents_are_short CHECK (length(traceparent) = 55),
    FOREIGN KEY (workspace_id, workflow_id, release_id)
        REFERENCES releases (workspace_id, workflow_id, release_id)
) WITH (fillfactor = 80);
COMMENT ON TABLE runs IS
    'One production run of a release, started or refused; one for each submission';
COMMENT ON COLUMN runs.workspace_id IS 'Tenant';
COMMENT ON COLUMN runs.run_id IS 'Id of the submission (UUIDv7: sorts by time of receipt)';
COMMENT ON COLUMN runs.workflow_id IS 'The workflow that runs';
COMMENT ON COLUMN runs.release_id IS 'The release that the submission was validated against';
COMMENT ON COLUMN runs.run_as IS 'The workflow''s owner when the run started';
COMMENT ON COLUMN runs.state IS
    'queued: waits for a worker; running; waiting_approval; succeeded, failed, denied, '
    'cancelled: over; refused: never started';
COMMENT ON COLUMN runs.refused_reason IS 'Why it was refused; null when it was not';
COMMENT ON COLUMN runs.input IS
    'JSON text of what was submitted, validated; null for a refused run, and when it was '
    'forgotten';
COMMENT ON COLUMN runs.input_trust IS 'What a submitter wrote is never trusted';
COMMENT ON COLUMN runs.received_at IS 'When the gateway received it, by the gateway''s clock';
COMMENT ON COLUMN runs.created_at IS 'When the worker recorded it, by the database''s clock';
COMMENT ON COLUMN runs.failure IS 'Why it failed, was denied or was cancelled';
COMMENT ON COLUMN runs.turn IS 'Counts who has worked on it; only the last one may write';
COMMENT ON COLUMN runs.lease_until IS 'Until then one worker has it, by the database''s clock';
COMMENT ON COLUMN runs.started_at IS 'When a worker first took it';
COMMENT ON COLUMN runs.finished_at IS 'When it was over';
COMMENT ON COLUMN runs.idle_turns IS
    'Holders in a row that have recorded nothing but the beginning of an attempt';
COMMENT ON COLUMN runs.cancel_reason IS
    'Why it shall be cancelled; null where nobody has ordered it';
COMMENT ON COLUMN runs.failing IS 'Why it fails, once what follows a failure has begun';
COMMENT ON COLUMN runs.found_by IS
    'Ids that stand for the values of its input; null where it is not searched';
COMMENT ON COLUMN runs.request_id IS
    'The X-Request-Id that its submitter was answered; null where none is known';
COMMENT ON COLUMN runs.traceparent IS
    'W3C trace context of its submission; null where nobody follows its trace';
CREATE INDEX runs_by_end ON runs (finished_at, run_id) WHERE finished_at IS NOT NULL;
CREATE INDEX runs_by_value ON runs USING gin (found_by) WHERE found_by IS NOT NULL;
CREATE INDEX runs_by_workflow ON runs (workspace_id, workflow_id, run_id);
CREATE INDEX runs_that_went_wrong ON runs (workspace_id, run_id) WHERE failure IS NOT NULL
    OR refused_reason IS NOT NULL;
CREATE INDEX runs_under_way ON runs (workspace_id, run_id) WHERE finished_at IS NULL;

CREATE TABLE run_actions (
    workspace_id    uuid NOT NULL,
    run_id          uuid NOT NULL,
    action_id       text NOT NULL,
    position        integer NOT NULL,
    type            text NOT NULL,
    state           text NOT NULL
        CHECK (state IN ('running', 'retrying', 'waiting', 'waiting_approval', 'succeeded',
        'failed', 'denied', 'cancelled')),
    untrusted       text[] NOT NULL DEFAULT '{}' CHECK (untrusted <@ '{data,control,account}'),
    steered_by      text[] NOT NULL
        CHECK (steered_by <@ '{condition,ai.condition,ai.agent,outcome}'),
    decision        text CHECK (decision IN ('allow', 'approve', 'deny')),
    decision_rule   integer,
    policy_version  integer,
    request         text,
    idempotency_key uuid NOT NULL,
    attempts        integer NOT NULL DEFAULT 0,
    response_status integer,
    branch          text CHECK (branch IN ('then', 'else')),
    error           text,
    retry_at        timestamptz,
    started_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    finished_at     timestamptz,
    unanswered      integer NOT NULL DEFAULT 0 CHECK (unanswered >= 0),
    answer_sealed   bytea,
    part_of         text,
    is_told         boolean NOT NULL DEFAULT false,
    PRIMARY KEY (workspace_id, run_id, action_id),
    CONSTRAINT only_parts_are_told CHECK (part_of IS NOT NULL OR (NOT is_told)),
    FOREIGN KEY (workspace_id, run_id) REFERENCES runs (workspace_id, run_id)
) WITH (fillfactor = 60);
COMMENT ON TABLE run_actions IS 'What a run has done and is about to do, one row an action';
COMMENT ON COLUMN run_actions.workspace_id IS 'Tenant';
COMMENT ON COLUMN run_actions.run_id IS 'The run';
COMMENT ON COLUMN run_actions.action_id IS 'Its id in the release';
COMMENT ON COLUMN run_actions.position IS 'Order in which the run came to its actions, from 1';
COMMENT ON COLUMN run_actions.type IS 'Type of the action';
COMMENT ON COLUMN run_actions.state IS
    'running: begun, its outcome may be unknown; retrying: for its next attempt; waiting: for '
    'its time';
COMMENT ON COLUMN run_actions.untrusted IS
    'data: what a submitter wrote fills it; account: what an account answered does; control: '
    'one of them steered the run here';
COMMENT ON COLUMN run_actions.steered_by IS
    'What let the submitter''s text decide that it runs; empty without control';
COMMENT ON COLUMN run_actions.decision IS 'What the policy said';
COMMENT ON COLUMN run_actions.decision_rule IS
    'Which of its rules, from 1; null where its default decided';
COMMENT ON COLUMN run_actions.policy_version IS 'The policy that was asked';
COMMENT ON COLUMN run_actions.request IS
    'JSON text of what is sent, without the credential; rendered once, the same for every '
    'attempt';
COMMENT ON COLUMN run_actions.idempotency_key IS 'Sent with every attempt';
COMMENT ON COLUMN run_actions.attempts IS
    'Attempts that were answered, or are known to have failed';
COMMENT ON COLUMN run_actions.response_status IS 'HTTP status of the last answer';
COMMENT ON COLUMN run_actions.branch IS 'Which way a condition went';
COMMENT ON COLUMN run_actions.error IS 'What went wrong the last time';
COMMENT ON COLUMN run_actions.retry_at IS 'Not before then, while retrying';
COMMENT ON COLUMN run_actions.started_at IS 'Database clock';
COMMENT ON COLUMN run_actions.finished_at IS 'Database clock; null while it is not over';
COMMENT ON COLUMN run_actions.unanswered IS
    'Attempts under its key that may have been done without an answer having come';
COMMENT ON COLUMN run_actions.answer_sealed IS
    'Body of the last answer, sealed to this row: where later actions may use it, and the '
    'beginning of it where the action failed';
COMMENT ON COLUMN run_actions.part_of IS
    'The agent whose question or call it is; null for actions of the release';
COMMENT ON COLUMN run_actions.is_told IS
    'It failed or was denied, and its agent was told so: the run goes on';
CREATE INDEX run_actions_answered ON run_actions (workspace_id, run_id, action_id)
    WHERE answer_sealed IS NOT NULL;

CREATE FUNCTION keep_request() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- Only the functions that forget and erase work with the rights of the table's owner.
    IF NEW.request IS NULL AND pg_has_role(current_user, (SELECT relowner FROM pg_class
        WHERE oid = TG_RELID), 'MEMBER') THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'the request of an action is recorded once'
        USING ERRCODE = 'restrict_violation';
END
$$;
COMMENT ON FUNCTION keep_request IS 'A recorded request can be forgotten, not replaced';
CREATE TRIGGER keep_request BEFORE UPDATE OF request ON run_actions
    FOR EACH ROW WHEN (OLD.request IS NOT NULL AND NEW.request IS DISTINCT
        FROM OLD.request) EXECUTE FUNCTION keep_request();

-- Answers go with what they are an answer to, and when nothing can need them any more. A run that
-- failed may be retried.

CREATE FUNCTION drop_answer() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.answer_sealed := NULL;
    RETURN NEW;
END
$$;
COMMENT ON FUNCTION drop_answer IS 'Of a request that was forgotten no answer is kept';
CREATE TRIGGER drop_answer BEFORE UPDATE OF request ON run_actions
    FOR EACH ROW WHEN (NEW.request IS NULL AND OLD.request IS NOT NULL)
        EXECUTE FUNCTION drop_answer();

CREATE FUNCTION drop_answers()
    RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE run_actions SET answer_sealed = NULL
    WHERE workspace_id = NEW.workspace_id AND run_id = NEW.run_id AND answer_sealed IS NOT NULL
      AND (NEW.input IS NULL OR NOT EXISTS (
        SELECT FROM workspaces WHERE workspace_id = NEW.workspace_id AND keep_answers));
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION drop_answers IS 'Drops the answers of a run whose input was forgotten';
REVOKE EXECUTE ON FUNCTION drop_answers FROM PUBLIC;
CREATE TRIGGER drop_answers_of_forgotten AFTER UPDATE OF input ON runs
    FOR EACH ROW WHEN (NEW.input IS NULL AND OLD.input IS NOT NULL) EXECUTE FUNCTION drop_answers();

CREATE FUNCTION end_agents()
    RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE run_actions SET state = NEW.state, finished_at = clock_timestamp()
    WHERE workspace_id = NEW.workspace_id AND run_id = NEW.run_id AND type = 'ai.agent'
        AND part_of IS NULL
      AND state IN ('running', 'retrying');
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION end_agents IS 'Ends the agents that are under way when their run ends';
REVOKE EXECUTE ON FUNCTION end_agents FROM PUBLIC;
CREATE TRIGGER end_agents AFTER UPDATE OF state ON runs
    FOR EACH ROW WHEN (NEW.state IN ('failed', 'denied', 'cancelled')
        AND OLD.state <> NEW.state) EXECUTE FUNCTION end_agents();

CREATE TABLE approvals (
    workspace_id uuid NOT NULL,
    approval_id  uuid NOT NULL,
    run_id       uuid NOT NULL,
    action_id    text NOT NULL,
    state        text NOT NULL DEFAULT 'pending'
        CHECK (state IN ('pending', 'approved', 'denied', 'expired', 'withdrawn')),
    expires_at   timestamptz NOT NULL,
    decided_by   uuid REFERENCES users,
    decided_at   timestamptz,
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    workflow_id  uuid NOT NULL,
    PRIMARY KEY (workspace_id, approval_id),
    UNIQUE (workspace_id, run_id, action_id),
    FOREIGN KEY (workspace_id, run_id, action_id)
        REFERENCES run_actions (workspace_id, run_id, action_id)
);
COMMENT ON TABLE approvals IS
    'Questions to people: may this request be sent? It stands in run_actions, exactly as it '
    'will be sent';
COMMENT ON COLUMN approvals.workspace_id IS 'Tenant';
COMMENT ON COLUMN approvals.approval_id IS 'Identity';
COMMENT ON COLUMN approvals.run_id IS 'The run that waits';
COMMENT ON COLUMN approvals.action_id IS 'The action that waits';
COMMENT ON COLUMN approvals.state IS 'Decided at most once';
COMMENT ON COLUMN approvals.expires_at IS 'After that nobody can approve it';
COMMENT ON COLUMN approvals.decided_by IS 'Who decided; null where nobody did';
COMMENT ON COLUMN approvals.decided_at IS 'Database clock';
COMMENT ON COLUMN approvals.created_at IS 'Database clock';
COMMENT ON COLUMN approvals.workflow_id IS 'The workflow of the run';
CREATE INDEX approvals_by_age ON approvals (created_at) WHERE state = 'pending';
CREATE INDEX approvals_pending ON approvals (workspace_id, workflow_id, created_at)
    WHERE state = 'pending';

CREATE FUNCTION worker_only_asks() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT pg_has_role(current_user, 'letterbox_operator', 'MEMBER') AND (
        (TG_OP = 'INSERT' AND NEW.state <> 'pending')
        OR (TG_OP = 'UPDATE' AND NEW.state <> OLD.state AND NEW.state NOT IN ('expired',
            'withdrawn')
            AND NOT (OLD.state IN ('withdrawn', 'approved') AND NEW.state = 'pending'))
    ) THEN
        RAISE EXCEPTION 'a worker asks for approvals and does not give them'
            USING ERRCODE = 'insufficient_privilege';
    END IF;
    IF TG_OP = 'UPDATE' AND NEW.state = 'pending' AND OLD.state <> 'pending' THEN
        NEW.decided_by := NULL;
        NEW.decided_at := NULL;
        NEW.created_at := clock_timestamp();
    END IF;
    RETURN NEW;
END
$$;
COMMENT ON FUNCTION worker_only_asks IS 'People approve and deny';
CREATE TRIGGER worker_only_asks BEFORE INSERT OR UPDATE ON approvals
    FOR EACH ROW EXECUTE FUNCTION worker_only_asks();

CREATE FUNCTION name_workflow() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    SELECT workflow_id INTO NEW.workflow_id FROM runs WHERE workspace_id = NEW.workspace_id
        AND run_id = NEW.run_id;
    RETURN NEW;
END
$$;
COMMENT ON FUNCTION name_workflow IS 'A question is about the workflow of its run';
CREATE TRIGGER name_workflow BEFORE INSERT ON approvals
    FOR EACH ROW EXECUTE FUNCTION name_workflow();

CREATE FUNCTION needs_another(tenant uuid) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT coalesce((SELECT policy::json ->> 'approve_by' = 'another' FROM policies
                     WHERE workspace_id = tenant ORDER BY version DESC LIMIT 1), false)
$$;
COMMENT ON FUNCTION needs_another IS
    'Whether the policy that holds wants another person to approve than the one as whom a run '
    'acts';

CREATE FUNCTION approval_stands(tenant uuid, decider uuid, acting uuid)
    RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT FROM members WHERE workspace_id = tenant AND user_id = decider
                   AND role IN ('owner', 'editor') AND deactivated_at IS NULL)
       AND (decider <> acting OR NOT needs_another(tenant))
$$;
COMMENT ON FUNCTION approval_stands IS
    'Whether what this person has approved may be sent for the user as whom a run acts';

-- What holds: one workspace, or all.

CREATE TABLE all_workspaces (
    one     boolean PRIMARY KEY DEFAULT true CHECK (one),
    held_at timestamptz
);
COMMENT ON TABLE all_workspaces IS 'What holds for all workspaces';
COMMENT ON COLUMN all_workspaces.one IS 'There is one row';
COMMENT ON COLUMN all_workspaces.held_at IS
    'Since when no run begins an action; null while they do';
INSERT INTO all_workspaces DEFAULT VALUES;

CREATE VIEW held_workspaces AS
SELECT workspace_id FROM workspaces
WHERE held_at IS NOT NULL OR EXISTS (SELECT FROM all_workspaces WHERE held_at IS NOT NULL);
COMMENT ON VIEW held_workspaces IS 'The workspaces whose runs begin no action';

CREATE FUNCTION question_clock(tenant uuid) RETURNS timestamptz LANGUAGE sql VOLATILE AS $$
    SELECT least(clock_timestamp(), (SELECT held_at FROM all_workspaces),
                 (SELECT held_at FROM workspaces WHERE workspace_id = tenant))
$$;
COMMENT ON FUNCTION question_clock IS
    'The time that counts for questions of a workspace: it stands still while that is held';

CREATE TABLE run_wakes (
    workspace_id uuid NOT NULL,
    run_id       uuid NOT NULL,
    due_at       timestamptz NOT NULL,
    state        text NOT NULL DEFAULT 'scheduled'
        CHECK (state IN ('scheduled', 'ready', 'handed_over')),
    account_id   uuid NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000',
    handovers    integer NOT NULL DEFAULT 0 CHECK (handovers >= 0),
    PRIMARY KEY (workspace_id, run_id),
    FOREIGN KEY (workspace_id, run_id) REFERENCES runs (workspace_id, run_id)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
COMMENT ON TABLE run_wakes IS
    'Outbox: runs that somebody has to look at, and when. At most one row a run';
COMMENT ON COLUMN run_wakes.workspace_id IS 'Tenant';
COMMENT ON COLUMN run_wakes.run_id IS 'The run';
COMMENT ON COLUMN run_wakes.due_at IS
    'When it is due; once handed over, when it is due again: a worker that has the run sets the '
    'end of its lease';
COMMENT ON COLUMN run_wakes.state IS
    'scheduled: for its time; ready: waits for its turn; handed_over: the broker or a worker '
    'has it';
COMMENT ON COLUMN run_wakes.account_id IS
    'The account that the run calls next, or is calling; nil where that is not known';
COMMENT ON COLUMN run_wakes.handovers IS
    'How often it was handed over in a row without a worker taking the run';
CREATE INDEX run_wakes_by_time ON run_wakes (due_at) WHERE state <> 'ready';
CREATE INDEX run_wakes_handed_over ON run_wakes (workspace_id) WHERE state = 'handed_over';
CREATE INDEX run_wakes_ready ON run_wakes (workspace_id, account_id, due_at) WHERE state = 'ready';

CREATE TABLE workers (
    worker_id uuid PRIMARY KEY,
    name      text NOT NULL,
    places    integer NOT NULL CHECK (places > 0),
    seen_at   timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE workers IS
    'The workers that are alive; what is handed over is no more than they have places for';
COMMENT ON COLUMN workers.worker_id IS 'Made anew at each start';
COMMENT ON COLUMN workers.name IS 'As the database and the broker know its connections';
COMMENT ON COLUMN workers.places IS 'Runs that it executes at once';
COMMENT ON COLUMN workers.seen_at IS 'When it last said so';

CREATE TABLE relay_lease (
    one       boolean PRIMARY KEY DEFAULT true CHECK (one),
    worker_id uuid,
    until_at  timestamptz NOT NULL DEFAULT '-infinity'
);
COMMENT ON TABLE relay_lease IS
    'Which worker''s relay hands over at present: it remembers what is in flight';
COMMENT ON COLUMN relay_lease.one IS 'There is one row';
COMMENT ON COLUMN relay_lease.worker_id IS 'Whose relay it is; null before the first';
COMMENT ON COLUMN relay_lease.until_at IS 'Until then no other relay takes its place';
INSERT INTO relay_lease DEFAULT VALUES;

CREATE VIEW ready_lanes AS
WITH RECURSIVE lane AS (
    (SELECT workspace_id, account_id, due_at FROM run_wakes WHERE state = 'ready'
     ORDER BY workspace_id, account_id, due_at LIMIT 1)
    UNION ALL
    SELECT next.* FROM lane CROSS JOIN LATERAL (
        SELECT workspace_id, account_id, due_at FROM run_wakes
        WHERE state = 'ready' AND (workspace_id, account_id) > (lane.workspace_id, lane.account_id)
        ORDER BY workspace_id, account_id, due_at LIMIT 1) AS next
)
SELECT workspace_id, account_id, due_at FROM lane;
COMMENT ON VIEW ready_lanes IS
    'Every lane in which wakes are ready. Goes from lane to lane by the index: how many there '
    'are in each costs nothing';
COMMENT ON COLUMN ready_lanes.account_id IS
    'The account that its runs wait for; zeros where it is not known yet';
COMMENT ON COLUMN ready_lanes.due_at IS 'Since when the first of them is due';

CREATE TABLE run_usage (
    workspace_id uuid NOT NULL REFERENCES workspaces,
    month        date NOT NULL CHECK (EXTRACT(day FROM month) = 1),
    started      integer NOT NULL DEFAULT 0 CHECK (started >= 0),
    PRIMARY KEY (workspace_id, month)
);
COMMENT ON TABLE run_usage IS 'How much of its allowance a workspace has used';
COMMENT ON COLUMN run_usage.workspace_id IS 'Tenant';
COMMENT ON COLUMN run_usage.month IS 'First day of a calendar month, UTC';
COMMENT ON COLUMN run_usage.started IS 'Runs that have started in it; refused ones do not count';

GRANT SELECT (workspace_id, account_id, user_id, name, base_url, header_name, credential_sealed,
    disconnected_at) ON connected_accounts TO letterbox_worker;
GRANT SELECT, INSERT, UPDATE ON connected_accounts TO letterbox_operator;
GRANT SELECT ON runs, run_usage TO letterbox_operator;
GRANT SELECT ON policies, all_workspaces, held_workspaces, ready_lanes TO letterbox_worker;
GRANT SELECT ON held_workspaces TO letterbox_operator;
GRANT SELECT, INSERT ON policies TO letterbox_operator;
GRANT SELECT, INSERT, UPDATE (state, failure, turn, lease_until, started_at, finished_at,
    idle_turns, failing) ON runs TO letterbox_worker;
GRANT SELECT, INSERT, UPDATE ON run_actions, run_usage TO letterbox_worker;
GRANT SELECT, UPDATE (answer_sealed) ON run_actions TO letterbox_operator;
GRANT INSERT, SELECT (workspace_id, approval_id, run_id, action_id, state, expires_at, decided_by,
    decided_at, created_at), UPDATE (state, expires_at, decided_at)
    ON approvals TO letterbox_worker;
GRANT SELECT, UPDATE (state, decided_by, decided_at) ON approvals TO letterbox_operator;
GRANT SELECT, UPDATE (held_at) ON all_workspaces TO letterbox_operator;
GRANT SELECT, INSERT, UPDATE, DELETE ON run_wakes TO letterbox_worker;
GRANT SELECT, INSERT, UPDATE ON run_wakes TO letterbox_operator;
GRANT SELECT, INSERT, UPDATE, DELETE ON workers TO letterbox_worker;
GRANT SELECT ON workers, relay_lease TO letterbox_operator;
GRANT SELECT, UPDATE (worker_id, until_at) ON relay_lease TO letterbox_worker;
