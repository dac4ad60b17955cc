-- Operators' commands. Cancelling ends a run; a run that a worker holds ends when the worker has
-- recorded its current action. A retried run continues at the action that ended it, under the same
-- key if its outcome is unknown, so that nothing is done twice. Held runs wait. A workspace is
-- deleted in two steps: it is closed, so that nothing new arrives, then emptied in small pieces.

CREATE FUNCTION cancel_run(tenant uuid, cancelled uuid, why text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    active active_runs;
BEGIN
    PERFORM demand_control(tenant, cancelled);
    why := left(why, 1000);
    SELECT * INTO active FROM active_runs WHERE workspace_id = tenant AND run_id = cancelled
        FOR UPDATE;
    IF active.run_id IS NULL THEN
        RETURN NULL;
    END IF;
    -- The worker that has the run first records the outcome of its current action.
    IF active.state = 'taken' AND active.due_at > clock_timestamp() THEN
        UPDATE active_runs SET is_cancelled = true
        WHERE workspace_id = tenant AND run_id = cancelled;
        UPDATE runs SET cancel_reason = why WHERE workspace_id = tenant AND run_id = cancelled;
        RETURN 'requested';
    END IF;
    PERFORM end_runs(ARRAY[jsonb_populate_record(NULL::run_change, jsonb_build_object(
        'workspace_id', tenant, 'run_id', cancelled, 'state', 'cancelled', 'reason', why))]);
    RETURN 'cancelled';
END
$$;
COMMENT ON FUNCTION cancel_run IS
    'Cancels a run: cancelled, or requested while a worker has it; null if it has finished';

CREATE FUNCTION retry_run(tenant uuid, retried uuid, due_in double precision) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    run runs;
BEGIN
    PERFORM demand_control(tenant, retried);
    SELECT * INTO run FROM runs WHERE workspace_id = tenant AND run_id = retried FOR UPDATE;
    IF run.run_id IS NULL OR run.state NOT IN ('failed', 'denied', 'cancelled') THEN
        RETURN 'not_ended';
    ELSIF run.input IS NULL OR EXISTS (
        -- The answers were deleted with the requests.
        SELECT FROM run_actions WHERE workspace_id = tenant AND run_id = retried
            AND state = 'succeeded'
            AND response_status IS NOT NULL AND request IS NULL
                AND (type <> 'ai.agent' OR part_of IS NOT NULL)) THEN
        RETURN 'forgotten';
    END IF;
    UPDATE runs SET state = 'queued', failure = NULL, failing = NULL, cancel_reason = NULL,
        finished_at = NULL
    WHERE workspace_id = tenant AND run_id = retried;
    -- A new key if all attempts were answered, because an answer might be repeated under the former
    -- key. The request is rendered again if its account is gone. An action is still retrying whose
    -- attempt was answered after the run was over.
    WITH again AS (
        UPDATE run_actions a SET state = 'retrying', attempts = 0, retry_at = NULL,
            finished_at = NULL,
            idempotency_key = CASE WHEN a.unanswered = 0 THEN gen_random_uuid() ELSE
                a.idempotency_key END,
            request = CASE WHEN a.unanswered > 0 OR EXISTS (
                    SELECT FROM connected_accounts c
                    WHERE c.workspace_id = tenant AND c.account_id =
                        (a.request::json ->> 'account_id')::uuid
                      AND c.disconnected_at IS NULL)
                THEN a.request END
        WHERE a.workspace_id = tenant AND a.run_id = retried
            AND a.state IN ('failed', 'denied', 'cancelled', 'retrying') AND NOT a.is_told
        RETURNING a.action_id, a.request IS NULL OR a.unanswered = 0 AND a.begun > 0 AS is_new
    )
    -- An approval covers what was sent under one key.
    UPDATE approvals p SET state = 'withdrawn', decided_at = clock_timestamp()
    FROM again
    WHERE p.workspace_id = tenant AND p.run_id = retried AND p.action_id = again.action_id
      AND (p.state IN ('denied', 'expired') OR again.is_new);
    INSERT INTO active_runs (workspace_id, run_id, started_at, due_at, state)
    VALUES (tenant, retried, run.started_at, clock_timestamp() + due_in * interval '1 second',
        CASE WHEN due_in > 0 THEN 'scheduled' ELSE 'ready' END);
    RETURN 'queued';
END
$$;
COMMENT ON FUNCTION retry_run IS
    'Continues a run that failed, was denied or cancelled: queued; not_ended, or forgotten if its '
    'input was deleted';

CREATE FUNCTION hurry_runs(tenant uuid, account uuid, only_run uuid) RETURNS SETOF uuid
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    WITH waiting AS (
        SELECT r.run_id FROM active_runs r
        WHERE r.workspace_id = tenant AND (r.state = 'ready') IS FALSE AND r.state = 'scheduled'
          AND (only_run IS NULL OR r.run_id = only_run)
          AND (account IS NULL OR r.account_id = account)
        ORDER BY r.run_id FOR UPDATE
    ), hurried AS (
        UPDATE run_actions a SET retry_at = clock_timestamp() FROM waiting w
        WHERE a.workspace_id = tenant AND a.run_id = w.run_id AND a.state = 'retrying'
        RETURNING a.run_id
    )
    UPDATE active_runs r SET state = 'ready', due_at = clock_timestamp() FROM hurried h
    WHERE r.workspace_id = tenant AND r.run_id = h.run_id
    RETURNING r.run_id
$$;
COMMENT ON FUNCTION hurry_runs IS
    'Lets runs make their next attempt now: one of a workspace, those that wait for an account, or '
    'all; returns which';

CREATE FUNCTION release_hold(tenant uuid)
    RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
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
        coalesce(CASE WHEN tenant IS NULL THEN w.held_at ELSE all_since END,
            clock_timestamp()) - greatest(a.created_at, since))
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
COMMENT ON FUNCTION release_hold IS
    'Lets the runs of a workspace, or of all (null), begin actions again; false if they were not '
    'held';

CREATE FUNCTION close_workspace(tenant uuid) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE workflows SET state = 'deleted' WHERE workspace_id = tenant AND state <> 'deleted';
    UPDATE webhooks SET deleted_at = now(), secret_sealed = NULL WHERE workspace_id = tenant
        AND deleted_at IS NULL;
    UPDATE connected_accounts SET disconnected_at = now(), credential_sealed = NULL
    WHERE workspace_id = tenant AND disconnected_at IS NULL;
END
$$;
COMMENT ON FUNCTION close_workspace IS 'Ends forms, webhooks and accounts of a workspace';

CREATE FUNCTION empty_workspace(tenant uuid, most integer) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    emptied text;
    deleted bigint;
    former uuid[];
BEGIN
    IF EXISTS (SELECT FROM webhooks WHERE workspace_id = tenant AND deleted_at IS NULL)
        OR EXISTS (SELECT FROM workflows WHERE workspace_id = tenant AND state <> 'deleted') THEN
        RAISE EXCEPTION 'a workspace must be closed before it is emptied'
            USING ERRCODE = 'restrict_violation';
    END IF;
    -- Referring tables come before the tables that they refer to.
    FOREACH emptied IN ARRAY ARRAY['spilled_messages', 'subscriptions', 'approvals', 'run_actions',
        'active_runs', 'runs', 'erased_runs', 'run_usage', 'signals', 'stored_bytes',
        'claims', 'changed_repeats', 'memory', 'form_link_waits', 'form_links',
        'workflows',
        'webhook_refusals', 'webhook_repeats', 'webhooks', 'forgotten_bodies', 'grants',
        'account_trials', 'connected_accounts', 'policies'] LOOP
        IF emptied = 'workflows' THEN
            -- Workflows and releases refer to each other: delete both in one statement.
            WITH piece AS (
                DELETE FROM workflows WHERE ctid = ANY (ARRAY(SELECT ctid FROM workflows
                    WHERE workspace_id = tenant LIMIT most))
                RETURNING workflow_id
            ) DELETE FROM releases r USING piece WHERE r.workspace_id = tenant
                AND r.workflow_id = piece.workflow_id;
            GET DIAGNOSTICS deleted = ROW_COUNT;
            IF deleted > 0 OR EXISTS (SELECT FROM workflows WHERE workspace_id = tenant) THEN
                RETURN greatest(deleted, 1);
            END IF;
            CONTINUE;
        END IF;
        -- Some of the tables are divided; rows of two parts can have the same place.
        EXECUTE format('DELETE FROM %1$I t USING (SELECT tableoid AS part, ctid AS place FROM %1$I
                WHERE workspace_id = $1 LIMIT $2) piece
            WHERE t.tableoid = piece.part AND t.ctid = piece.place AND t.workspace_id = $1',
            emptied)
        USING tenant, most;
        GET DIAGNOSTICS deleted = ROW_COUNT;
        IF deleted > 0 THEN
            RETURN deleted;
        END IF;
    END LOOP;
    -- Only the id remains of people who belong to no other workspace, because other rows may refer
    -- to it.
    WITH gone AS (
        DELETE FROM members WHERE ctid = ANY (ARRAY(SELECT ctid FROM members
            WHERE workspace_id = tenant LIMIT most))
        RETURNING user_id
    ) SELECT array_agg(user_id) INTO former FROM gone;
    IF former IS NOT NULL THEN
        DELETE FROM sessions s WHERE s.user_id = ANY (former)
            AND NOT EXISTS (SELECT FROM members m WHERE m.user_id = s.user_id);
        DELETE FROM sign_in_links l WHERE l.user_id = ANY (former)
            AND NOT EXISTS (SELECT FROM members m WHERE m.user_id = l.user_id);
        DELETE FROM subjects s WHERE s.user_id = ANY (former)
            AND NOT EXISTS (SELECT FROM members m WHERE m.user_id = s.user_id);
        UPDATE users u SET email = u.user_id || '@deleted.invalid', name = 'deleted'
            WHERE u.user_id = ANY (former)
            AND NOT EXISTS (SELECT FROM members m WHERE m.user_id = u.user_id);
        RETURN cardinality(former);
    END IF;
    -- A worker may have written what it had counted, while the rest was deleted.
    DELETE FROM stored_bytes WHERE workspace_id = tenant;
    DELETE FROM workspaces WHERE workspace_id = tenant;
    RETURN 0;
END
$$;
COMMENT ON FUNCTION empty_workspace IS
    'Deletes at most `most` rows of a closed workspace; returns how many, 0 when the workspace '
    'itself is gone';

CREATE FUNCTION stop_search(tenant uuid, beyond uuid, most integer) RETURNS uuid
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    -- The first piece waits for transactions that record runs and began while the workspace was
    -- searchable; none holds up those that come later.
    SELECT FROM run_usage WHERE workspace_id = tenant AND beyond IS NULL FOR UPDATE;
    WITH next AS (
        SELECT run_id FROM runs WHERE workspace_id = tenant
            AND run_id > coalesce(beyond, '00000000-0000-0000-0000-000000000000')
            AND found_by IS NOT NULL
        ORDER BY run_id LIMIT most FOR UPDATE
    ), stopped AS (
        UPDATE runs r SET found_by = NULL FROM next WHERE r.workspace_id = tenant
            AND r.run_id = next.run_id
    )
    SELECT run_id FROM next ORDER BY run_id DESC LIMIT 1
$$;
COMMENT ON FUNCTION stop_search IS
    'Removes the next `most` runs after the given one, null for the first, from the search; '
    'returns the last of them, null when there are no more';

REVOKE EXECUTE ON FUNCTION cancel_run, retry_run, hurry_runs, release_hold, close_workspace,
    empty_workspace, stop_search FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cancel_run, retry_run, hurry_runs, release_hold, close_workspace,
    empty_workspace, stop_search TO letterbox_operator;

-- What gateways and workers say of themselves, for `letterbox status`.

CREATE TABLE processes (
    process_id uuid PRIMARY KEY,
    program    text NOT NULL CHECK (program IN ('gateway', 'worker')),
    name       text NOT NULL,
    is_ready   boolean NOT NULL,
    trouble    text,
    key_id     text NOT NULL,
    public_key bytea NOT NULL CHECK (octet_length(public_key) = 32),
    settings   jsonb NOT NULL CHECK (length(settings::text) <= 20000),
    seen_at    timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE processes IS 'The gateways and workers that are alive';
COMMENT ON COLUMN processes.process_id IS 'New at each start';
COMMENT ON COLUMN processes.program IS 'What it is';
COMMENT ON COLUMN processes.is_ready IS 'What its /readyz says';
COMMENT ON COLUMN processes.trouble IS
    'What it waits for or does without, and why; null if nothing';
COMMENT ON COLUMN processes.key_id IS 'The first of its sealing keys';
COMMENT ON COLUMN processes.public_key IS
    'The public half of that: what others seal to it, the process opens';
COMMENT ON COLUMN processes.settings IS 'Its settings by name; no secret is one of them';
COMMENT ON COLUMN processes.seen_at IS 'When it last said so; see is_alive';

CREATE FUNCTION tell_presence(id uuid, own_program text, own_name text, ready boolean, why text,
    key text, public bytea, told jsonb)
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    IF own_program NOT IN ('gateway', 'worker')
        OR NOT pg_has_role(session_user, 'letterbox_' || own_program, 'MEMBER') THEN
        RAISE EXCEPTION 'this login is not that of such a process'
            USING ERRCODE = 'insufficient_privilege';
    END IF;
    IF told IS DISTINCT FROM (SELECT jsonb_object_agg(left(one.name, 100), left(one.value, 1000))
                              FROM jsonb_each_text(told) AS one (name, value)) THEN
        RAISE EXCEPTION 'settings are short texts' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    UPDATE processes SET is_ready = ready, trouble = left(why, 1000), seen_at = clock_timestamp()
    WHERE process_id = id AND program = own_program;
    IF NOT FOUND THEN
        -- Nobody waits for a row that another keeps locked.
        DELETE FROM processes WHERE process_id IN (
            SELECT process_id FROM processes
            WHERE seen_at < clock_timestamp() - interval '1 minute' FOR UPDATE SKIP LOCKED);
        -- Nobody has that many; without a bound, a gateway in foreign hands could fill the table.
        IF (SELECT count(*) FROM processes WHERE program = own_program) >= 1000 THEN
            RAISE EXCEPTION 'too many processes' USING ERRCODE = 'program_limit_exceeded';
        END IF;
        INSERT INTO processes (process_id, program, name, is_ready, trouble, key_id, public_key,
            settings)
        VALUES (id, own_program, left(own_name, 300), ready, left(why, 1000), left(key, 32),
            public, told);
    END IF;
END
$$;
COMMENT ON FUNCTION tell_presence IS 'Notes that a process is alive, and how it fares';

CREATE FUNCTION end_presence(id uuid) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    DELETE FROM processes WHERE process_id = id
        AND pg_has_role(session_user, 'letterbox_' || program, 'MEMBER')
$$;
COMMENT ON FUNCTION end_presence IS 'Notes that a process has stopped';
REVOKE EXECUTE ON FUNCTION tell_presence, end_presence FROM PUBLIC;
GRANT EXECUTE ON FUNCTION tell_presence, end_presence TO letterbox_gateway, letterbox_worker;
GRANT SELECT ON processes TO letterbox_operator;
