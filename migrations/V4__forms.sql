-- Form links. A form link is live from its creation until the workflow or its owner's membership
-- moves. Triggers end it in the transaction of that move, so that this holds for every client and
-- every statement. A link also closes at a time, or after a number of submissions: then it still
-- answers repeats of known keys, and is dead for everything else. The only definition of a live
-- link is the view live_links; the gateway sees workflows only through it and live_form_links.
--
-- A transaction that makes or ends links first writes the workflow's row: of two transactions that
-- don't see each other's work (REPEATABLE READ), one fails. A member gets a new mark each time the
-- right to run begins, and a link carries the mark under which it was made: whatever such a
-- transaction sees, a link with another mark is dead. Rows are locked in the order member,
-- workflow, link.

CREATE TABLE form_links (
    workspace_id        uuid NOT NULL,
    form_link_id        uuid NOT NULL,
    workflow_id         uuid NOT NULL,
    release_id          uuid NOT NULL,
    token_sha256        bytea NOT NULL CHECK (octet_length(token_sha256) = 32),
    created_at          timestamptz NOT NULL DEFAULT now(),
    ended_at            timestamptz,
    owner_may_run_since uuid,
    closes_at           timestamptz,
    max_answers         integer CHECK (max_answers > 0),
    answers             integer NOT NULL DEFAULT 0,
    PRIMARY KEY (workspace_id, form_link_id),
    CONSTRAINT answers_are_bounded CHECK (answers <= max_answers),
    CONSTRAINT closes_later CHECK (closes_at > created_at),
    FOREIGN KEY (workspace_id, workflow_id, release_id)
        REFERENCES releases (workspace_id, workflow_id, release_id)
);
COMMENT ON TABLE form_links IS
    'The links of a workflow''s form; at most one is live, an ended one stays ended';
COMMENT ON COLUMN form_links.form_link_id IS 'Names the link to its owner without being its token';
COMMENT ON COLUMN form_links.release_id IS 'The release that was live when the link was made';
COMMENT ON COLUMN form_links.token_sha256 IS
    'SHA-256 of the token; the token itself is stored nowhere';
COMMENT ON COLUMN form_links.ended_at IS 'When the link died; null while it lives';
COMMENT ON COLUMN form_links.owner_may_run_since IS
    'The owner''s mark when the link was made: the link is live only under this mark';
COMMENT ON COLUMN form_links.closes_at IS
    'Time from which it accepts nothing new, by the database''s clock; null means never';
COMMENT ON COLUMN form_links.max_answers IS
    'Number of submissions after which it accepts nothing new; null means no limit';
COMMENT ON COLUMN form_links.answers IS
    'Submissions claimed through it; counted if there is a limit';
CREATE INDEX form_links_bounded ON form_links (token_sha256) WHERE max_answers IS NOT NULL
    AND ended_at IS NULL;
CREATE UNIQUE INDEX form_links_by_token ON form_links (token_sha256);
CREATE UNIQUE INDEX form_links_one_live ON form_links (workspace_id, workflow_id)
    WHERE ended_at IS NULL;

CREATE FUNCTION end_form_links(workspace uuid, workflow uuid) RETURNS void LANGUAGE sql
BEGIN ATOMIC
    UPDATE form_links SET ended_at = clock_timestamp()
    WHERE workspace_id = workspace AND workflow_id = workflow AND ended_at IS NULL;
END;
COMMENT ON FUNCTION end_form_links IS 'Ends the live link of a workflow, if there is one';

CREATE FUNCTION form_link_is_made() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    owner uuid;
BEGIN
    SELECT owner_id INTO owner FROM workflows WHERE workspace_id = NEW.workspace_id
        AND workflow_id = NEW.workflow_id;
    SELECT may_run_since INTO NEW.owner_may_run_since FROM members
    WHERE workspace_id = NEW.workspace_id AND user_id = owner AND may_run FOR SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the owner may not run workflows' USING ERRCODE = 'restrict_violation',
            CONSTRAINT = 'owner_may_run';
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
COMMENT ON FUNCTION form_link_is_made IS
    'Only a deployed workflow whose owner may run gets a link, and the new link ends the previous '
    'one';
CREATE TRIGGER form_link_is_made BEFORE INSERT ON form_links
    FOR EACH ROW EXECUTE FUNCTION form_link_is_made();

CREATE FUNCTION form_link_ends() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    counts boolean := NEW.ended_at IS NULL AND NEW.answers > OLD.answers;
    ends boolean := NEW.ended_at IS NOT NULL AND NEW.answers = OLD.answers;
BEGIN
    IF OLD.ended_at IS NOT NULL OR NOT (counts OR ends)
        OR (NEW.workspace_id, NEW.form_link_id, NEW.workflow_id, NEW.release_id, NEW.token_sha256,
            NEW.owner_may_run_since,
            NEW.closes_at, NEW.max_answers)
            IS DISTINCT FROM (OLD.workspace_id, OLD.form_link_id, OLD.workflow_id, OLD.release_id,
                OLD.token_sha256,
                OLD.owner_may_run_since, OLD.closes_at, OLD.max_answers) THEN
        RAISE EXCEPTION 'a form link only ever ends, once' USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END
$$;
COMMENT ON FUNCTION form_link_ends IS
    'A link never becomes live again, and its answers are only counted up';
CREATE TRIGGER form_link_ends BEFORE UPDATE ON form_links
    FOR EACH ROW EXECUTE FUNCTION form_link_ends();

CREATE FUNCTION workflow_moves() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    IF OLD.state = 'deleted' THEN
        RAISE EXCEPTION 'a deleted workflow stays deleted' USING ERRCODE = 'restrict_violation';
    END IF;
    PERFORM end_form_links(OLD.workspace_id, OLD.workflow_id);
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION workflow_moves IS
    'Every move ends the live link, also a move to the same state: redeploy, re-activation';
CREATE TRIGGER workflow_moves AFTER UPDATE OF state, live_release_id, owner_id, workspace_id,
    workflow_id ON workflows
    FOR EACH ROW EXECUTE FUNCTION workflow_moves();

CREATE FUNCTION member_changes() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND NEW.may_run AND (NEW.workspace_id, NEW.user_id) = (OLD.workspace_id,
        OLD.user_id) THEN
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
CREATE TRIGGER member_changes AFTER UPDATE OR DELETE ON members
    FOR EACH ROW EXECUTE FUNCTION member_changes();

CREATE FUNCTION refuse_truncation() RETURNS trigger LANGUAGE plpgsql
    SET search_path FROM CURRENT AS $$
BEGIN
    RAISE EXCEPTION '% is not truncated: form links hang from each row',
        TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
END
$$;
COMMENT ON FUNCTION refuse_truncation IS 'Refuses TRUNCATE, which would bypass the row triggers';
CREATE TRIGGER members_are_not_truncated BEFORE TRUNCATE ON members FOR EACH STATEMENT
    EXECUTE FUNCTION refuse_truncation();

CREATE VIEW live_links AS
SELECT l.token_sha256, l.workspace_id, l.workflow_id, l.form_link_id, l.release_id,
    (l.closes_at IS NULL OR l.closes_at > statement_timestamp())
        AND (l.max_answers IS NULL OR l.answers < l.max_answers) AS is_open,
    l.max_answers IS NOT NULL AS is_counted
FROM form_links l
JOIN workflows w ON w.workspace_id = l.workspace_id AND w.workflow_id = l.workflow_id
    AND w.state = 'deployed' AND w.live_release_id = l.release_id
JOIN members m ON m.workspace_id = w.workspace_id AND m.user_id = w.owner_id AND m.may_run
    AND m.may_run_since = l.owner_may_run_since
WHERE l.ended_at IS NULL;
COMMENT ON VIEW live_links IS 'The links that answer; the only definition of a live link';
COMMENT ON COLUMN live_links.token_sha256 IS 'SHA-256 of the token';
COMMENT ON COLUMN live_links.is_open IS
    'Whether it accepts new submissions; otherwise it only answers repeats of accepted ones';

CREATE VIEW live_form_links AS
SELECT l.*, r.form, r.page, r.least_seconds
FROM live_links l JOIN releases r USING (workspace_id, workflow_id, release_id);
COMMENT ON VIEW live_form_links IS 'The live links, with the answer to a reader of the link';

-- Not in form_links: whoever counts waits keeps no link from ending.
CREATE TABLE form_link_waits (
    workspace_id uuid NOT NULL,
    form_link_id uuid NOT NULL,
    times        bigint NOT NULL,
    PRIMARY KEY (workspace_id, form_link_id)
);
COMMENT ON TABLE form_link_waits IS
    'How many requests of each link found more than its limit in a minute, and had to wait';
COMMENT ON COLUMN form_link_waits.times IS 'How many requests';

CREATE FUNCTION count_waits(tokens bytea[], counts bigint[]) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    INSERT INTO form_link_waits AS w (workspace_id, form_link_id, times)
    SELECT l.workspace_id, l.form_link_id, sum(n.times)
    FROM unnest(tokens, counts) AS n (token, times)
    JOIN form_links l ON l.token_sha256 = n.token AND l.ended_at IS NULL
    GROUP BY l.workspace_id, l.form_link_id
    -- In order, so that two gateways can't deadlock.
    ORDER BY l.workspace_id, l.form_link_id
    ON CONFLICT (workspace_id, form_link_id) DO UPDATE SET times = w.times + EXCLUDED.times
$$;
COMMENT ON FUNCTION count_waits IS 'Adds to how many requests of form links had to wait';

-- Whoever moves a workflow or a member ends its links, also those that they do not see.
REVOKE EXECUTE ON FUNCTION form_link_is_made, workflow_moves, member_changes, count_waits
    FROM PUBLIC;
GRANT EXECUTE ON FUNCTION count_waits TO letterbox_gateway;
GRANT SELECT, INSERT, UPDATE ON form_links TO letterbox_operator;
GRANT SELECT ON form_link_waits TO letterbox_operator;
GRANT SELECT ON live_links, live_form_links TO letterbox_gateway;
