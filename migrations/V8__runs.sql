-- Runs. A run executes the actions of its release; the progress is recorded here before and after
-- each, so that another worker can continue from the record at any time. A run that is not over has
-- a row in active_runs: when it is due, and whose turn it is. Workers take due runs from there.
-- Each time one is taken its turn has a new token, and only the worker of the last turn decides
-- what becomes of it. The answer to an attempt counts if that attempt is the latest, whoever has
-- the run meanwhile.

CREATE TABLE connected_accounts (
    workspace_id      uuid NOT NULL REFERENCES workspaces,
    account_id        uuid NOT NULL,
    user_id           uuid NOT NULL REFERENCES users,
    name              text NOT NULL CHECK (char_length(name) BETWEEN 1 AND 100),
    base_url          text NOT NULL CHECK (char_length(base_url) <= 2000),
    header_name       text NOT NULL CHECK (char_length(header_name) <= 200),
    sender            text CHECK (char_length(sender) <= 300),
    credential_sealed bytea CHECK (octet_length(credential_sealed) <= 32768),
    created_at        timestamptz NOT NULL DEFAULT now(),
    disconnected_at   timestamptz,
    has_certificate   boolean NOT NULL DEFAULT false,
    is_refused        boolean NOT NULL DEFAULT false,
    waits_for         text CHECK (waits_for IN ('token', 'owner')),
    PRIMARY KEY (workspace_id, account_id),
    UNIQUE (workspace_id, account_id, user_id),
    CONSTRAINT disconnecting_destroys_the_credential
        CHECK (disconnected_at IS NULL OR credential_sealed IS NULL),
    CONSTRAINT only_mail_servers_have_a_sender
        CHECK ((sender IS NOT NULL) = (base_url ~ '^smtps?:')),
    CONSTRAINT without_a_credential_it_waits CHECK (credential_sealed IS NOT NULL
        OR disconnected_at IS NOT NULL OR waits_for IS NOT NULL)
);
COMMENT ON TABLE connected_accounts IS
    'An account that a user''s workflows may call, with its credential';
COMMENT ON COLUMN connected_accounts.account_id IS
    'Identity, even if another account takes the name later';
COMMENT ON COLUMN connected_accounts.user_id IS 'The owner; only this user''s workflows use it';
COMMENT ON COLUMN connected_accounts.base_url IS
    'Scheme, host, port and beginning of the path of every request';
COMMENT ON COLUMN connected_accounts.header_name IS 'The header that carries the credential';
COMMENT ON COLUMN connected_accounts.sender IS
    'From whom its e-mail is; null if it sends none';
COMMENT ON COLUMN connected_accounts.credential_sealed IS
    'Value of that header, sealed to this row; destroyed when disconnected';
COMMENT ON COLUMN connected_accounts.has_certificate IS
    'Whether a client certificate is sealed with it, which another credential must have, too';
COMMENT ON COLUMN connected_accounts.disconnected_at IS 'Null while connected';
COMMENT ON COLUMN connected_accounts.is_refused IS
    'Whether it has answered 401 since it got its credential, or refused a token for its grant';
COMMENT ON COLUMN connected_accounts.waits_for IS
    'What it waits for, and with it every run that is to call it: token: a worker gets one for its '
    'grant; owner: connects it again. Null if it can be called';
CREATE UNIQUE INDEX connected_accounts_by_name ON connected_accounts (workspace_id, user_id, name)
    WHERE disconnected_at IS NULL;
CREATE INDEX connected_accounts_that_wait ON connected_accounts (workspace_id, account_id)
    WHERE waits_for IS NOT NULL AND disconnected_at IS NULL;

CREATE VIEW waiting_accounts AS
SELECT workspace_id, account_id FROM connected_accounts
WHERE waits_for IS NOT NULL AND disconnected_at IS NULL;
COMMENT ON VIEW waiting_accounts IS
    'The accounts that wait for a token or for their owner, and that no run calls meanwhile';

CREATE TABLE policies (
    workspace_id uuid NOT NULL REFERENCES workspaces,
    version      integer NOT NULL CHECK (version > 0),
    policy       text NOT NULL CHECK (octet_length(policy) <= 262144),
    approve_by   text NOT NULL
        GENERATED ALWAYS AS (coalesce(policy::json ->> 'approve_by', 'anyone')) STORED
        CHECK (approve_by IN ('anyone', 'person', 'another')),
    created_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (workspace_id, version)
);
COMMENT ON TABLE policies IS
    'The policies of a workspace; the highest version applies, and without one the default policy';
COMMENT ON COLUMN policies.version IS 'Counts from 1; 0 stands for the default policy';
COMMENT ON COLUMN policies.policy IS 'JSON text {"rules", "default"}';
COMMENT ON COLUMN policies.approve_by IS
    'Who may approve, as the policy says; taken out when it is stored: what PostgreSQL can''t '
    'decode (U+0000) must fail then, and not when somebody answers';
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
    started_at     timestamptz,
    finished_at    timestamptz,
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
COMMENT ON COLUMN runs.run_id IS 'Id of the submission (UUIDv7: sorts by time of receipt)';
COMMENT ON COLUMN runs.release_id IS 'The release that the submission was validated against';
COMMENT ON COLUMN runs.run_as IS 'The workflow''s owner when the run started';
COMMENT ON COLUMN runs.state IS
    'queued: not over, and taken by a worker or not (see visible_runs); running: continues after '
    'an approval; waiting_approval; succeeded, failed, denied, cancelled: finished; refused: never '
    'started';
COMMENT ON COLUMN runs.refused_reason IS 'Why it was refused; null when it was not';
COMMENT ON COLUMN runs.input IS
    'JSON text of the submission, validated; null for a refused run, and after it was deleted';
COMMENT ON COLUMN runs.input_trust IS 'Submitted text is never trusted';
COMMENT ON COLUMN runs.received_at IS 'When the gateway received it, by the gateway''s clock';
COMMENT ON COLUMN runs.created_at IS 'When the worker recorded it, by the database''s clock';
COMMENT ON COLUMN runs.started_at IS 'When a worker first took it; written when it ends';
COMMENT ON COLUMN runs.cancel_reason IS
    'Why it is to be cancelled; null if its cancellation was not requested';
COMMENT ON COLUMN runs.failing IS 'Why it fails, once the actions that follow a failure have begun';
COMMENT ON COLUMN runs.found_by IS
    'Lookup ids of the values of its input; null if it can''t be searched';
COMMENT ON COLUMN runs.request_id IS
    'The X-Request-Id of the answer to the submitter; null if unknown';
COMMENT ON COLUMN runs.traceparent IS
    'W3C trace context of its submission; null if it is not traced';
CREATE INDEX runs_by_end ON runs (finished_at, run_id) WHERE finished_at IS NOT NULL;
CREATE INDEX runs_by_value ON runs USING gin (found_by) WHERE found_by IS NOT NULL;
-- Not by workspace: a plan that was made while the table was small could take it for the key.
CREATE INDEX runs_by_workflow ON runs (workflow_id, run_id);
CREATE INDEX runs_that_went_wrong ON runs (workspace_id, run_id) WHERE failure IS NOT NULL
    OR refused_reason IS NOT NULL;

CREATE TABLE run_actions (
    workspace_id    uuid NOT NULL,
    run_id          uuid NOT NULL,
    action_id       text NOT NULL,
    position        integer NOT NULL,
    type            text NOT NULL,
    state           text NOT NULL
        CHECK (state IN ('running', 'retrying', 'waiting', 'waiting_approval', 'succeeded',
        'failed', 'denied', 'cancelled')),
    untrusted       text[] NOT NULL DEFAULT '{}' 
                    CHECK (untrusted <@ '{data,control,account,recipient}'),
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
    failed_with     text,
    part_of         text,
    is_told         boolean NOT NULL DEFAULT false,
    begun           integer NOT NULL DEFAULT 0,
    answered        integer NOT NULL DEFAULT 0 CHECK (answered <= begun),
    PRIMARY KEY (workspace_id, run_id, action_id),
    CONSTRAINT only_parts_are_told CHECK (part_of IS NOT NULL OR (NOT is_told)),
    FOREIGN KEY (workspace_id, run_id) REFERENCES runs (workspace_id, run_id)
) WITH (fillfactor = 60);
COMMENT ON TABLE run_actions IS
    'The executed actions of a run and its current one, one row per action';
COMMENT ON COLUMN run_actions.action_id IS 'Its id in the release';
COMMENT ON COLUMN run_actions.position IS 'Order in which the run reached its actions, from 1';
COMMENT ON COLUMN run_actions.state IS
    'running: begun, its outcome may be unknown; retrying: waits for its next attempt, or for an '
    'order to retry its run; waiting: waits for its time';
COMMENT ON COLUMN run_actions.untrusted IS
    'data: text from a submitter is part of it; account: text from an account''s answer is; '
    'control: one of them steered the run here';
COMMENT ON COLUMN run_actions.steered_by IS
    'How untrusted text had a part in the decision to run it; empty without control';
COMMENT ON COLUMN run_actions.decision_rule IS
    'The rule that decided, from 1; null if the default decided';
COMMENT ON COLUMN run_actions.policy_version IS 'The version of the policy that decided';
COMMENT ON COLUMN run_actions.request IS
    'JSON text of the request, without the credential; rendered once, the same for every attempt';
COMMENT ON COLUMN run_actions.idempotency_key IS 'Sent with every attempt';
COMMENT ON COLUMN run_actions.attempts IS
    'Attempts that were answered, or are known to have failed';
COMMENT ON COLUMN run_actions.response_status IS 'HTTP status of the last answer';
COMMENT ON COLUMN run_actions.retry_at IS 'Time of the next attempt, while retrying';
COMMENT ON COLUMN run_actions.unanswered IS
    'Attempts under its key that may have taken effect without an answer';
COMMENT ON COLUMN run_actions.answer_sealed IS
    'Body of the last answer, sealed to this row, if later actions may use it';
COMMENT ON COLUMN run_actions.failed_with IS
    'JSON text {"type", "body"}: the beginning of the last answer, if it was a failure; not sealed';
COMMENT ON COLUMN run_actions.part_of IS
    'The agent of which it is a question or call; null for actions of the release';
COMMENT ON COLUMN run_actions.is_told IS
    'It failed or was denied, and its agent was told so: the run continues';
COMMENT ON COLUMN run_actions.begun IS
    'The number of the latest attempt that has begun; never reset';
COMMENT ON COLUMN run_actions.answered IS
    'The number of the latest attempt whose end is recorded: less than begun while its outcome is '
    'unknown';
CREATE INDEX run_actions_answered ON run_actions (workspace_id, run_id, action_id)
    WHERE answer_sealed IS NOT NULL;

CREATE FUNCTION keep_request() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    -- Only the functions of retention and erasure have the rights of the table's owner.
    IF NEW.request IS NULL AND pg_has_role(current_user, (SELECT relowner FROM pg_class
        WHERE oid = TG_RELID), 'MEMBER') THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'the request of an action is recorded once'
        USING ERRCODE = 'restrict_violation';
END
$$;
COMMENT ON FUNCTION keep_request IS 'A recorded request can be deleted, not replaced';
CREATE TRIGGER keep_request BEFORE UPDATE OF request ON run_actions
    FOR EACH ROW WHEN (OLD.request IS NOT NULL AND NEW.request IS DISTINCT
        FROM OLD.request) EXECUTE FUNCTION keep_request();

-- Answers are deleted with their requests, and when nothing can need them any more. A failed run
-- may be retried.

CREATE FUNCTION drop_answer() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    NEW.answer_sealed := NULL;
    NEW.failed_with := NULL;
    RETURN NEW;
END
$$;
COMMENT ON FUNCTION drop_answer IS 'Deletes the answer with its request';
CREATE TRIGGER drop_answer BEFORE UPDATE OF request ON run_actions
    FOR EACH ROW WHEN (NEW.request IS NULL AND OLD.request IS NOT NULL)
        EXECUTE FUNCTION drop_answer();

CREATE FUNCTION drop_answers()
    RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE run_actions SET answer_sealed = NULL, failed_with = NULL
    WHERE workspace_id = NEW.workspace_id AND run_id = NEW.run_id
      AND (answer_sealed IS NOT NULL OR failed_with IS NOT NULL)
      AND (NEW.input IS NULL OR NOT EXISTS (
        SELECT FROM workspaces WHERE workspace_id = NEW.workspace_id AND keep_answers));
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION drop_answers IS 'Deletes the answers of a run whose input was deleted';
CREATE TRIGGER drop_answers_of_forgotten AFTER UPDATE OF input ON runs
    FOR EACH ROW WHEN (NEW.input IS NULL AND OLD.input IS NOT NULL) EXECUTE FUNCTION drop_answers();

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
    proven_by    text CHECK (proven_by IN ('asserted', 'link', 'oidc')),
    reason       text CHECK (char_length(reason) <= 500),
    PRIMARY KEY (workspace_id, approval_id),
    UNIQUE (workspace_id, run_id, action_id),
    CONSTRAINT people_decide CHECK (state NOT IN ('approved', 'denied')
        OR decided_by IS NOT NULL AND decided_at IS NOT NULL AND proven_by IS NOT NULL),
    FOREIGN KEY (workspace_id, run_id, action_id)
        REFERENCES run_actions (workspace_id, run_id, action_id)
);
COMMENT ON TABLE approvals IS
    'Approvals of requests by people. The request is in run_actions, exactly as it will be sent';
COMMENT ON COLUMN approvals.approval_id IS
    'Identity of the question; one that is asked again has a new one';
COMMENT ON COLUMN approvals.reason IS 'Why, in the words of who decided; null for none';
COMMENT ON COLUMN approvals.state IS 'Decided at most once';
COMMENT ON COLUMN approvals.expires_at IS 'After this it can''t be approved';
COMMENT ON COLUMN approvals.decided_by IS 'The user who decided; null if none did';
COMMENT ON COLUMN approvals.proven_by IS
    'How the user who decided has proven who they are; null if none did';
CREATE INDEX approvals_by_age ON approvals (created_at) WHERE state = 'pending';
CREATE INDEX approvals_pending ON approvals (workflow_id, created_at) WHERE state = 'pending';

CREATE FUNCTION worker_only_asks() RETURNS trigger LANGUAGE plpgsql
    SET search_path FROM CURRENT AS $$
BEGIN
    IF NOT pg_has_role(current_user, 'letterbox_operator', 'MEMBER') AND (
        (TG_OP = 'INSERT' AND NEW.state <> 'pending')
        OR (TG_OP = 'UPDATE' AND NEW.state <> OLD.state AND NEW.state NOT IN ('expired',
            'withdrawn')
            AND NOT (OLD.state IN ('withdrawn', 'approved') AND NEW.state = 'pending'))
    ) THEN
        RAISE EXCEPTION 'a worker may ask for approvals, but not give them'
            USING ERRCODE = 'insufficient_privilege';
    END IF;
    IF TG_OP = 'UPDATE' AND OLD.state <> 'pending' AND NEW.state NOT IN ('pending', 'withdrawn')
        AND (NEW.state, NEW.decided_by, NEW.decided_at, NEW.proven_by, NEW.reason)
            IS DISTINCT FROM
            (OLD.state, OLD.decided_by, OLD.decided_at, OLD.proven_by, OLD.reason) THEN
        RAISE EXCEPTION 'an approval is decided once'
            USING ERRCODE = 'restrict_violation';
    END IF;
    IF TG_OP = 'UPDATE' AND NEW.state = 'withdrawn' AND (OLD.state IN ('approved', 'denied')
            OR OLD.state = 'withdrawn' AND OLD.decided_by IS NOT NULL) THEN
        NEW.decided_by := OLD.decided_by;
        NEW.decided_at := OLD.decided_at;
        NEW.proven_by := OLD.proven_by;
        NEW.reason := OLD.reason;
    END IF;
    IF TG_OP = 'UPDATE' AND OLD.state = 'pending' AND NEW.state IN ('approved', 'denied') THEN
        NEW.proven_by := coalesce((SELECT a.proven_by FROM acting() AS a
            WHERE a.user_id = NEW.decided_by), 'asserted');
    END IF;
    IF TG_OP = 'UPDATE' AND NEW.state = 'pending' AND OLD.state <> 'pending' THEN
        -- Whoever answers under the former id was shown the former question.
        NEW.approval_id := gen_random_uuid();
        NEW.decided_by := NULL;
        NEW.decided_at := NULL;
        NEW.proven_by := NULL;
        NEW.reason := NULL;
        NEW.created_at := clock_timestamp();
    END IF;
    RETURN NEW;
END
$$;
COMMENT ON FUNCTION worker_only_asks IS
    'People approve and deny, once; a withdrawn answer keeps the name of who gave it; a question '
    'that is asked again has a new id';
CREATE TRIGGER worker_only_asks BEFORE INSERT OR UPDATE ON approvals
    FOR EACH ROW EXECUTE FUNCTION worker_only_asks();

CREATE FUNCTION approve_by(tenant uuid) RETURNS text LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT coalesce((SELECT p.approve_by FROM policies p
                     WHERE workspace_id = tenant ORDER BY version DESC LIMIT 1), 'anyone');
END;
COMMENT ON FUNCTION approve_by IS
    'Who may approve, by the current policy: anyone who may, only a person who has proven who '
    'they are, or such a person who is another than the user as whom a run acts';

CREATE FUNCTION approval_stands(tenant uuid, decider uuid, acting uuid, proof text)
    RETURNS boolean LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT EXISTS (SELECT FROM members WHERE workspace_id = tenant AND user_id = decider
                   AND role IN ('owner', 'editor') AND deactivated_at IS NULL)
       AND CASE approve_by(tenant)
               WHEN 'another' THEN decider <> acting AND proof <> 'asserted'
               WHEN 'person' THEN proof <> 'asserted'
               ELSE true
           END;
END;
COMMENT ON FUNCTION approval_stands IS
    'Whether the approval of this person, so proven, is valid for a run that acts as the user';

-- Holds, of one workspace or of all.

CREATE TABLE all_workspaces (
    one     boolean PRIMARY KEY DEFAULT true CHECK (one),
    held_at timestamptz
);
COMMENT ON TABLE all_workspaces IS 'The hold on all workspaces';
COMMENT ON COLUMN all_workspaces.one IS 'There is one row';
COMMENT ON COLUMN all_workspaces.held_at IS
    'Time since which no run begins an action; null while not held';
INSERT INTO all_workspaces DEFAULT VALUES;

CREATE VIEW held_workspaces AS
SELECT workspace_id FROM workspaces
WHERE held_at IS NOT NULL OR EXISTS (SELECT FROM all_workspaces WHERE one AND held_at IS NOT NULL);
COMMENT ON VIEW held_workspaces IS 'The workspaces whose runs begin no action';

CREATE FUNCTION question_clock(tenant uuid) RETURNS timestamptz LANGUAGE sql VOLATILE
BEGIN ATOMIC
    SELECT least(clock_timestamp(), (SELECT held_at FROM all_workspaces),
                 (SELECT held_at FROM workspaces WHERE workspace_id = tenant));
END;
COMMENT ON FUNCTION question_clock IS
    'The clock of a workspace''s approvals, which stands still while the workspace is held';

-- Runs that are not over. This table is written at every turn, so it is narrow.

CREATE TABLE active_runs (
    workspace_id uuid NOT NULL,
    run_id       uuid NOT NULL,
    account_id   uuid NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000',
    due_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    started_at   timestamptz,
    turn         bigint,
    idle_turns   integer NOT NULL DEFAULT 0,
    is_cancelled boolean NOT NULL DEFAULT false,
    state        text NOT NULL DEFAULT 'ready' CHECK (state IN ('scheduled', 'ready', 'taken')),
    PRIMARY KEY (workspace_id, run_id),
    FOREIGN KEY (workspace_id, run_id) REFERENCES runs (workspace_id, run_id)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
COMMENT ON TABLE active_runs IS
    'Runs that are not over: when each is due, and which worker''s turn it is. One row per run';
COMMENT ON COLUMN active_runs.account_id IS
    'The account that the run calls next, or is calling; nil if unknown';
COMMENT ON COLUMN active_runs.due_at IS
    'When it is due; once taken, the end of the lease, after which another worker may take it';
COMMENT ON COLUMN active_runs.turn IS
    'Fencing token, drawn anew whenever a worker takes it; only the last one decides about it. '
    'Null before the first';
COMMENT ON COLUMN active_runs.idle_turns IS
    'Consecutive turns, this one included, that recorded nothing but the beginning of an attempt';
COMMENT ON COLUMN active_runs.is_cancelled IS
    'Its cancellation was ordered while a worker had it; runs.cancel_reason says why';
COMMENT ON COLUMN active_runs.state IS
    'scheduled: waits for its time; ready: waits for its turn; taken: a worker has it';
-- So written that a plan for a run by its key can't take it instead.
CREATE INDEX active_runs_by_time ON active_runs (due_at) WHERE (state = 'ready') IS FALSE;
CREATE INDEX active_runs_ready ON active_runs (workspace_id, account_id, due_at)
    WHERE state = 'ready';

CREATE FUNCTION ready_lanes(behind uuid, behind_account uuid, most integer)
    RETURNS TABLE (workspace_id uuid, account_id uuid, due_at timestamptz) LANGUAGE sql STABLE
BEGIN ATOMIC
    WITH RECURSIVE lane AS (
        (SELECT workspace_id, account_id, due_at, 1 AS number FROM active_runs
         WHERE state = 'ready' AND (workspace_id, account_id) > (behind, behind_account)
         ORDER BY workspace_id, account_id, due_at LIMIT 1)
        UNION ALL
        SELECT next.*, number + 1 FROM lane CROSS JOIN LATERAL (
            SELECT workspace_id, account_id, due_at FROM active_runs
            WHERE state = 'ready'
              AND (workspace_id, account_id) > (lane.workspace_id, lane.account_id)
            ORDER BY workspace_id, account_id, due_at LIMIT 1) AS next
        WHERE number < most
    )
    SELECT workspace_id, account_id, due_at FROM lane;
END;
COMMENT ON FUNCTION ready_lanes IS
    'Lanes with ready runs behind a lane, at most `most`: a workspace, the account that its '
    'runs wait for (zeros if not known yet), and since when the first of them has been due. Skips '
    'from lane to lane by the index, so the number of runs in each costs nothing';

CREATE TABLE turn_lock ();
COMMENT ON TABLE turn_lock IS 'Has no rows: whoever gives turns locks it, one worker at a time';
GRANT DELETE ON turn_lock TO letterbox_worker;

CREATE FUNCTION lock_turns() RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    LOCK TABLE turn_lock IN EXCLUSIVE MODE;
END
$$;
COMMENT ON FUNCTION lock_turns IS 'Waits for its turn to give turns, until the transaction ends';
CREATE FUNCTION try_lock_turns() RETURNS boolean LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
BEGIN
    LOCK TABLE turn_lock IN EXCLUSIVE MODE NOWAIT;
    RETURN true;
EXCEPTION WHEN lock_not_available THEN
    RETURN false;
END
$$;
COMMENT ON FUNCTION try_lock_turns IS 'The same, or false if it would have to wait';
GRANT EXECUTE ON FUNCTION lock_turns, try_lock_turns TO letterbox_worker;

CREATE TABLE workers (
    worker_id  uuid PRIMARY KEY,
    name       text NOT NULL,
    places     integer NOT NULL CHECK (places > 0),
    seen_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    workspaces uuid[] NOT NULL DEFAULT '{}',
    runs       uuid[] NOT NULL DEFAULT '{}'
);
COMMENT ON TABLE workers IS
    'The live workers and what each has taken: fairness is decided on what all of them have';
COMMENT ON COLUMN workers.worker_id IS 'New at each start; sorts by time';
COMMENT ON COLUMN workers.places IS 'Maximum runs that it executes at once';
COMMENT ON COLUMN workers.seen_at IS 'Time of its last report';
COMMENT ON COLUMN workers.workspaces IS 'The workspaces of `runs`';
COMMENT ON COLUMN workers.runs IS
    'The runs that it had when it last took some; those that it let go of since are not taken';

CREATE FUNCTION is_alive(seen timestamptz, seconds integer)
    RETURNS boolean LANGUAGE sql VOLATILE
RETURN seen BETWEEN clock_timestamp() - seconds * interval '1 second'
    AND clock_timestamp() + interval '15 seconds';
COMMENT ON FUNCTION is_alive IS
    'Whether a process lives that was seen last then, and is within so many seconds if it lives; '
    'one that was seen in the future may have died before the clock was set back';

CREATE VIEW visible_runs WITH (security_invoker = true) AS
SELECT r.workspace_id, r.run_id, r.workflow_id, r.release_id, r.run_as,
       CASE WHEN r.state = 'queued' AND a.turn IS NOT NULL THEN 'running' ELSE r.state END AS state,
       r.refused_reason, r.failure, r.received_at, r.created_at,
       coalesce(r.started_at, a.started_at) AS started_at, r.finished_at, r.input_trust, r.input,
       r.found_by, r.request_id, r.traceparent, a.run_id IS NOT NULL AS is_active
FROM runs r LEFT JOIN active_runs a USING (workspace_id, run_id);
COMMENT ON VIEW visible_runs IS
    'Runs as people see them: a queued one that a worker has taken is running';

CREATE VIEW taken_runs AS
SELECT DISTINCT t.workspace_id, t.run_id
FROM workers w
CROSS JOIN LATERAL unnest(w.workspaces, w.runs) AS t (workspace_id, run_id)
-- The limit keeps each from being looked for in all active runs.
CROSS JOIN LATERAL (
    SELECT FROM active_runs a
    WHERE a.workspace_id = t.workspace_id AND a.run_id = t.run_id AND a.state = 'taken' LIMIT 1
) AS has;
COMMENT ON VIEW taken_runs IS
    'The runs that workers have, found by what the workers report: those that wait cost nothing';

CREATE VIEW runs_in_demand AS
SELECT (SELECT count(*) FROM (
            SELECT FROM active_runs WHERE state = 'ready' AND workspace_id NOT IN (
                SELECT workspace_id FROM held_workspaces)
                AND (workspace_id, account_id) NOT IN (
                    SELECT workspace_id, account_id FROM waiting_accounts)
            ORDER BY workspace_id, account_id, due_at LIMIT 10000) AS ready)
       + (SELECT count(*) FROM taken_runs) AS runs;
COMMENT ON VIEW runs_in_demand IS
    'How many runs are due, counted up to 10,000, or executed; those of held workspaces, and those '
    'whose account waits, need no worker';

-- What workers write about runs: each row says what its statement reads.

CREATE TYPE run_change AS (
    workspace_id uuid, run_id uuid, turn bigint, action_id text, approval_id uuid, account_id uuid,
    seconds double precision, state text, reason text
);
COMMENT ON TYPE run_change IS 'What becomes of a run, or of a question about one of its actions';

CREATE TYPE action_change AS (
    workspace_id uuid, run_id uuid, turn bigint, action_id text, kind text, part_of text,
    untrusted text[], steered_by text[], begun integer, answered integer, attempt integer,
    is_unseen boolean, counts boolean, settled integer, state text, branch text, error text,
    is_told boolean, answer_sealed bytea, failed_with text, response_status integer,
    retry_in double precision, decision text, decision_rule integer, policy_version integer,
    request text, account_id uuid, was_asked boolean, lasts double precision
);
COMMENT ON TYPE action_change IS 'What has happened to an action, or the beginning of an attempt';

-- However a run ends, it ends here. `runs` is written when a run is recorded and when it is over.

CREATE FUNCTION end_runs(ends run_change[]) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    WITH finished AS (
        -- Who ends several runs holds them already: `hold_runs`.
        DELETE FROM active_runs a USING unnest(ends) AS e
        WHERE a.workspace_id = ANY (ARRAY[e.workspace_id]) AND a.run_id = e.run_id
          AND (e.turn IS NULL OR a.state = 'taken' AND a.turn = e.turn)
        RETURNING a.workspace_id, a.run_id, a.started_at, e.state, e.reason
    ), ended_action AS (
        -- An agent ends as its run does. What has begun stays: its outcome is unknown.
        UPDATE run_actions a SET retry_at = NULL, finished_at = clock_timestamp(),
            state = CASE WHEN a.type = 'ai.agent' AND a.part_of IS NULL THEN o.state
                ELSE 'cancelled' END
        FROM finished o WHERE o.state <> 'succeeded'
          AND a.workspace_id = o.workspace_id AND a.run_id = o.run_id
          AND (a.state IN ('retrying', 'waiting', 'waiting_approval')
               OR a.state = 'running' AND a.type = 'ai.agent' AND a.part_of IS NULL)
    ), unneeded_answer AS (
        UPDATE run_actions a SET answer_sealed = NULL
        FROM finished o
        WHERE o.state = 'succeeded' AND a.workspace_id = o.workspace_id AND a.run_id = o.run_id
          AND (a.answer_sealed IS NOT NULL) IS TRUE
          AND NOT (SELECT keep_answers FROM workspaces w WHERE w.workspace_id = o.workspace_id)
    ), closed_question AS (
        UPDATE approvals p SET state = 'expired', decided_at = clock_timestamp()
        FROM finished o WHERE p.workspace_id = o.workspace_id AND p.run_id = o.run_id
          AND (p.state = 'pending') IS TRUE
    )
    UPDATE runs r SET state = o.state,
        started_at = coalesce(r.started_at, o.started_at), finished_at = clock_timestamp(),
        cancel_reason = CASE WHEN o.state = 'cancelled'
            THEN coalesce(r.cancel_reason, o.reason) ELSE r.cancel_reason END,
        failure = CASE WHEN o.state = 'cancelled'
            THEN coalesce(r.cancel_reason, o.reason) ELSE o.reason END
    FROM finished o WHERE r.workspace_id = o.workspace_id AND r.run_id = o.run_id;
END
$$;
COMMENT ON FUNCTION end_runs IS
    'Ends runs, each in a state and for a reason: of a turn, if one is given, only while it lasts. '
    'Closes their questions, ends what waits, drops the answers of succeeded ones unless their '
    'workspace keeps them';

CREATE FUNCTION answer_approval(answered uuid, decider uuid, answer text) RETURNS SETOF approvals
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    person record;
    question approvals;
BEGIN
    SELECT * INTO person FROM acting();
    IF NOT is_operator() AND person.user_id IS DISTINCT FROM decider THEN
        RAISE EXCEPTION 'nobody answers in the name of another'
            USING ERRCODE = 'insufficient_privilege';
    END IF;
    -- The run first, as everybody does: a worker that has it looks for the answer when it lets go.
    -- Who may not answer locks nothing.
    PERFORM FROM workspaces w
    JOIN approvals p ON p.workspace_id = w.workspace_id AND p.approval_id = answered
    JOIN active_runs a ON a.workspace_id = p.workspace_id AND a.run_id = p.run_id
    WHERE is_operator() OR w.workspace_id = ANY (workspaces_as('editor'))
    FOR NO KEY UPDATE OF a;
    UPDATE approvals p SET state = answer, decided_by = m.user_id, decided_at = clock_timestamp(),
        reason = nullif(current_setting('letterbox.reason', true), '')
    FROM workspaces w JOIN members m ON m.workspace_id = w.workspace_id AND m.user_id = decider
    WHERE answer IN ('approved', 'denied')
      AND p.workspace_id = w.workspace_id AND p.approval_id = answered
      AND p.state = 'pending' AND p.expires_at > question_clock(p.workspace_id)
      AND EXISTS (SELECT FROM runs r
                  WHERE r.workspace_id = p.workspace_id AND r.run_id = p.run_id
                    AND r.state = 'waiting_approval'
                    AND approval_stands(r.workspace_id, m.user_id, r.run_as,
                        CASE person.user_id WHEN m.user_id THEN person.proven_by
                            ELSE 'asserted' END))
    RETURNING p.* INTO question;
    IF FOUND THEN
        UPDATE active_runs a SET state = 'ready', due_at = clock_timestamp()
        WHERE a.workspace_id = question.workspace_id AND a.run_id = question.run_id
          AND a.state = 'scheduled';
        RETURN NEXT question;
    END IF;
END
$$;
COMMENT ON FUNCTION answer_approval IS
    'Answers a question that is open, for a member who may, and lets the run go on; no row if it '
    'is not open, or not for this member. Operators name who answers; people answer themselves';
REVOKE EXECUTE ON FUNCTION
    drop_answers, lock_turns, try_lock_turns, end_runs, answer_approval FROM PUBLIC;

CREATE TABLE run_usage (
    workspace_id uuid NOT NULL REFERENCES workspaces,
    month        date NOT NULL CHECK (EXTRACT(day FROM month) = 1),
    started      integer NOT NULL DEFAULT 0 CHECK (started >= 0),
    PRIMARY KEY (workspace_id, month)
);
COMMENT ON TABLE run_usage IS 'How much of its allowance a workspace has used';
COMMENT ON COLUMN run_usage.month IS 'First day of a calendar month, UTC';
COMMENT ON COLUMN run_usage.started IS 'Runs that have started in it; refused ones do not count';

GRANT SELECT (workspace_id, account_id, user_id, name, base_url, header_name, sender,
    credential_sealed, disconnected_at, waits_for) ON connected_accounts TO letterbox_worker;
GRANT SELECT, INSERT, UPDATE ON connected_accounts TO letterbox_operator;
GRANT SELECT ON runs, visible_runs, run_usage TO letterbox_operator;
GRANT SELECT ON policies, all_workspaces, held_workspaces, taken_runs, waiting_accounts
    TO letterbox_worker;
GRANT SELECT ON held_workspaces, waiting_accounts TO letterbox_operator;
GRANT SELECT, INSERT ON policies TO letterbox_operator;
GRANT SELECT, INSERT, UPDATE (state, failing) ON runs TO letterbox_worker;
GRANT SELECT, INSERT, UPDATE ON run_actions, run_usage TO letterbox_worker;
GRANT SELECT, UPDATE (answer_sealed) ON run_actions TO letterbox_operator;
GRANT INSERT, SELECT (workspace_id, approval_id, run_id, action_id, state, expires_at, decided_by,
    decided_at, created_at, proven_by), UPDATE (state, expires_at, decided_at)
    ON approvals TO letterbox_worker;
GRANT SELECT ON approvals TO letterbox_operator;
GRANT SELECT, UPDATE (held_at) ON all_workspaces TO letterbox_operator;
GRANT SELECT, INSERT, UPDATE ON active_runs TO letterbox_worker;
GRANT SELECT ON active_runs TO letterbox_operator;
GRANT EXECUTE ON FUNCTION end_runs TO letterbox_worker;
GRANT EXECUTE ON FUNCTION answer_approval TO letterbox_operator, letterbox_desk;
GRANT SELECT ON runs_in_demand TO letterbox_scaler;
GRANT SELECT, INSERT, UPDATE, DELETE ON workers TO letterbox_worker;
GRANT SELECT ON workers TO letterbox_operator;
