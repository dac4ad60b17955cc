-- People, each as themselves. A person proves who they are by a session of the desk, which begins
-- with a sign-in link, or by a database login that is bound to them. Both work under the role
-- letterbox_desk, whose rows are limited by row-level security: whatever program asks, a person
-- sees and changes what their roles in workspaces allow. What that is, worker/README.md says.

-- The search path of the SECURITY DEFINER functions below.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

CREATE TABLE sign_in_links (
    token_sha256 bytea PRIMARY KEY CHECK (octet_length(token_sha256) = 32),
    user_id      uuid NOT NULL REFERENCES users,
    expires_at   timestamptz NOT NULL DEFAULT clock_timestamp() + interval '10 minutes'
);
COMMENT ON TABLE sign_in_links IS 'Links that begin a session, each once';
COMMENT ON COLUMN sign_in_links.token_sha256 IS
    'SHA-256 of the token; the token itself is stored nowhere';
COMMENT ON COLUMN sign_in_links.user_id IS 'Whose session it begins';
COMMENT ON COLUMN sign_in_links.expires_at IS 'From then on it begins none';

CREATE TABLE sessions (
    token_sha256 bytea PRIMARY KEY CHECK (octet_length(token_sha256) = 32),
    user_id      uuid NOT NULL REFERENCES users,
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    seen_at      timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE sessions IS 'Sessions of the desk that nobody has ended';
COMMENT ON COLUMN sessions.token_sha256 IS
    'SHA-256 of the token; the token itself is stored nowhere';
COMMENT ON COLUMN sessions.user_id IS 'Who works in it';
COMMENT ON COLUMN sessions.created_at IS 'Database clock; it ends seven days later';
COMMENT ON COLUMN sessions.seen_at IS 'Last use, to the minute; it ends twelve hours later';
CREATE INDEX sessions_by_user ON sessions (user_id);

CREATE TABLE bound_logins (
    login   name PRIMARY KEY,
    user_id uuid NOT NULL REFERENCES users
);
COMMENT ON TABLE bound_logins IS
    'Database logins of persons: under one, every program is that person';
COMMENT ON COLUMN bound_logins.login IS 'The login';
COMMENT ON COLUMN bound_logins.user_id IS 'Whose it is';

CREATE VIEW living_sessions AS
SELECT * FROM sessions WHERE created_at > clock_timestamp() - interval '7 days'
    AND seen_at > clock_timestamp() - interval '12 hours';
COMMENT ON VIEW living_sessions IS 'Sessions whose time is not over; the only definition of one';

CREATE FUNCTION acting() RETURNS TABLE (user_id uuid, proven_by text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT b.user_id, 'login' FROM bound_logins b WHERE b.login = session_user
    UNION ALL
    SELECT s.user_id, 'link' FROM living_sessions s
    WHERE s.token_sha256 = decode(current_setting('letterbox.session', true), 'hex')
      AND NOT EXISTS (SELECT FROM bound_logins b WHERE b.login = session_user)
$$;
COMMENT ON FUNCTION acting IS
    'The person who acts, and how they have proven it: by the login, or by the session whose '
    'hash the transaction names; no row if it is nobody';

CREATE FUNCTION workspaces_as(at_least text) RETURNS uuid[]
LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT coalesce(array_agg(m.workspace_id), '{}')
    FROM acting() JOIN members m USING (user_id)
    WHERE m.deactivated_at IS NULL
      AND array_position('{viewer,runner,editor,owner}', m.role)
          >= array_position('{viewer,runner,editor,owner}', at_least)
$$;
COMMENT ON FUNCTION workspaces_as IS
    'The workspaces in which the person who acts has this role or one that may do more';

CREATE FUNCTION is_operator() RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT pg_has_role(coalesce(nullif(current_setting('role'), 'none'), session_user),
        'letterbox_operator', 'USAGE')
$$;
COMMENT ON FUNCTION is_operator IS
    'Whether the caller has an operator''s rights, also where a function lends others';

CREATE FUNCTION demand_control(tenant uuid, run uuid) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    IF is_operator()
        OR tenant = ANY (workspaces_as('editor'))
        OR tenant = ANY (workspaces_as('runner')) AND EXISTS (SELECT FROM runs r JOIN acting() a
            ON a.user_id = r.run_as WHERE r.workspace_id = tenant AND r.run_id = run) THEN
        RETURN;
    END IF;
    RAISE EXCEPTION 'this run is not yours to control' USING ERRCODE = 'insufficient_privilege';
END
$$;
COMMENT ON FUNCTION demand_control IS
    'Fails unless an operator acts, an editor of the workspace, or a member who may run as whom '
    'the run acts';

CREATE FUNCTION begin_session(link bytea, session bytea) RETURNS uuid
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    WITH used AS (
        DELETE FROM sign_in_links WHERE token_sha256 = link RETURNING user_id, expires_at
    ), over AS (
        DELETE FROM sessions s USING used WHERE s.user_id = used.user_id
            AND NOT EXISTS (SELECT FROM living_sessions l WHERE l.token_sha256 = s.token_sha256)
    )
    INSERT INTO sessions (token_sha256, user_id)
    SELECT session, user_id FROM used WHERE expires_at > clock_timestamp()
    RETURNING user_id
$$;
COMMENT ON FUNCTION begin_session IS
    'Begins the session with this hash for the link with that one, which is used up; null if there '
    'is none';

CREATE FUNCTION greet() RETURNS TABLE (user_id uuid, email text, name text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE sessions s SET seen_at = clock_timestamp()
    WHERE s.token_sha256 = decode(current_setting('letterbox.session', true), 'hex')
      AND s.seen_at < clock_timestamp() - interval '1 minute'
      AND EXISTS (SELECT FROM living_sessions l WHERE l.token_sha256 = s.token_sha256);
    RETURN QUERY SELECT u.user_id, u.email, u.name FROM acting() JOIN users u USING (user_id);
END
$$;
COMMENT ON FUNCTION greet IS 'Who acts; notes that their session is in use';

CREATE FUNCTION end_session() RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    DELETE FROM sessions
    WHERE token_sha256 = decode(current_setting('letterbox.session', true), 'hex')
$$;
COMMENT ON FUNCTION end_session IS 'Ends the session that the transaction names';

CREATE FUNCTION changed_repeats(tenant uuid, submission uuid) RETURNS integer
LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT changed_repeats FROM form_submissions
    WHERE workspace_id = tenant AND submission_id = submission
      AND (is_operator() OR tenant = ANY (workspaces_as('viewer')))
$$;
COMMENT ON FUNCTION changed_repeats IS
    'How often the key of a submission came back with another payload; null once its claim has '
    'moved into the memory';

REVOKE EXECUTE ON FUNCTION acting, workspaces_as, demand_control, begin_session, greet, end_session,
    changed_repeats FROM PUBLIC;
GRANT EXECUTE ON FUNCTION acting, workspaces_as, changed_repeats
    TO letterbox_operator, letterbox_desk;
GRANT EXECUTE ON FUNCTION begin_session, greet, end_session, cancel_run, retry_run
    TO letterbox_desk;
GRANT SELECT, INSERT, DELETE ON sign_in_links, sessions, bound_logins TO letterbox_operator;

-- What people see: the rows of their workspaces. What they change, functions do for them.

DO $$
DECLARE
    seen text;
BEGIN
    FOREACH seen IN ARRAY ARRAY['workspaces', 'members', 'workflows', 'releases', 'policies',
        'runs', 'active_runs', 'run_actions', 'approvals', 'users'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', seen);
        EXECUTE format('CREATE POLICY processes_see_all ON %I
            TO letterbox_gateway, letterbox_worker, letterbox_operator USING (true)', seen);
        IF seen <> 'users' THEN
            EXECUTE format('CREATE POLICY members_see ON %I FOR SELECT TO letterbox_desk
                USING (workspace_id = ANY ((SELECT workspaces_as(''viewer''))::uuid[]))', seen);
        END IF;
    END LOOP;
END
$$;
CREATE POLICY members_see ON users FOR SELECT TO letterbox_desk USING (
    user_id IN (SELECT m.user_id FROM members m)
    OR user_id IN (SELECT f.owner_id FROM workflows f));
GRANT SELECT ON workspaces, members, workflows, releases, policies, runs, active_runs, users,
    all_workspaces, visible_runs TO letterbox_desk;
GRANT SELECT (workspace_id, run_id, action_id, position, type, state, untrusted, steered_by,
    decision, decision_rule, policy_version, request, idempotency_key, attempts, response_status,
    branch, error, retry_at, started_at, finished_at, unanswered, part_of, is_told, begun, answered)
    ON run_actions TO letterbox_desk;
GRANT SELECT ON approvals TO letterbox_desk;

CREATE TRIGGER audit AFTER INSERT OR DELETE ON sessions
    FOR EACH ROW EXECUTE FUNCTION audit('user_id');
CREATE TRIGGER audit AFTER INSERT ON sign_in_links
    FOR EACH ROW EXECUTE FUNCTION audit('user_id');
CREATE TRIGGER audit AFTER INSERT OR DELETE ON bound_logins
    FOR EACH ROW EXECUTE FUNCTION audit('login');
