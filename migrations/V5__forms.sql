-- Why: the public door. A form link is live from its creation until the workflow or its owner's membership moves, and it
-- dies in the transaction of that move: triggers see to it, so that it holds for whoever makes the move and however. What
-- is live is said once, in the view live_form_links, which is also all that the gateway can see of workflows.
--
-- A submission is claimed like a delivery, by a durable row, under its idempotency key. Hits are counted here too, in a
-- table that need not survive a crash.

-- A release: what the public may read, and what runs.

ALTER TABLE releases ADD COLUMN form text, ADD COLUMN actions text;
UPDATE releases SET form = (definition::json -> 'form')::text, actions = (definition::json -> 'actions')::text;
ALTER TABLE releases ALTER COLUMN form SET NOT NULL, ALTER COLUMN actions SET NOT NULL, DROP COLUMN definition;
COMMENT ON COLUMN releases.form IS 'JSON text of the form, exactly as it is answered to the public; text, because jsonb refuses U+0000';
COMMENT ON COLUMN releases.actions IS 'JSON text of the list of actions';

CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'a row of % is never changed', TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
END
$$;
COMMENT ON FUNCTION refuse_change IS 'Keeps rows as they were made';
CREATE TRIGGER releases_are_immutable BEFORE UPDATE ON releases FOR EACH ROW EXECUTE FUNCTION refuse_change();

ALTER TABLE workflows ADD COLUMN draft text, ADD COLUMN form_links_made integer NOT NULL DEFAULT 0;
COMMENT ON COLUMN workflows.form_links_made IS 'Counts the form links; its change is what a concurrent move notices';
COMMENT ON COLUMN workflows.draft IS 'JSON text {"form", "actions"} that the next deploy makes a release of; null when there is none';

-- Who may run.

ALTER TABLE members
    ADD COLUMN deactivated_at timestamptz,
    ADD COLUMN may_run boolean NOT NULL GENERATED ALWAYS AS (role <> 'viewer' AND deactivated_at IS NULL) STORED;
COMMENT ON COLUMN members.deactivated_at IS 'Since when the member may do nothing; null while active';
COMMENT ON COLUMN members.may_run IS 'Whether workflows may run as this member';

-- The life of a link. Whoever makes a link or ends links writes the workflow's row first: of two transactions that don't
-- see each other's work (REPEATABLE READ), one fails. Rows are locked in the order member, workflow, link.

DROP INDEX form_links_by_token;
CREATE UNIQUE INDEX form_links_by_token ON form_links (token_sha256); -- an ended link's token is never given again

CREATE FUNCTION end_form_links(workspace uuid, workflow uuid) RETURNS void LANGUAGE sql AS $$
    UPDATE form_links SET ended_at = clock_timestamp()
    WHERE workspace_id = workspace AND workflow_id = workflow AND ended_at IS NULL
$$;
COMMENT ON FUNCTION end_form_links IS 'Ends the live link of a workflow, if there is one';

CREATE FUNCTION workflow_moves() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.state = 'deleted' THEN
        RAISE EXCEPTION 'a deleted workflow stays deleted' USING ERRCODE = 'restrict_violation';
    END IF;
    PERFORM end_form_links(OLD.workspace_id, OLD.workflow_id);
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION workflow_moves IS 'Every move ends the live link, also a move to where the workflow is: redeploy, re-activation';
CREATE TRIGGER workflow_moves AFTER UPDATE OF state, live_release_id, owner_id, workspace_id, workflow_id ON workflows
    FOR EACH ROW EXECUTE FUNCTION workflow_moves();

CREATE FUNCTION member_changes() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND NEW.may_run AND (NEW.workspace_id, NEW.user_id) = (OLD.workspace_id, OLD.user_id) THEN
        RETURN NULL;
    END IF;
    PERFORM FROM workflows WHERE workspace_id = OLD.workspace_id AND owner_id = OLD.user_id
    ORDER BY workflow_id FOR NO KEY UPDATE;
    UPDATE workflows SET form_links_made = form_links_made
    WHERE workspace_id = OLD.workspace_id AND owner_id = OLD.user_id;
    PERFORM end_form_links(workspace_id, workflow_id) FROM workflows
    WHERE workspace_id = OLD.workspace_id AND owner_id = OLD.user_id;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION member_changes IS 'Ends the links of an owner who may no longer run';
CREATE TRIGGER member_changes AFTER UPDATE OR DELETE ON members FOR EACH ROW EXECUTE FUNCTION member_changes();

CREATE FUNCTION refuse_truncation() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is not truncated: form links hang from each row', TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
END
$$;
COMMENT ON FUNCTION refuse_truncation IS 'TRUNCATE would pass by what happens for each row';
CREATE TRIGGER members_are_not_truncated BEFORE TRUNCATE ON members
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_truncation();

CREATE FUNCTION form_link_is_made() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    owner uuid;
BEGIN
    SELECT owner_id INTO owner FROM workflows WHERE workspace_id = NEW.workspace_id AND workflow_id = NEW.workflow_id;
    PERFORM FROM members WHERE workspace_id = NEW.workspace_id AND user_id = owner AND may_run FOR SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the owner may not run workflows' USING ERRCODE = 'restrict_violation', CONSTRAINT = 'owner_may_run';
    END IF;
    UPDATE workflows SET form_links_made = form_links_made + 1
    WHERE workspace_id = NEW.workspace_id AND workflow_id = NEW.workflow_id
      AND state = 'deployed' AND live_release_id = NEW.release_id AND owner_id = owner;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the workflow is not deployed with this release'
            USING ERRCODE = 'restrict_violation', CONSTRAINT = 'workflow_is_deployed';
    END IF;
    PERFORM end_form_links(NEW.workspace_id, NEW.workflow_id);
    RETURN NEW;
END
$$;
COMMENT ON FUNCTION form_link_is_made IS 'Only a deployed workflow whose owner may run gets a link, and the new link ends the one before';
CREATE TRIGGER form_link_is_made BEFORE INSERT ON form_links FOR EACH ROW EXECUTE FUNCTION form_link_is_made();

CREATE FUNCTION form_link_ends() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.ended_at IS NOT NULL OR NEW.ended_at IS NULL
        OR (NEW.workspace_id, NEW.form_link_id, NEW.workflow_id, NEW.release_id, NEW.token_sha256)
            IS DISTINCT FROM (OLD.workspace_id, OLD.form_link_id, OLD.workflow_id, OLD.release_id, OLD.token_sha256) THEN
        RAISE EXCEPTION 'a form link only ever ends, once' USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END
$$;
COMMENT ON FUNCTION form_link_ends IS 'A link never becomes live again';
CREATE TRIGGER form_link_ends BEFORE UPDATE ON form_links FOR EACH ROW EXECUTE FUNCTION form_link_ends();

-- The tests beside ended_at hold already when the triggers do their work; a link that slipped past them is dead all the same.
CREATE VIEW live_form_links AS
SELECT l.token_sha256, l.workspace_id, l.workflow_id, l.form_link_id, l.release_id, r.form
FROM form_links l
JOIN workflows w ON w.workspace_id = l.workspace_id AND w.workflow_id = l.workflow_id
    AND w.state = 'deployed' AND w.live_release_id = l.release_id
JOIN members m ON m.workspace_id = w.workspace_id AND m.user_id = w.owner_id AND m.may_run
JOIN releases r ON r.workspace_id = l.workspace_id AND r.workflow_id = l.workflow_id AND r.release_id = l.release_id
WHERE l.ended_at IS NULL;
COMMENT ON VIEW live_form_links IS 'The links that answer: what a live link is, said once';
COMMENT ON COLUMN live_form_links.token_sha256 IS 'SHA-256 of the token';
COMMENT ON COLUMN live_form_links.form IS 'What a reader of the link is answered';

-- Submissions.

CREATE TABLE form_submissions (
    workspace_id  uuid NOT NULL,
    workflow_id   uuid NOT NULL,
    key_sha256    bytea NOT NULL CHECK (octet_length(key_sha256) = 32),
    submission_id uuid NOT NULL,
    attempt       integer NOT NULL DEFAULT 1,
    lease_until   timestamptz NOT NULL,
    claimed_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    settled_at    timestamptz,
    PRIMARY KEY (workspace_id, workflow_id, key_sha256),
    FOREIGN KEY (workspace_id, workflow_id) REFERENCES workflows (workspace_id, workflow_id)
) WITH (fillfactor = 80); -- room for the settled version of a row on the page of its claim
COMMENT ON TABLE form_submissions IS 'One accepted form post: the claim that lets its idempotency key start one run';
COMMENT ON COLUMN form_submissions.workspace_id IS 'Tenant';
COMMENT ON COLUMN form_submissions.workflow_id IS 'Scope of the key: a retry through a newer link is still a retry';
COMMENT ON COLUMN form_submissions.key_sha256 IS 'SHA-256 of the idempotency key';
COMMENT ON COLUMN form_submissions.submission_id IS 'AMQP message_id and id of the run; the same for every attempt';
COMMENT ON COLUMN form_submissions.attempt IS 'Counts the claims; only the holder of the last one may settle or give back';
COMMENT ON COLUMN form_submissions.lease_until IS 'Until then nobody else may claim, by the database''s clock';
COMMENT ON COLUMN form_submissions.claimed_at IS 'When the last claim was made';
COMMENT ON COLUMN form_submissions.settled_at IS 'When the broker''s confirm was noted; null before';

-- Rate limits.

CREATE UNLOGGED TABLE rate_limits (
    key  bytea PRIMARY KEY,
    hits timestamptz[] NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);
COMMENT ON TABLE rate_limits IS 'Who has asked how often in the last 60 seconds. Empty after a crash of the database, which is no harm';
COMMENT ON COLUMN rate_limits.key IS 'What is limited: a kind (one byte) and a token''s SHA-256 or a client''s address';
COMMENT ON COLUMN rate_limits.hits IS 'When each request was let through, oldest first';

-- The row is locked before the clock is read, so hits stand in the order in which they were let through.
CREATE FUNCTION take_hits(limited bytea, most integer, wanted integer,
    OUT granted integer, OUT next_in double precision, OUT clock timestamptz)
LANGUAGE plpgsql AS $$
DECLARE
    kept timestamptz[];
BEGIN
    INSERT INTO rate_limits AS r (key, hits) VALUES (limited, '{}')
    ON CONFLICT (key) DO UPDATE SET hits = r.hits RETURNING hits INTO kept;
    clock := clock_timestamp();
    kept := ARRAY(SELECT hit FROM unnest(kept) AS hit WHERE hit > clock - interval '60 seconds' ORDER BY hit);
    granted := least(wanted, greatest(most - cardinality(kept), 0));
    kept := kept || array_fill(clock, ARRAY[granted]);
    next_in := extract(epoch FROM kept[cardinality(kept) - most + 1] + interval '60 seconds' - clock);
    IF granted > 0 THEN
        UPDATE rate_limits SET hits = kept WHERE key = limited;
    END IF;
END
$$;
COMMENT ON FUNCTION take_hits IS 'Lets up to `wanted` requests through, `most` in any 60 seconds, and notes them under `clock`; `next_in`: seconds until one more would pass, null if now';

CREATE FUNCTION give_back_hit(limited bytea, taken_at timestamptz) RETURNS void LANGUAGE sql AS $$
    UPDATE rate_limits SET hits = hits[:array_position(hits, taken_at) - 1] || hits[array_position(hits, taken_at) + 1:]
    WHERE key = limited AND array_position(hits, taken_at) IS NOT NULL
$$;
COMMENT ON FUNCTION give_back_hit IS 'Forgets one of the requests that were noted under `taken_at`: another limit has refused it';

-- A run starts here; what becomes of it is for later migrations to say.

ALTER TABLE workspaces ADD COLUMN run_allowance integer CHECK (run_allowance >= 0);
COMMENT ON COLUMN workspaces.run_allowance IS 'Runs that may start in a calendar month (UTC); null is without limit';

CREATE TABLE run_usage (
    workspace_id uuid NOT NULL REFERENCES workspaces,
    month        date NOT NULL CHECK (extract(day FROM month) = 1),
    started      integer NOT NULL DEFAULT 0 CHECK (started >= 0),
    PRIMARY KEY (workspace_id, month)
);
COMMENT ON TABLE run_usage IS 'How much of its allowance a workspace has used';
COMMENT ON COLUMN run_usage.workspace_id IS 'Tenant';
COMMENT ON COLUMN run_usage.month IS 'First day of a calendar month, UTC';
COMMENT ON COLUMN run_usage.started IS 'Runs that have started in it; refused ones do not count';

CREATE TABLE runs (
    workspace_id   uuid NOT NULL,
    run_id         uuid NOT NULL,
    workflow_id    uuid NOT NULL,
    release_id     uuid NOT NULL,
    run_as         uuid NOT NULL REFERENCES users,
    state          text NOT NULL CHECK (state IN ('queued', 'refused')),
    refused_reason text CHECK (refused_reason IN ('owner_cannot_run', 'workflow_unavailable', 'allowance_exhausted')),
    input          bytea NOT NULL,
    input_trust    text NOT NULL DEFAULT 'untrusted' CHECK (input_trust = 'untrusted'),
    received_at    timestamptz NOT NULL,
    created_at     timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (workspace_id, run_id),
    FOREIGN KEY (workspace_id, workflow_id, release_id) REFERENCES releases (workspace_id, workflow_id, release_id),
    CONSTRAINT refused_says_why CHECK ((state = 'refused') = (refused_reason IS NOT NULL))
);
CREATE INDEX runs_by_workflow ON runs (workspace_id, workflow_id, run_id);
COMMENT ON TABLE runs IS 'One production run of a release, started or refused; one for each submission';
COMMENT ON COLUMN runs.workspace_id IS 'Tenant';
COMMENT ON COLUMN runs.run_id IS 'Id of the submission (UUIDv7: sorts by time of receipt)';
COMMENT ON COLUMN runs.workflow_id IS 'The workflow that runs';
COMMENT ON COLUMN runs.release_id IS 'The release that the submission was validated against';
COMMENT ON COLUMN runs.run_as IS 'The workflow''s owner when the run started';
COMMENT ON COLUMN runs.state IS 'queued: started, waits for its actions; refused: never started';
COMMENT ON COLUMN runs.refused_reason IS 'Why it was refused; null when it was not';
COMMENT ON COLUMN runs.input IS 'JSON text of what was submitted, validated';
COMMENT ON COLUMN runs.input_trust IS 'What a submitter wrote is never trusted';
COMMENT ON COLUMN runs.received_at IS 'When the gateway received it, by the gateway''s clock';
COMMENT ON COLUMN runs.created_at IS 'When the worker recorded it, by the database''s clock';

-- Least rights.

GRANT SELECT ON live_form_links TO letterbox_gateway;
GRANT SELECT, INSERT, UPDATE ON form_submissions TO letterbox_gateway;
GRANT SELECT, INSERT, UPDATE, DELETE ON rate_limits TO letterbox_gateway;
GRANT SELECT (workspace_id, workflow_id, owner_id, state) ON workflows TO letterbox_worker;
GRANT SELECT (workspace_id, user_id, may_run) ON members TO letterbox_worker;
GRANT SELECT (workspace_id, run_allowance) ON workspaces TO letterbox_worker;
GRANT SELECT, INSERT, UPDATE ON run_usage TO letterbox_worker;
GRANT SELECT (workspace_id, run_id, state), INSERT ON runs TO letterbox_worker;
GRANT SELECT, INSERT, UPDATE, DELETE ON form_submissions, run_usage, runs TO letterbox_operator;
