-- Keeps the public from filling the disk. The amount that a workspace and a webhook store in a day
-- is counted and limited, and old data is deleted if the operator wants that. The data by which
-- repeats are recognized is never deleted: keys are remembered, a signal stays without its body,
-- and of a deleted run the id stays.

-- What workers write for all tenants refers to no row that a tenant's people may lock.

CREATE TABLE stored_bytes (
    workspace_id uuid NOT NULL,
    day          date NOT NULL,
    webhook_id   uuid,
    bytes        bigint NOT NULL,
    UNIQUE NULLS NOT DISTINCT (workspace_id, day, webhook_id)
);
COMMENT ON TABLE stored_bytes IS
    'Bytes stored per day, written every few seconds: for a limit, not for accounting';
COMMENT ON COLUMN stored_bytes.day IS 'In UTC';
COMMENT ON COLUMN stored_bytes.webhook_id IS
    'The webhook whose deliveries are counted; null for the whole workspace, forms included';
COMMENT ON COLUMN stored_bytes.bytes IS
    'Bodies of signals, inputs of runs, requests and answers, and 512 for each row';

CREATE TABLE erased_runs (
    workspace_id uuid NOT NULL,
    run_id       uuid NOT NULL,
    PRIMARY KEY (workspace_id, run_id)
);
COMMENT ON TABLE erased_runs IS 'Deleted runs: repeats of their submissions start nothing';
COMMENT ON COLUMN erased_runs.run_id IS 'The id of the submission';

-- Old data is found by the time a signal was stored or a run finished, by the database's clock: new
-- rows are at the end of the indexes signals_by_position, of each workspace, and runs_by_end.

CREATE TABLE forgotten (
    what     text PRIMARY KEY CHECK (what IN ('bodies', 'inputs', 'requests', 'runs')),
    until_at timestamptz NOT NULL DEFAULT '-infinity',
    until_id uuid,
    left_at  timestamptz
);
COMMENT ON TABLE forgotten IS 'The progress of retention';
COMMENT ON COLUMN forgotten.what IS
    'Bodies of signals, inputs of runs, requests of actions, or whole runs';
COMMENT ON COLUMN forgotten.until_at IS 'When the last examined run finished; unused for bodies';
COMMENT ON COLUMN forgotten.until_id IS
    'Its id; for bodies the workspace that is examined next; null before the first';
COMMENT ON COLUMN forgotten.left_at IS
    'When the first run finished that was locked, for the next sweep; null if none was';
INSERT INTO forgotten (what) VALUES ('bodies'), ('inputs'), ('requests'), ('runs');

CREATE TABLE forgotten_bodies (
    workspace_id uuid PRIMARY KEY,
    position     bigint NOT NULL
);
COMMENT ON TABLE forgotten_bodies IS 'The progress of the retention of bodies';
COMMENT ON COLUMN forgotten_bodies.position IS 'Signals up to here have none any more';

CREATE FUNCTION forget_bodies(days integer, most integer) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    tenant uuid;
    since bigint;
    ids uuid[];
    last bigint;
    young bigint;
    examined integer := 0;
BEGIN
    FOR tenant IN SELECT w.workspace_id FROM workspaces w, forgotten f
        WHERE f.what = 'bodies' AND w.workspace_id >= coalesce(f.until_id,
            '00000000-0000-0000-0000-000000000000')
        ORDER BY w.workspace_id
    LOOP
        IF examined >= most THEN
            UPDATE forgotten SET until_id = tenant WHERE what = 'bodies';
            RETURN examined;
        END IF;
        SELECT position INTO since FROM forgotten_bodies WHERE workspace_id = tenant;
        SELECT array_agg(signal_id), max(position),
            min(position) FILTER (WHERE stored_at >= now() - make_interval(days => days))
        INTO ids, last, young
        FROM (SELECT s.signal_id, s.position, s.stored_at FROM signals s
              WHERE s.workspace_id = tenant AND s.position > coalesce(since, -1)
              ORDER BY s.position FETCH FIRST (most - examined) ROWS WITH TIES) AS next;
        last := least(last, young - 1);
        CONTINUE WHEN ids IS NULL OR last <= coalesce(since, -1);
        UPDATE signals s SET body = NULL, headers = NULL
        WHERE s.workspace_id = tenant AND s.signal_id = ANY (ids) AND s.position <= last
            AND s.body IS NOT NULL;
        INSERT INTO forgotten_bodies VALUES (tenant, last)
        ON CONFLICT (workspace_id) DO UPDATE SET position = EXCLUDED.position;
        examined := examined + cardinality(ids);
    END LOOP;
    UPDATE forgotten SET until_id = NULL WHERE what = 'bodies';
    RETURN examined;
END
$$;
COMMENT ON FUNCTION forget_bodies IS
    'Deletes bodies and kept headers that are older than `days`, at most about `most` of them; '
    'returns how many it has examined, 0 when it is done. Of a workspace it goes on from where it '
    'was; what is young ends it there';

-- Workers decide when to delete, the function what: nothing younger than a day, and no unfinished
-- run.

CREATE FUNCTION forget(wanted text, days integer, most integer) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    since forgotten;
    seen_tenants uuid[];
    seen uuid[];
    times timestamptz[];
    tenants uuid[];
    ids uuid[];
BEGIN
    IF days IS NULL OR days < 1 OR days > 36500 THEN
        RAISE EXCEPTION 'data must be kept for 1 to 36500 days'
            USING ERRCODE = 'insufficient_privilege';
    END IF;
    SELECT * INTO since FROM forgotten WHERE what = wanted FOR UPDATE;
    IF wanted = 'bodies' THEN
        RETURN forget_bodies(days, most);
    END IF;
    SELECT array_agg(workspace_id), array_agg(run_id), array_agg(finished_at) INTO seen_tenants,
        seen, times
    FROM (SELECT workspace_id, run_id, finished_at FROM runs
          WHERE (finished_at, run_id) > (since.until_at, since.until_id)
            AND finished_at < now() - make_interval(days => days)
          ORDER BY finished_at, run_id LIMIT most) AS next;
    IF seen IS NULL THEN
        -- The next sweep begins with what this one has left.
        UPDATE forgotten SET left_at = NULL, until_at = coalesce(left_at, until_at),
            until_id = CASE WHEN left_at IS NULL THEN until_id
                ELSE '00000000-0000-0000-0000-000000000000' END
        WHERE what = wanted;
        RETURN 0;
    END IF;
    -- Runs that somebody keeps locked hold up no others.
    SELECT array_agg(workspace_id), array_agg(run_id) INTO tenants, ids
    FROM (SELECT r.workspace_id, r.run_id
          FROM unnest(seen_tenants, seen) AS next (workspace_id, run_id)
          JOIN runs r ON r.workspace_id = next.workspace_id AND r.run_id = next.run_id
          ORDER BY r.workspace_id, r.run_id FOR UPDATE OF r SKIP LOCKED) AS mine;
    IF wanted = 'inputs' THEN
        UPDATE runs r SET input = NULL FROM unnest(tenants, ids) AS old (workspace_id, run_id)
        WHERE r.workspace_id = old.workspace_id AND r.run_id = old.run_id AND r.input IS NOT NULL;
    ELSIF wanted = 'requests' THEN
        UPDATE run_actions a SET request = NULL FROM unnest(tenants, ids) AS old (workspace_id,
            run_id)
        WHERE a.workspace_id = old.workspace_id AND a.run_id = old.run_id AND a.request IS NOT NULL;
    ELSIF wanted = 'runs' THEN
        INSERT INTO erased_runs SELECT * FROM unnest(tenants, ids) ON CONFLICT DO NOTHING;
        DELETE FROM approvals p USING unnest(tenants, ids) AS old (workspace_id, run_id)
        WHERE p.workspace_id = old.workspace_id AND p.run_id = old.run_id;
        DELETE FROM run_actions a USING unnest(tenants, ids) AS old (workspace_id, run_id)
        WHERE a.workspace_id = old.workspace_id AND a.run_id = old.run_id;
        DELETE FROM changed_repeats c USING unnest(tenants, ids) AS old (workspace_id, run_id)
        WHERE c.workspace_id = old.workspace_id AND c.run_id = old.run_id;
        DELETE FROM runs r USING unnest(tenants, ids) AS old (workspace_id, run_id)
        WHERE r.workspace_id = old.workspace_id AND r.run_id = old.run_id;
    END IF;
    UPDATE forgotten SET until_at = times[cardinality(times)], until_id = seen[cardinality(seen)],
        left_at = least(left_at, (SELECT min(time) FROM unnest(seen, times) AS one (run_id, time)
            WHERE run_id <> ALL (coalesce(ids, '{}'))))
    WHERE what = wanted;
    RETURN cardinality(seen);
END
$$;
COMMENT ON FUNCTION forget IS
    'Deletes data older than `days`, at most `most` rows of it; returns how many it has examined, '
    '0 when it is done';

CREATE FUNCTION erase_run(tenant uuid, erased uuid) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    IF NOT is_operator() AND tenant <> ALL (workspaces_as('owner')) THEN
        RAISE EXCEPTION 'only an owner of the workspace erases'
            USING ERRCODE = 'insufficient_privilege';
    END IF;
    UPDATE runs SET input = NULL, failing = NULL, failure = CASE
        WHEN failure IS NOT NULL THEN coalesce(cancel_reason, '(erased)') END
    WHERE workspace_id = tenant AND run_id = erased
        AND state IN ('succeeded', 'failed', 'denied', 'cancelled', 'refused');
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    UPDATE run_actions SET request = NULL, error = NULL WHERE workspace_id = tenant
        AND run_id = erased;
    RETURN true;
END
$$;
COMMENT ON FUNCTION erase_run IS
    'Deletes the input of a run and the requests sent for it, for an operator or an owner of the '
    'workspace; false unless the run has finished';
REVOKE EXECUTE ON FUNCTION forget_bodies, forget, erase_run FROM PUBLIC;
GRANT EXECUTE ON FUNCTION forget TO letterbox_worker;
GRANT EXECUTE ON FUNCTION erase_run TO letterbox_operator, letterbox_desk;

CREATE FUNCTION forget_payload_hash()
    RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE form_submissions SET payload_hash = NULL
    WHERE workspace_id = coalesce(NEW.workspace_id, OLD.workspace_id)
        AND claim_id = coalesce(NEW.run_id, OLD.run_id)
      AND payload_hash IS NOT NULL;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION forget_payload_hash IS 'Deletes the hash of a payload with the input';
REVOKE EXECUTE ON FUNCTION forget_payload_hash FROM PUBLIC;
CREATE TRIGGER forget_payload_hash_of_deleted AFTER DELETE ON runs
    FOR EACH ROW EXECUTE FUNCTION forget_payload_hash();
CREATE TRIGGER forget_payload_hash_of_erased AFTER UPDATE OF input ON runs
    FOR EACH ROW WHEN (NEW.input IS NULL) EXECUTE FUNCTION forget_payload_hash();
CREATE TRIGGER forget_payload_hash_of_refused AFTER INSERT ON runs
    FOR EACH ROW WHEN (NEW.input IS NULL) EXECUTE FUNCTION forget_payload_hash();

CREATE FUNCTION forget_values() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    NEW.found_by := NULL;
    RETURN NEW;
END
$$;
COMMENT ON FUNCTION forget_values IS 'Deletes the lookup ids of a run with its input';
CREATE TRIGGER forget_values BEFORE UPDATE OF input ON runs
    FOR EACH ROW WHEN (NEW.input IS NULL AND OLD.input IS NOT NULL)
        EXECUTE FUNCTION forget_values();

GRANT SELECT ON stored_bytes TO letterbox_gateway, letterbox_operator;
GRANT SELECT, INSERT, DELETE, UPDATE (bytes) ON stored_bytes TO letterbox_worker;
-- What a worker has counted of a workspace that is gone is dropped.
GRANT SELECT (workspace_id) ON workspaces TO letterbox_worker;
GRANT SELECT ON erased_runs TO letterbox_worker, letterbox_operator;
