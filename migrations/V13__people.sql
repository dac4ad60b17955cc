-- People, each as themselves. A person proves who they are by a session of the desk, which begins
-- with a sign-in link or on the word of an issuer. The rows that the desk's role sees and changes
-- are limited by row-level security: whatever the desk asks, a person sees and changes what their
-- roles in workspaces allow. What that is, worker/README.md says.

CREATE TABLE sign_in_links (
    token_sha256   bytea PRIMARY KEY CHECK (octet_length(token_sha256) = 32),
    user_id        uuid NOT NULL REFERENCES users,
    expires_at     timestamptz NOT NULL DEFAULT clock_timestamp() + interval '10 minutes',
    browser_sha256 bytea CHECK (octet_length(browser_sha256) = 32)
);
COMMENT ON TABLE sign_in_links IS 'Links that begin a session, each once';
COMMENT ON COLUMN sign_in_links.token_sha256 IS
    'SHA-256 of the token; the token itself is stored nowhere';
COMMENT ON COLUMN sign_in_links.user_id IS 'Whose session it begins';
COMMENT ON COLUMN sign_in_links.expires_at IS 'From then on it begins none';
COMMENT ON COLUMN sign_in_links.browser_sha256 IS
    'SHA-256 of what the browser keeps that has asked for it by e-mail: another one must know the '
    'address; null for a link of an operator''s';

CREATE TABLE sessions (
    token_sha256 bytea PRIMARY KEY CHECK (octet_length(token_sha256) = 32),
    user_id      uuid NOT NULL REFERENCES users,
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    seen_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    proven_by    text NOT NULL CHECK (proven_by IN ('asserted', 'link', 'oidc'))
);
COMMENT ON TABLE sessions IS 'Sessions of the desk that nobody has ended';
COMMENT ON COLUMN sessions.token_sha256 IS
    'SHA-256 of the token; the token itself is stored nowhere';
COMMENT ON COLUMN sessions.created_at IS 'Database clock; it ends seven days later';
COMMENT ON COLUMN sessions.seen_at IS 'Last use, to the minute; it ends twelve hours later';
COMMENT ON COLUMN sessions.proven_by IS 'What it began with: a link, or the word of an issuer';
CREATE INDEX sessions_by_user ON sessions (user_id);

CREATE TABLE issuers (
    issuer text PRIMARY KEY CHECK (char_length(issuer) BETWEEN 8 AND 300)
);
COMMENT ON TABLE issuers IS
    'Issuers of OpenID Connect, for whose word the desk may be taken; without any it signs in '
    'nobody but by links';

CREATE TABLE subjects (
    issuer  text NOT NULL REFERENCES issuers ON DELETE CASCADE,
    subject text NOT NULL CHECK (char_length(subject) BETWEEN 1 AND 255),
    user_id uuid NOT NULL REFERENCES users,
    PRIMARY KEY (issuer, subject),
    UNIQUE (issuer, user_id)
);
COMMENT ON TABLE subjects IS
    'As whom issuers know users; bound by the verified e-mail address, see begin_session_by';
COMMENT ON COLUMN subjects.subject IS 'The person, as the issuer names them';

CREATE TABLE seen_answers (
    workspace_id uuid NOT NULL,
    workflow_id  uuid NOT NULL,
    user_id      uuid NOT NULL REFERENCES users,
    run_id       uuid NOT NULL,
    PRIMARY KEY (workspace_id, workflow_id, user_id),
    FOREIGN KEY (workspace_id, workflow_id) REFERENCES workflows ON DELETE CASCADE
);
COMMENT ON TABLE seen_answers IS 'Up to where members have looked at the answers to a form';
COMMENT ON COLUMN seen_answers.run_id IS 'The newest that was shown; those after it are new';

CREATE VIEW living_sessions AS
SELECT * FROM sessions WHERE created_at > clock_timestamp() - interval '7 days'
    AND seen_at > clock_timestamp() - interval '12 hours';
COMMENT ON VIEW living_sessions IS 'Sessions whose time is not over; the only definition of one';

CREATE FUNCTION acting() RETURNS TABLE (user_id uuid, proven_by text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT s.user_id, s.proven_by FROM living_sessions s
    WHERE s.token_sha256 = decode(current_setting('letterbox.session', true), 'hex')
      AND pg_has_role(session_user, 'letterbox_desk', 'MEMBER')
$$;
COMMENT ON FUNCTION acting IS
    'The person who acts, and how they have proven it: under the login of the desk, by the session '
    'whose hash the transaction names; no row if it is nobody';

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

CREATE FUNCTION is_operator() RETURNS boolean LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT pg_has_role(coalesce(nullif(current_setting('role'), 'none'), session_user),
        'letterbox_operator', 'USAGE');
END;
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

CREATE FUNCTION add_session(session bytea, whose uuid, proof text, former bytea) RETURNS uuid
LANGUAGE sql SET search_path FROM CURRENT AS $$
    UPDATE users u SET has_signed_in = true WHERE u.user_id = whose AND NOT u.has_signed_in;
    WITH over AS (
        DELETE FROM sessions s WHERE whose IS NOT NULL AND (s.token_sha256 = former
            OR s.user_id = whose AND NOT EXISTS (SELECT FROM living_sessions l
                WHERE l.token_sha256 = s.token_sha256))
    )
    INSERT INTO sessions (token_sha256, user_id, proven_by)
    SELECT session, whose, proof WHERE whose IS NOT NULL
    RETURNING user_id
$$;
COMMENT ON FUNCTION add_session IS
    'Begins a session of a user, in place of the former one of the same browser, and forgets those '
    'of theirs that are over; null for nobody';

CREATE FUNCTION sign_in_link(link bytea, browser bytea) RETURNS TABLE (email text, is_here boolean)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT u.email, l.browser_sha256 IS NULL OR l.browser_sha256 IS NOT DISTINCT FROM browser
    FROM sign_in_links l JOIN users u USING (user_id)
    WHERE l.token_sha256 = link AND l.expires_at > clock_timestamp()
$$;
COMMENT ON FUNCTION sign_in_link IS
    'Whose session the link with this hash begins, and whether this browser may begin it without '
    'more; no row if it begins none';

CREATE FUNCTION begin_session(link bytea, browser bytea, address text, former bytea, session bytea)
RETURNS uuid LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    used sign_in_links;
BEGIN
    -- Who signs the user out meanwhile waits, and ends this session; or it has ended the link.
    PERFORM FROM users u JOIN sign_in_links l USING (user_id) WHERE l.token_sha256 = link
        FOR KEY SHARE OF u;
    DELETE FROM sign_in_links l USING users u WHERE l.token_sha256 = link
        AND u.user_id = l.user_id AND (l.browser_sha256 IS NULL OR l.browser_sha256 = browser
            OR lower(u.email) = lower(address))
    RETURNING l.* INTO used;
    IF used.expires_at > clock_timestamp() THEN
        RETURN add_session(session, used.user_id, 'link', former);
    END IF;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION begin_session IS
    'Begins the session with this hash for the link with that one, which is used up, in the '
    'browser that has asked for it, or for who knows the address; null if there is none';

CREATE FUNCTION begin_session_by(given_issuer text, given_subject text, address text, former bytea,
    session bytea) RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    known uuid;
BEGIN
    -- Whoever signs the user out, or binds them, meanwhile waits for this, or this for them.
    PERFORM FROM users u WHERE lower(u.email) = lower(address) OR u.user_id = (SELECT s.user_id
        FROM subjects s WHERE s.issuer = given_issuer AND s.subject = given_subject)
    ORDER BY u.user_id FOR NO KEY UPDATE;
    SELECT s.user_id INTO known FROM subjects s
    WHERE s.issuer = given_issuer AND s.subject = given_subject FOR KEY SHARE;
    IF NOT FOUND THEN
        -- Who is bound to another subject of this issuer stays so; who has been here before comes
        -- from a session of theirs: no desk makes a subject up for them.
        INSERT INTO subjects (issuer, subject, user_id)
        SELECT i.issuer, given_subject, u.user_id FROM issuers i CROSS JOIN users u
        WHERE i.issuer = given_issuer
            -- Letters of ASCII only: others fold into them.
            AND lower(u.email COLLATE "C") = lower(address COLLATE "C")
            AND (NOT u.has_signed_in OR EXISTS (SELECT FROM living_sessions l
                WHERE l.token_sha256 = former AND l.user_id = u.user_id))
        ON CONFLICT DO NOTHING RETURNING user_id INTO known;
    END IF;
    RETURN add_session(session, known, 'oidc', former);
END
$$;
COMMENT ON FUNCTION begin_session_by IS
    'Begins the session with this hash for whom an issuer knows, on the word of the desk: by the '
    'subject, or the first time by the address, which the issuer has verified; null if that is no '
    'user or one who was here before, or the issuer is none of those that are trusted';

CREATE FUNCTION greet() RETURNS TABLE (user_id uuid, email text, name text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE sessions s SET seen_at = clock_timestamp()
    WHERE s.token_sha256 = decode(current_setting('letterbox.session', true), 'hex')
      AND s.seen_at < clock_timestamp() - interval '1 minute'
      AND EXISTS (SELECT FROM living_sessions l WHERE l.token_sha256 = s.token_sha256);
    PERFORM letters_are_seen(a.user_id) FROM acting() a;
    RETURN QUERY SELECT u.user_id, u.email, u.name FROM acting() JOIN users u USING (user_id);
END
$$;
COMMENT ON FUNCTION greet IS
    'Who acts; notes that their session is in use, and that they have seen what they were told';

CREATE FUNCTION end_session() RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    DELETE FROM sessions
    WHERE token_sha256 = decode(current_setting('letterbox.session', true), 'hex')
$$;

CREATE FUNCTION sign_out(whose uuid) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    ended bigint;
BEGIN
    -- No session of theirs is just beginning then.
    PERFORM FROM users u WHERE u.user_id = whose FOR UPDATE;
    DELETE FROM sign_in_links l WHERE l.user_id = whose;
    DELETE FROM subjects s WHERE s.user_id = whose;
    DELETE FROM sessions s WHERE s.user_id = whose;
    GET DIAGNOSTICS ended = ROW_COUNT;
    RETURN ended;
END
$$;
COMMENT ON FUNCTION sign_out IS
    'Ends the sessions of a user, and their links, and forgets as whom issuers know them, which a '
    'desk in foreign hands may have bound; returns how many sessions';

CREATE FUNCTION changed_repeats(tenant uuid, submission uuid) RETURNS bigint
LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT times FROM changed_repeats WHERE workspace_id = tenant AND run_id = submission
      AND (is_operator() OR tenant = ANY (workspaces_as('viewer')))
$$;
COMMENT ON FUNCTION changed_repeats IS
    'How often the key of a submission came back with another payload; null if it never did';

CREATE FUNCTION failed_answers(tenant uuid, run uuid) RETURNS TABLE (action_id text, answer text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT a.action_id, a.failed_with FROM run_actions a JOIN runs r USING (workspace_id, run_id)
    WHERE r.workspace_id = tenant AND r.run_id = run AND a.failed_with IS NOT NULL
      AND (is_operator() OR tenant = ANY (workspaces_as('owner'))
          OR tenant = ANY (workspaces_as('viewer')) AND r.run_as = (SELECT user_id FROM acting()))
$$;
COMMENT ON FUNCTION failed_answers IS
    'failed_with of a run, for operators, owners of its workspace, and the member as whom it acts';

CREATE FUNCTION see_answers(tenant uuid, workflow uuid, newest uuid) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    INSERT INTO seen_answers AS s (workspace_id, workflow_id, user_id, run_id)
    SELECT f.workspace_id, f.workflow_id, a.user_id, newest FROM workflows f, acting() a
    WHERE f.workspace_id = tenant AND f.workflow_id = workflow
      AND tenant = ANY (workspaces_as('viewer'))
    ON CONFLICT (workspace_id, workflow_id, user_id) DO UPDATE SET run_id = EXCLUDED.run_id
    WHERE s.run_id < EXCLUDED.run_id
$$;
COMMENT ON FUNCTION see_answers IS
    'Notes that the person who acts was shown the answers to a form up to this one';

REVOKE EXECUTE ON FUNCTION see_answers, acting, workspaces_as, demand_control, add_session,
    sign_in_link, begin_session, begin_session_by, greet, end_session, sign_out, changed_repeats,
    failed_answers FROM PUBLIC;
GRANT EXECUTE ON FUNCTION sign_in_link, begin_session, begin_session_by, end_session
    TO letterbox_desk;
GRANT EXECUTE ON FUNCTION sign_out TO letterbox_operator;
GRANT EXECUTE ON FUNCTION see_answers, acting, workspaces_as, changed_repeats, failed_answers
    TO letterbox_operator, letterbox_desk;
GRANT EXECUTE ON FUNCTION greet, cancel_run, retry_run TO letterbox_desk;
GRANT SELECT, INSERT, DELETE ON sign_in_links, issuers, subjects
    TO letterbox_operator;
GRANT SELECT ON sessions TO letterbox_operator;

-- What people see: rows of their workspaces, by the least role that sees them.

DO $$
DECLARE
    seen record;
BEGIN
    FOR seen IN SELECT * FROM (VALUES ('workspaces', 'viewer'), ('members', 'viewer'),
        ('workflows', 'viewer'), ('releases', 'viewer'), ('form_links', 'viewer'),
        ('form_link_waits', 'viewer'),
        ('policies', 'viewer'), ('runs', 'viewer'), ('active_runs', 'viewer'),
        ('run_actions', 'viewer'), ('approvals', 'viewer'), ('connected_accounts', 'owner'),
        ('webhooks', 'editor'), ('webhook_refusals', 'editor'), ('webhook_repeats', 'editor'),
        ('signals', 'editor'),
        ('audit_log', 'owner'), ('users', NULL)) AS tables (name, least)
    LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', seen.name);
        EXECUTE format('CREATE POLICY processes_see_all ON %I
            TO letterbox_gateway, letterbox_worker, letterbox_operator USING (true)', seen.name);
        IF seen.least IS NOT NULL THEN
            EXECUTE format('CREATE POLICY members_see ON %I FOR SELECT TO letterbox_desk
                USING (workspace_id = ANY ((SELECT workspaces_as(%L))::uuid[]))', seen.name,
                seen.least);
        END IF;
    END LOOP;
END
$$;
CREATE POLICY members_see ON users FOR SELECT TO letterbox_desk USING (
    user_id IN (SELECT m.user_id FROM members m)
    OR user_id IN (SELECT f.owner_id FROM workflows f));
ALTER TABLE seen_answers ENABLE ROW LEVEL SECURITY;
CREATE POLICY people_see_their_own ON seen_answers FOR SELECT TO letterbox_desk
    USING (user_id = (SELECT user_id FROM acting()));
CREATE POLICY owners_see ON connected_accounts FOR SELECT TO letterbox_desk
    USING (user_id = (SELECT user_id FROM acting()));

GRANT SELECT ON workspaces, members, workflows, releases, policies, runs, active_runs, users,
    all_workspaces, visible_runs, approvals, form_link_waits, webhook_refusals, webhook_repeats,
    signals, seen_answers
    TO letterbox_desk;
GRANT SELECT (workspace_id, run_id, action_id, position, type, state, untrusted, steered_by,
    decision, decision_rule, policy_version, request, idempotency_key, attempts, response_status,
    branch, error, retry_at, started_at, finished_at, unanswered, part_of, is_told, begun, answered)
    ON run_actions TO letterbox_desk;
GRANT SELECT (workspace_id, form_link_id, workflow_id, release_id, created_at, ended_at, closes_at,
    max_answers, answers) ON form_links TO letterbox_desk;
GRANT SELECT (workspace_id, account_id, user_id, name, base_url, header_name, sender, created_at,
    disconnected_at, is_refused, waits_for, has_certificate)
    ON connected_accounts TO letterbox_desk;
GRANT SELECT (workspace_id, webhook_id, name, created_at, deleted_at, tool, rules,
    allow_from, kept_headers, same_by, replaces, memory_id, ends_at, settable_until, former_until)
    ON webhooks TO letterbox_desk;
GRANT SELECT (workspace_id, entry_id, ordered_at, ordered_by, proven_by, command, subject,
    subject_id, reason, before, after) ON audit_log TO letterbox_desk;
-- To whom what people hand in is sealed.
GRANT SELECT (process_id, program, key_id, public_key, seen_at) ON processes TO letterbox_desk;

-- What people change. Runs and questions change by functions alone (V8, V10).

-- A workflow acts with its owner's accounts: nobody else says what it does. Editors can stop it.
CREATE FUNCTION is_mine(tenant uuid, workflow uuid) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT EXISTS (
        SELECT FROM workflows f JOIN acting() a ON a.user_id = f.owner_id
        WHERE f.workspace_id = tenant AND f.workflow_id = workflow
          AND tenant = ANY (workspaces_as('runner')))
$$;
COMMENT ON FUNCTION is_mine IS
    'Whether a workflow belongs to the person who acts, who may run workflows';

CREATE FUNCTION its_owner_defines_it() RETURNS trigger LANGUAGE plpgsql
    SET search_path FROM CURRENT AS $$
BEGIN
    IF NOT is_operator() AND NOT is_mine(OLD.workspace_id, OLD.workflow_id) THEN
        RAISE EXCEPTION 'only its owner says what a workflow does'
            USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN NEW;
END
$$;
COMMENT ON FUNCTION its_owner_defines_it IS
    'Refuses a definition by anybody but the owner, as whom it will act';
CREATE TRIGGER its_owner_defines_it BEFORE UPDATE OF definition, live_release_id ON workflows
    FOR EACH ROW EXECUTE FUNCTION its_owner_defines_it();

CREATE FUNCTION lock_owner(tenant uuid, workflow uuid) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT FROM workflows f
    JOIN members m ON m.workspace_id = f.workspace_id AND m.user_id = f.owner_id
    WHERE f.workspace_id = tenant AND f.workflow_id = workflow
      AND (is_operator() OR is_mine(f.workspace_id, f.workflow_id))
    FOR SHARE OF m
$$;
COMMENT ON FUNCTION lock_owner IS
    'Locks the membership of a workflow''s owner, before the workflow: the order of locks';

CREATE POLICY owners_make ON workflows FOR INSERT TO letterbox_desk WITH CHECK (
    owner_id = (SELECT user_id FROM acting())
    AND workspace_id = ANY ((SELECT workspaces_as('runner'))::uuid[]));
CREATE POLICY owners_move ON workflows FOR UPDATE TO letterbox_desk USING (
    owner_id = (SELECT user_id FROM acting())
    AND workspace_id = ANY ((SELECT workspaces_as('runner'))::uuid[]));
CREATE POLICY editors_stop ON workflows FOR UPDATE TO letterbox_desk
    USING (workspace_id = ANY ((SELECT workspaces_as('editor'))::uuid[]))
    WITH CHECK (workspace_id = ANY ((SELECT workspaces_as('editor'))::uuid[])
        AND state <> 'deployed');
CREATE POLICY owners_deploy ON releases FOR INSERT TO letterbox_desk
    WITH CHECK (is_mine(workspace_id, workflow_id));
CREATE POLICY owners_link ON form_links FOR INSERT TO letterbox_desk
    WITH CHECK (is_mine(workspace_id, workflow_id));
CREATE POLICY owners_and_editors_end ON form_links FOR UPDATE TO letterbox_desk
    USING (workspace_id = ANY ((SELECT workspaces_as('editor'))::uuid[])
        OR is_mine(workspace_id, workflow_id));
GRANT INSERT (workspace_id, workflow_id, owner_id, name, definition),
    UPDATE (state, live_release_id, definition) ON workflows TO letterbox_desk;
GRANT INSERT (workspace_id, workflow_id, release_id, number, form, actions, first_account,
    on_failure, page, least_seconds, language) ON releases TO letterbox_desk;
GRANT INSERT (workspace_id, form_link_id, workflow_id, release_id, token_sha256, closes_at,
    max_answers), UPDATE (ended_at) ON form_links TO letterbox_desk;

CREATE POLICY owners_connect ON connected_accounts FOR INSERT TO letterbox_desk WITH CHECK (
    user_id = (SELECT user_id FROM acting())
    AND workspace_id = ANY ((SELECT workspaces_as('runner'))::uuid[]));
CREATE POLICY owners_change ON connected_accounts FOR UPDATE TO letterbox_desk USING (
    user_id = (SELECT user_id FROM acting())
    AND workspace_id = ANY ((SELECT workspaces_as('viewer'))::uuid[]));
GRANT INSERT (workspace_id, account_id, user_id, name, base_url, header_name, sender,
    credential_sealed, waits_for, has_certificate),
    UPDATE (credential_sealed, has_certificate, disconnected_at)
    ON connected_accounts TO letterbox_desk;

CREATE POLICY editors_make ON webhooks FOR INSERT TO letterbox_desk
    WITH CHECK (workspace_id = ANY ((SELECT workspaces_as('editor'))::uuid[]));
CREATE POLICY editors_change ON webhooks FOR UPDATE TO letterbox_desk
    USING (workspace_id = ANY ((SELECT workspaces_as('editor'))::uuid[]));
GRANT INSERT (workspace_id, webhook_id, name, secret_sealed, tool, rules, allow_from,
    kept_headers, same_by, replaces, memory_id, settable_until),
    UPDATE (secret_sealed, deleted_at, ends_at, memory_id, settable_until, former_until)
    ON webhooks TO letterbox_desk;

CREATE FUNCTION is_known(person uuid) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT EXISTS (SELECT FROM members m WHERE m.user_id = person
        AND m.workspace_id = ANY (workspaces_as('viewer')))
$$;
COMMENT ON FUNCTION is_known IS
    'Whether somebody is a member of a workspace of the person who acts: whom they see already, or '
    'have asked in';
CREATE POLICY owners_add ON members FOR INSERT TO letterbox_desk WITH CHECK (
    workspace_id = ANY ((SELECT workspaces_as('owner'))::uuid[])
    AND is_known(user_id));
CREATE POLICY owners_govern ON members FOR UPDATE TO letterbox_desk
    USING (workspace_id = ANY ((SELECT workspaces_as('owner'))::uuid[]));
CREATE POLICY owners_rule ON policies FOR INSERT TO letterbox_desk
    WITH CHECK (workspace_id = ANY ((SELECT workspaces_as('owner'))::uuid[]));
GRANT INSERT (workspace_id, user_id, role, deactivated_at), UPDATE (role, deactivated_at)
    ON members TO letterbox_desk;
GRANT INSERT (workspace_id, version, policy) ON policies TO letterbox_desk;

CREATE FUNCTION versions_have_no_gap() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    IF NEW.version <> 1 + coalesce((SELECT max(p.version) FROM policies p
        WHERE p.workspace_id = NEW.workspace_id), 0) THEN
        RAISE EXCEPTION 'versions of a policy count by one' USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END
$$;
COMMENT ON FUNCTION versions_have_no_gap IS
    'Refuses a version that is not the next: after the last possible one nobody could set another';
CREATE TRIGGER versions_have_no_gap BEFORE INSERT ON policies
    FOR EACH ROW EXECUTE FUNCTION versions_have_no_gap();

-- Ids are known: that of a webhook is in its address. What an operator orders by an id alone must
-- mean one row, whatever a desk in foreign hands has inserted.
CREATE FUNCTION ids_are_taken_once() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    given uuid := to_jsonb(NEW) ->> TG_ARGV[0];
    is_taken boolean;
BEGIN
    IF is_operator() THEN
        RETURN NEW;
    END IF;
    EXECUTE format('SELECT EXISTS (SELECT FROM workspaces w JOIN %I t
        ON t.workspace_id = w.workspace_id AND t.%I = $1)', TG_TABLE_NAME, TG_ARGV[0])
        INTO is_taken USING given;
    IF is_taken OR substr(given::text, 15, 1) NOT IN ('4', '7') THEN
        RAISE EXCEPTION 'this id is not a new one' USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN NEW;
END
$$;
COMMENT ON FUNCTION ids_are_taken_once IS
    'Refuses an id that a row of any workspace has, or that is not random; its argument names the '
    'column';
CREATE TRIGGER ids_are_taken_once BEFORE INSERT ON workflows
    FOR EACH ROW EXECUTE FUNCTION ids_are_taken_once('workflow_id');
CREATE TRIGGER ids_are_taken_once BEFORE INSERT ON webhooks
    FOR EACH ROW EXECUTE FUNCTION ids_are_taken_once('webhook_id');
CREATE TRIGGER ids_are_taken_once BEFORE INSERT ON connected_accounts
    FOR EACH ROW EXECUTE FUNCTION ids_are_taken_once('account_id');

CREATE FUNCTION remove_member(tenant uuid, member uuid) RETURNS SETOF members
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    DELETE FROM members WHERE workspace_id = tenant AND user_id = member
        AND (is_operator() OR tenant = ANY (workspaces_as('owner')))
    RETURNING *
$$;
COMMENT ON FUNCTION remove_member IS
    'Removes a member, for an operator or an owner of the workspace. Nobody else deletes members: '
    'who may delete from a table may lock all of it';

CREATE FUNCTION introduce(tenant uuid, fresh uuid, address text, called text) RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    known uuid;
BEGIN
    IF NOT is_operator() AND tenant <> ALL (workspaces_as('owner')) THEN
        RAISE EXCEPTION 'only an owner of the workspace asks somebody in'
            USING ERRCODE = 'insufficient_privilege';
    ELSIF NOT is_operator()
        AND (SELECT count(*) FROM members m WHERE m.workspace_id = tenant) >= 1000 THEN
        RAISE EXCEPTION 'the workspace has 1,000 members' USING ERRCODE = 'program_limit_exceeded';
    END IF;
    -- All workspaces see the name: only they themselves or an operator say it.
    INSERT INTO users (user_id, email, name)
    VALUES (fresh, address, CASE WHEN is_operator() THEN called ELSE address END)
    ON CONFLICT (lower(email)) DO NOTHING;
    SELECT u.user_id INTO known FROM users u WHERE lower(u.email) = lower(address);
    -- Without rights, until the owner says which.
    INSERT INTO members (workspace_id, user_id, role, deactivated_at)
    VALUES (tenant, known, 'viewer', clock_timestamp()) ON CONFLICT DO NOTHING;
    RETURN known;
END
$$;
COMMENT ON FUNCTION introduce IS
    'The user with this address, for an owner who wants to make them a member: a new one, if there '
    'is none, who is called like the address until they say their name';

CREATE FUNCTION call_me(called text) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    UPDATE users u SET name = called FROM acting() a WHERE u.user_id = a.user_id
$$;
REVOKE EXECUTE ON FUNCTION is_mine, its_owner_defines_it, lock_owner, is_known, remove_member,
    versions_have_no_gap, ids_are_taken_once, introduce, call_me FROM PUBLIC;
GRANT EXECUTE ON FUNCTION call_me TO letterbox_desk;
GRANT EXECUTE ON FUNCTION is_mine, lock_owner, is_known, remove_member, introduce
    TO letterbox_operator, letterbox_desk;

CREATE TRIGGER audit AFTER INSERT OR DELETE ON sessions
    FOR EACH ROW EXECUTE FUNCTION audit('user_id');
CREATE TRIGGER audit AFTER INSERT ON sign_in_links
    FOR EACH ROW EXECUTE FUNCTION audit('user_id');
CREATE TRIGGER audit AFTER INSERT OR DELETE ON issuers
    FOR EACH ROW EXECUTE FUNCTION audit('issuer');
CREATE TRIGGER audit AFTER INSERT OR DELETE ON subjects
    FOR EACH ROW EXECUTE FUNCTION audit('user_id');
