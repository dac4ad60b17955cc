-- Why: a transaction of an isolation level above READ COMMITTED that takes a member's right away does not see a link that
-- was made for a workflow it can't see either, and so does not end it; when the member got the right back, the link lived
-- again. Now each time that a member gets the right has a mark of its own, and a link carries the mark under which it was
-- made: whatever a transaction sees, a link of another time is dead. And a link that has ended can't be deleted and made
-- again.

ALTER TABLE members ADD COLUMN may_run_since uuid NOT NULL DEFAULT gen_random_uuid();
COMMENT ON COLUMN members.may_run_since IS 'Marks the time since which the member may run workflows: another one each time that this begins';

CREATE FUNCTION member_gets_right() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' OR (NEW.workspace_id, NEW.user_id) <> (OLD.workspace_id, OLD.user_id) OR NOT OLD.may_run THEN
        NEW.may_run_since := gen_random_uuid();
    ELSE
        NEW.may_run_since := OLD.may_run_since;
    END IF;
    RETURN NEW;
END
$$;
COMMENT ON FUNCTION member_gets_right IS 'Nobody chooses the mark';
CREATE TRIGGER member_gets_right BEFORE INSERT OR UPDATE ON members FOR EACH ROW EXECUTE FUNCTION member_gets_right();

ALTER TABLE form_links ADD COLUMN owner_may_run_since uuid;
COMMENT ON COLUMN form_links.owner_may_run_since IS 'The owner''s mark when the link was made: it lives under no other';
ALTER TABLE form_links DISABLE TRIGGER form_link_ends;
UPDATE form_links l SET owner_may_run_since = m.may_run_since
FROM workflows w JOIN members m ON m.workspace_id = w.workspace_id AND m.user_id = w.owner_id
WHERE w.workspace_id = l.workspace_id AND w.workflow_id = l.workflow_id AND l.ended_at IS NULL;
ALTER TABLE form_links ENABLE TRIGGER form_link_ends;

CREATE OR REPLACE FUNCTION form_link_is_made() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    owner uuid;
BEGIN
    SELECT owner_id INTO owner FROM workflows WHERE workspace_id = NEW.workspace_id AND workflow_id = NEW.workflow_id;
    SELECT may_run_since INTO NEW.owner_may_run_since FROM members
    WHERE workspace_id = NEW.workspace_id AND user_id = owner AND may_run FOR SHARE;
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

CREATE OR REPLACE FUNCTION form_link_ends() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.ended_at IS NOT NULL OR NEW.ended_at IS NULL
        OR (NEW.workspace_id, NEW.form_link_id, NEW.workflow_id, NEW.release_id, NEW.token_sha256, NEW.owner_may_run_since)
            IS DISTINCT FROM (OLD.workspace_id, OLD.form_link_id, OLD.workflow_id, OLD.release_id, OLD.token_sha256,
                OLD.owner_may_run_since) THEN
        RAISE EXCEPTION 'a form link only ever ends, once' USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END
$$;

CREATE OR REPLACE VIEW live_form_links AS
SELECT l.token_sha256, l.workspace_id, l.workflow_id, l.form_link_id, l.release_id, r.form
FROM form_links l
JOIN workflows w ON w.workspace_id = l.workspace_id AND w.workflow_id = l.workflow_id
    AND w.state = 'deployed' AND w.live_release_id = l.release_id
JOIN members m ON m.workspace_id = w.workspace_id AND m.user_id = w.owner_id AND m.may_run
    AND m.may_run_since = l.owner_may_run_since
JOIN releases r ON r.workspace_id = l.workspace_id AND r.workflow_id = l.workflow_id AND r.release_id = l.release_id
WHERE l.ended_at IS NULL;

REVOKE DELETE ON form_links FROM letterbox_operator;
