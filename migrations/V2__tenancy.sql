-- The tenancy model. A workspace is the tenant; every row that belongs to one carries workspace_id
-- in its primary key and in every foreign key, so that no row can point into another workspace, and
-- so that the tables can be distributed by workspace. Users belong to no workspace: one person may
-- be a member of many.

CREATE TABLE users (
    user_id       uuid PRIMARY KEY,
    email         text NOT NULL CHECK (char_length(email) BETWEEN 3 AND 200),
    name          text NOT NULL CHECK (char_length(name) BETWEEN 1 AND 200),
    created_at    timestamptz NOT NULL DEFAULT now(),
    has_signed_in boolean NOT NULL DEFAULT false
);
COMMENT ON TABLE users IS 'A person. Not a tenant row: membership joins people to workspaces';
COMMENT ON COLUMN users.user_id IS 'Identity under which the person''s workflows run';
COMMENT ON COLUMN users.email IS 'As given; unique without regard to case';
COMMENT ON COLUMN users.has_signed_in IS
    'Whether they have ever been here themselves: who has not gets no notices';
CREATE UNIQUE INDEX users_email_key ON users (lower(email));

CREATE TABLE workspaces (
    workspace_id             uuid PRIMARY KEY,
    name                     text NOT NULL CHECK (char_length(name) BETWEEN 1 AND 200),
    created_at               timestamptz NOT NULL DEFAULT now(),
    run_allowance            integer CHECK (run_allowance >= 0),
    retry_attempts           integer CHECK (retry_attempts BETWEEN 1 AND 30),
    retry_first_milliseconds integer CHECK (retry_first_milliseconds BETWEEN 1 AND 3600000),
    held_at                  timestamptz,
    keep_answers             boolean NOT NULL DEFAULT false,
    is_searchable            boolean NOT NULL DEFAULT true,
    notify_by_email          boolean NOT NULL DEFAULT false,
    notify_account           uuid
);
COMMENT ON TABLE workspaces IS 'A tenant. Everything but users belongs to exactly one';
COMMENT ON COLUMN workspaces.workspace_id IS 'The orgId of a webhook URL';
COMMENT ON COLUMN workspaces.run_allowance IS
    'Runs that may start in a calendar month (UTC); null means no limit';
COMMENT ON COLUMN workspaces.retry_attempts IS
    'Attempts at one action; null for the workers'' default';
COMMENT ON COLUMN workspaces.retry_first_milliseconds IS
    'Pause before the second attempt, doubled before each later one; null for the workers'' '
    'default';
COMMENT ON COLUMN workspaces.held_at IS
    'Time since which its runs begin no action; null while not held';
COMMENT ON COLUMN workspaces.keep_answers IS
    'Whether answers are kept when their run has succeeded';
COMMENT ON COLUMN workspaces.is_searchable IS
    'Whether new runs can be found by their submitted values';
COMMENT ON COLUMN workspaces.notify_by_email IS
    'Whether its owners and editors are told by e-mail what waits and what went wrong';
COMMENT ON COLUMN workspaces.notify_account IS
    'The account through which that is told; null for none';
CREATE INDEX workspaces_held ON workspaces (workspace_id) WHERE held_at IS NOT NULL;

CREATE TABLE members (
    workspace_id   uuid NOT NULL REFERENCES workspaces,
    user_id        uuid NOT NULL REFERENCES users,
    role           text NOT NULL CHECK (role IN ('owner', 'editor', 'runner', 'viewer')),
    created_at     timestamptz NOT NULL DEFAULT now(),
    deactivated_at timestamptz,
    may_run        boolean NOT NULL GENERATED ALWAYS AS (role <> 'viewer'
        AND deactivated_at IS NULL) STORED,
    may_run_since  uuid NOT NULL DEFAULT gen_random_uuid(),
    PRIMARY KEY (workspace_id, user_id)
);
COMMENT ON TABLE members IS 'Who belongs to a workspace, and what they may do there';
COMMENT ON COLUMN members.role IS 'owner, editor and runner may run workflows; viewer may not';
COMMENT ON COLUMN members.deactivated_at IS
    'Time of deactivation, since which the member has no rights; null while active';
COMMENT ON COLUMN members.may_run IS 'Whether workflows may run as this member';
COMMENT ON COLUMN members.may_run_since IS
    'Marks the time since which the member may run workflows: a new mark each time the right '
    'begins';

CREATE FUNCTION member_gets_right() RETURNS trigger LANGUAGE plpgsql
    SET search_path FROM CURRENT AS $$
BEGIN
    IF TG_OP = 'INSERT' OR (NEW.workspace_id, NEW.user_id) <> (OLD.workspace_id, OLD.user_id)
        OR NOT OLD.may_run THEN
        NEW.may_run_since := gen_random_uuid();
    ELSE
        NEW.may_run_since := OLD.may_run_since;
    END IF;
    RETURN NEW;
END
$$;
COMMENT ON FUNCTION member_gets_right IS 'Sets the mark, which no one can choose';
CREATE TRIGGER member_gets_right BEFORE INSERT OR UPDATE ON members
    FOR EACH ROW EXECUTE FUNCTION member_gets_right();

CREATE TABLE workflows (
    workspace_id    uuid NOT NULL REFERENCES workspaces,
    workflow_id     uuid NOT NULL,
    owner_id        uuid NOT NULL REFERENCES users,
    name            text NOT NULL CHECK (char_length(name) BETWEEN 1 AND 200),
    state           text NOT NULL DEFAULT 'draft'
        CHECK (state IN ('draft', 'deployed', 'paused', 'deleted')),
    live_release_id uuid,
    created_at      timestamptz NOT NULL DEFAULT now(),
    definition      text CHECK (octet_length(definition) <= 262144),
    form_links_made integer NOT NULL DEFAULT 0,
    PRIMARY KEY (workspace_id, workflow_id),
    CONSTRAINT deployed_has_a_live_release
        CHECK (state <> 'deployed' OR live_release_id IS NOT NULL)
);
COMMENT ON TABLE workflows IS 'A workflow, started by a public form';
COMMENT ON COLUMN workflows.workflow_id IS 'Identity over all releases';
COMMENT ON COLUMN workflows.owner_id IS
    'Runs act as this user, who may meanwhile have left the workspace';
COMMENT ON COLUMN workflows.name IS 'Display name; never shown to submitters';
COMMENT ON COLUMN workflows.state IS
    'draft, deployed, paused or deleted; only a deployed workflow has a live form link';
COMMENT ON COLUMN workflows.live_release_id IS
    'The release of the last deploy; live while the state is deployed';
COMMENT ON COLUMN workflows.definition IS
    'JSON text {"form", "actions"} that the next deploy makes a release of; null if there is none';
COMMENT ON COLUMN workflows.form_links_made IS
    'Counts the form links; its change lets a concurrent move notice';

CREATE TABLE releases (
    workspace_id  uuid NOT NULL,
    workflow_id   uuid NOT NULL,
    release_id    uuid NOT NULL,
    number        integer NOT NULL CHECK (number > 0),
    created_at    timestamptz NOT NULL DEFAULT now(),
    form          text NOT NULL CHECK (octet_length(form) <= 524288),
    actions       text NOT NULL CHECK (octet_length(actions) <= 262144),
    first_account text CHECK (char_length(first_account) <= 100),
    on_failure    text CHECK (octet_length(on_failure) <= 262144),
    page          text CHECK (octet_length(page) <= 524288),
    least_seconds smallint CHECK (least_seconds BETWEEN 0 AND 60),
    language      smallint NOT NULL DEFAULT 1 CHECK (language > 0),
    PRIMARY KEY (workspace_id, workflow_id, release_id),
    UNIQUE (workspace_id, workflow_id, number),
    FOREIGN KEY (workspace_id, workflow_id) REFERENCES workflows (workspace_id, workflow_id)
);
COMMENT ON TABLE releases IS 'One deploy of a workflow: its form and its actions. Never changed';
COMMENT ON COLUMN releases.release_id IS 'Runs and submissions are pinned to it';
COMMENT ON COLUMN releases.number IS 'Counts the deploys of a workflow, from 1';
COMMENT ON COLUMN releases.form IS
    'JSON text of the form, exactly as answered to the public; text, because jsonb refuses U+0000';
COMMENT ON COLUMN releases.actions IS 'JSON text of the list of actions';
COMMENT ON COLUMN releases.first_account IS
    'Name of the account that every run calls first; null if that depends on the run';
COMMENT ON COLUMN releases.on_failure IS
    'JSON text of the actions that follow when a run has failed; null if there are none';
COMMENT ON COLUMN releases.page IS
    'JSON text of how the form''s page looks; null if nothing is set';
COMMENT ON COLUMN releases.least_seconds IS
    'Submissions need a proof of work, and this many seconds since the form was read; null if '
    'they need neither';
COMMENT ON COLUMN releases.language IS
    'The version of the language of templates by which it was checked';

ALTER TABLE workflows ADD CONSTRAINT live_release_is_own
    FOREIGN KEY (workspace_id, workflow_id, live_release_id)
    REFERENCES releases (workspace_id, workflow_id, release_id);

CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    RAISE EXCEPTION 'a row of % is never changed', TG_TABLE_NAME
        USING ERRCODE = 'restrict_violation';
END
$$;
COMMENT ON FUNCTION refuse_change IS 'Refuses changes of rows that are never changed';
CREATE TRIGGER releases_are_immutable BEFORE UPDATE ON releases
    FOR EACH ROW EXECUTE FUNCTION refuse_change();

GRANT SELECT, INSERT ON users TO letterbox_operator;
GRANT SELECT, INSERT, UPDATE ON workspaces, workflows TO letterbox_operator;
GRANT SELECT, INSERT, UPDATE, DELETE ON members TO letterbox_operator;
GRANT SELECT (workspace_id, run_allowance, retry_attempts, retry_first_milliseconds, held_at,
    keep_answers, is_searchable) ON workspaces TO letterbox_worker;
GRANT SELECT (workspace_id, user_id, role, deactivated_at, may_run) ON members TO letterbox_worker;
GRANT SELECT (workspace_id, workflow_id, owner_id, state) ON workflows TO letterbox_worker;
GRANT SELECT (workspace_id, workflow_id, release_id, form, language, actions,
    first_account, on_failure)
    ON releases TO letterbox_worker;
GRANT SELECT, INSERT ON releases TO letterbox_operator;
