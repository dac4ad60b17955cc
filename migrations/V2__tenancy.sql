-- Why: the tenancy model. A workspace is the tenant; every row that belongs to one carries workspace_id in its primary
-- key and in every foreign key, so that no row can point into another workspace, and so that the tables can be
-- distributed by workspace later without being rewritten. Users stand outside: one person may be in many workspaces.

CREATE TABLE workspaces (
    workspace_id uuid PRIMARY KEY,
    name         text NOT NULL CHECK (char_length(name) BETWEEN 1 AND 200),
    created_at   timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE workspaces IS 'A tenant. Everything but users belongs to exactly one';
COMMENT ON COLUMN workspaces.workspace_id IS 'The orgId of a webhook URL';
COMMENT ON COLUMN workspaces.name IS 'For people; need not be unique';
COMMENT ON COLUMN workspaces.created_at IS 'Database clock';

CREATE TABLE users (
    user_id    uuid PRIMARY KEY,
    email      text NOT NULL CHECK (char_length(email) BETWEEN 3 AND 200),
    name       text NOT NULL CHECK (char_length(name) BETWEEN 1 AND 200),
    created_at timestamptz NOT NULL DEFAULT now()
);
CREATE UNIQUE INDEX users_email_key ON users (lower(email));
COMMENT ON TABLE users IS 'A person. Not a tenant row: membership joins people to workspaces';
COMMENT ON COLUMN users.user_id IS 'Identity under which the person''s workflows run';
COMMENT ON COLUMN users.email IS 'As given; unique without regard to case';
COMMENT ON COLUMN users.name IS 'For people';
COMMENT ON COLUMN users.created_at IS 'Database clock';

CREATE TABLE members (
    workspace_id uuid NOT NULL REFERENCES workspaces,
    user_id      uuid NOT NULL REFERENCES users,
    role         text NOT NULL CHECK (role IN ('owner', 'editor', 'runner', 'viewer')),
    created_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (workspace_id, user_id)
);
COMMENT ON TABLE members IS 'Who belongs to a workspace, and what they may do there';
COMMENT ON COLUMN members.workspace_id IS 'Tenant';
COMMENT ON COLUMN members.user_id IS 'The member';
COMMENT ON COLUMN members.role IS 'owner, editor and runner may run workflows; viewer may not';
COMMENT ON COLUMN members.created_at IS 'Database clock';

CREATE TABLE workflows (
    workspace_id    uuid NOT NULL REFERENCES workspaces,
    workflow_id     uuid NOT NULL,
    owner_id        uuid NOT NULL REFERENCES users,
    name            text NOT NULL CHECK (char_length(name) BETWEEN 1 AND 200),
    state           text NOT NULL DEFAULT 'draft' CHECK (state IN ('draft', 'deployed', 'paused', 'deleted')),
    live_release_id uuid,
    created_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (workspace_id, workflow_id),
    CONSTRAINT deployed_has_a_live_release CHECK (state <> 'deployed' OR live_release_id IS NOT NULL)
);
COMMENT ON TABLE workflows IS 'What a public form starts';
COMMENT ON COLUMN workflows.workspace_id IS 'Tenant';
COMMENT ON COLUMN workflows.workflow_id IS 'Identity over all releases';
COMMENT ON COLUMN workflows.owner_id IS 'Runs act as this user, who may meanwhile have left the workspace';
COMMENT ON COLUMN workflows.name IS 'For people; never shown to submitters';
COMMENT ON COLUMN workflows.state IS 'draft, deployed, paused or deleted; only a deployed workflow has a live form link';
COMMENT ON COLUMN workflows.live_release_id IS 'The release of the last deploy; live while the state is deployed';
COMMENT ON COLUMN workflows.created_at IS 'Database clock';

CREATE TABLE releases (
    workspace_id uuid NOT NULL,
    workflow_id  uuid NOT NULL,
    release_id   uuid NOT NULL,
    number       integer NOT NULL CHECK (number > 0),
    definition   text NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (workspace_id, workflow_id, release_id),
    UNIQUE (workspace_id, workflow_id, number),
    FOREIGN KEY (workspace_id, workflow_id) REFERENCES workflows (workspace_id, workflow_id)
);
COMMENT ON TABLE releases IS 'What one deploy made of a workflow: its form and its actions. Never changed';
COMMENT ON COLUMN releases.workspace_id IS 'Tenant';
COMMENT ON COLUMN releases.workflow_id IS 'The deployed workflow';
COMMENT ON COLUMN releases.release_id IS 'Runs and submissions are pinned to it';
COMMENT ON COLUMN releases.number IS 'Counts the deploys of a workflow, from 1';
COMMENT ON COLUMN releases.definition IS 'JSON text {"form", "actions"}; text, because jsonb refuses U+0000';
COMMENT ON COLUMN releases.created_at IS 'Database clock';

ALTER TABLE workflows ADD CONSTRAINT live_release_is_own
    FOREIGN KEY (workspace_id, workflow_id, live_release_id)
    REFERENCES releases (workspace_id, workflow_id, release_id);

CREATE TABLE form_links (
    workspace_id uuid NOT NULL,
    form_link_id uuid NOT NULL,
    workflow_id  uuid NOT NULL,
    release_id   uuid NOT NULL,
    token_sha256 bytea NOT NULL CHECK (octet_length(token_sha256) = 32),
    created_at   timestamptz NOT NULL DEFAULT now(),
    ended_at     timestamptz,
    PRIMARY KEY (workspace_id, form_link_id),
    FOREIGN KEY (workspace_id, workflow_id, release_id) REFERENCES releases (workspace_id, workflow_id, release_id)
);
CREATE UNIQUE INDEX form_links_one_live ON form_links (workspace_id, workflow_id) WHERE ended_at IS NULL;
CREATE INDEX form_links_by_token ON form_links (token_sha256);
COMMENT ON TABLE form_links IS 'The links of a workflow''s form; at most one is live, an ended one stays ended';
COMMENT ON COLUMN form_links.workspace_id IS 'Tenant';
COMMENT ON COLUMN form_links.form_link_id IS 'Names the link to its owner without being its token';
COMMENT ON COLUMN form_links.workflow_id IS 'The workflow that the form starts';
COMMENT ON COLUMN form_links.release_id IS 'The release that was live when the link was made';
COMMENT ON COLUMN form_links.token_sha256 IS 'SHA-256 of the token; the token itself is stored nowhere';
COMMENT ON COLUMN form_links.created_at IS 'Database clock';
COMMENT ON COLUMN form_links.ended_at IS 'When the link died; null while it lives';

GRANT SELECT, INSERT, UPDATE, DELETE ON workspaces, users, members, workflows, releases, form_links
    TO letterbox_operator;
