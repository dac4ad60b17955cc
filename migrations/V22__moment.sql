-- Why: what was asked when an action was prepared could have changed when it was sent: a policy, a membership, an account, a hold,
-- and whether the person who had approved it still may. All of that is asked again by the statement that begins an attempt, and
-- these functions say it in one place. Time to answer stands still while a workspace is held, also where two holds overlap.
-- And what is forgotten, retried or erased meets nothing of each other.
--
-- Workers of before this file leave the answers of runs that have succeeded where they are. Stop them first.

-- Where functions with rights of their own search.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

CREATE FUNCTION question_clock(tenant uuid) RETURNS timestamptz LANGUAGE sql VOLATILE AS $$
    SELECT least(clock_timestamp(), (SELECT held_at FROM all_workspaces),
                 (SELECT held_at FROM workspaces WHERE workspace_id = tenant))
$$;
COMMENT ON FUNCTION question_clock IS 'The time that counts for questions of a workspace: it stands still while that is held';

CREATE FUNCTION approval_stands(tenant uuid, decider uuid, acting uuid) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT FROM members WHERE workspace_id = tenant AND user_id = decider
                   AND role IN ('owner', 'editor') AND deactivated_at IS NULL)
       AND (decider <> acting OR NOT needs_another(tenant))
$$;
COMMENT ON FUNCTION approval_stands IS 'Whether what this person has approved may be sent for the user as whom a run acts';

CREATE OR REPLACE FUNCTION worker_only_asks() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT pg_has_role(current_user, 'letterbox_operator', 'MEMBER') AND (
        (TG_OP = 'INSERT' AND NEW.state <> 'pending')
        OR (TG_OP = 'UPDATE' AND NEW.state <> OLD.state AND NEW.state NOT IN ('expired', 'withdrawn')
            AND NOT (OLD.state IN ('withdrawn', 'approved') AND NEW.state = 'pending'))
    ) THEN
        RAISE EXCEPTION 'a worker asks for approvals and does not give them' USING ERRCODE = 'insufficient_privilege';
    END IF;
    IF TG_OP = 'UPDATE' AND NEW.state = 'pending' AND OLD.state <> 'pending' THEN
        NEW.decided_by := NULL;
        NEW.decided_at := NULL;
        NEW.created_at := clock_timestamp();
    END IF;
    RETURN NEW;
END
$$;
GRANT SELECT (decided_by) ON approvals TO letterbox_worker;
GRANT SELECT (role, deactivated_at) ON members TO letterbox_worker;
GRANT SELECT (keep_answers) ON workspaces TO letterbox_worker;

-- A hold that ends while another one goes on has cost no time since that one began.
CREATE OR REPLACE FUNCTION release_hold(tenant uuid) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    all_since timestamptz;
    since timestamptz;
BEGIN
    SELECT held_at INTO all_since FROM all_workspaces FOR UPDATE;
    since := all_since;
    IF tenant IS NOT NULL THEN
        SELECT held_at INTO since FROM workspaces WHERE workspace_id = tenant FOR UPDATE;
    END IF;
    IF since IS NULL THEN
        RETURN false;
    END IF;
    UPDATE approvals a SET expires_at = expires_at + greatest(interval '0',
        coalesce(CASE WHEN tenant IS NULL THEN w.held_at ELSE all_since END, clock_timestamp()) - greatest(a.created_at, since))
    FROM workspaces w
    WHERE a.workspace_id = w.workspace_id AND a.state = 'pending' AND a.expires_at > since
      AND (tenant IS NULL OR a.workspace_id = tenant);
    IF tenant IS NULL THEN
        UPDATE all_workspaces SET held_at = NULL;
    ELSE
        UPDATE workspaces SET held_at = NULL WHERE workspace_id = tenant;
    END IF;
    RETURN true;
END
$$;

-- The worker that ends a run knows whether anything was kept for it.
DROP TRIGGER drop_answers_of_succeeded ON runs;
COMMENT ON FUNCTION drop_answers IS 'Drops the answers of a run whose input was forgotten';

-- An agent ends with its run.
CREATE FUNCTION end_agents() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE run_actions SET state = NEW.state, finished_at = clock_timestamp()
    WHERE workspace_id = NEW.workspace_id AND run_id = NEW.run_id AND type = 'ai.agent' AND part_of IS NULL
      AND state IN ('running', 'retrying');
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION end_agents IS 'Ends the agents that are under way when their run ends';
CREATE TRIGGER end_agents AFTER UPDATE OF state ON runs FOR EACH ROW
WHEN (NEW.state IN ('failed', 'denied', 'cancelled') AND OLD.state <> NEW.state) EXECUTE FUNCTION end_agents();

-- Why a run failed goes with the run, when that is erased.
CREATE OR REPLACE FUNCTION shown_in_audit(subject text, name text, value jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN value <> 'null' AND (name IN ('credential_sealed', 'secret_sealed', 'token_sha256', 'input')
            OR subject = 'users' AND name IN ('email', 'name') OR subject = 'runs' AND name IN ('failure', 'failing'))
        THEN '"(hidden)"' ELSE value END
$$;

CREATE OR REPLACE FUNCTION erase_run(tenant uuid, erased uuid) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE runs SET input = NULL, failing = NULL, failure = CASE WHEN failure IS NOT NULL THEN coalesce(cancel_reason, '(erased)') END
    WHERE workspace_id = tenant AND run_id = erased
        AND state IN ('succeeded', 'failed', 'denied', 'cancelled', 'refused');
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    UPDATE run_actions SET request = NULL, error = NULL WHERE workspace_id = tenant AND run_id = erased;
    RETURN true;
END
$$;

-- A run that is retried meanwhile is not over any more.
CREATE OR REPLACE FUNCTION forget(wanted text, days integer, most integer) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    since forgotten;
    tenants uuid[];
    ids uuid[];
    times timestamptz[];
BEGIN
    IF days IS NULL OR days < 1 OR days > 36500 THEN
        RAISE EXCEPTION 'things are kept from 1 to 36500 days' USING ERRCODE = 'insufficient_privilege';
    END IF;
    SELECT * INTO since FROM forgotten WHERE what = wanted FOR UPDATE;
    IF wanted = 'bodies' THEN
        SELECT array_agg(workspace_id), array_agg(signal_id), array_agg(stored_at) INTO tenants, ids, times
        FROM (SELECT workspace_id, signal_id, stored_at FROM signals
              WHERE (stored_at, signal_id) > (since.until_at, since.until_id)
                AND stored_at < now() - make_interval(days => days)
              ORDER BY stored_at, signal_id LIMIT most) AS next;
        UPDATE signals s SET body = NULL FROM unnest(tenants, ids) AS old (workspace_id, signal_id)
        WHERE s.workspace_id = old.workspace_id AND s.signal_id = old.signal_id AND s.body IS NOT NULL;
    ELSE
        SELECT array_agg(workspace_id), array_agg(run_id), array_agg(finished_at) INTO tenants, ids, times
        FROM (SELECT workspace_id, run_id, finished_at FROM runs
              WHERE (finished_at, run_id) > (since.until_at, since.until_id)
                AND finished_at < now() - make_interval(days => days)
              ORDER BY finished_at, run_id LIMIT most FOR UPDATE) AS next;
    END IF;
    IF wanted = 'inputs' THEN
        UPDATE runs r SET input = NULL FROM unnest(tenants, ids) AS old (workspace_id, run_id)
        WHERE r.workspace_id = old.workspace_id AND r.run_id = old.run_id AND r.input IS NOT NULL;
    ELSIF wanted = 'requests' THEN
        UPDATE run_actions a SET request = NULL FROM unnest(tenants, ids) AS old (workspace_id, run_id)
        WHERE a.workspace_id = old.workspace_id AND a.run_id = old.run_id AND a.request IS NOT NULL;
    ELSIF wanted = 'runs' THEN
        INSERT INTO erased_runs SELECT * FROM unnest(tenants, ids) ON CONFLICT DO NOTHING;
        DELETE FROM approvals p USING unnest(tenants, ids) AS old (workspace_id, run_id)
        WHERE p.workspace_id = old.workspace_id AND p.run_id = old.run_id;
        DELETE FROM run_actions a USING unnest(tenants, ids) AS old (workspace_id, run_id)
        WHERE a.workspace_id = old.workspace_id AND a.run_id = old.run_id;
        DELETE FROM run_wakes w USING unnest(tenants, ids) AS old (workspace_id, run_id)
        WHERE w.workspace_id = old.workspace_id AND w.run_id = old.run_id;
        DELETE FROM runs r USING unnest(tenants, ids) AS old (workspace_id, run_id)
        WHERE r.workspace_id = old.workspace_id AND r.run_id = old.run_id;
    END IF;
    IF ids IS NULL THEN
        RETURN 0;
    END IF;
    UPDATE forgotten SET until_at = times[cardinality(times)], until_id = ids[cardinality(ids)] WHERE what = wanted;
    RETURN cardinality(ids);
END
$$;
