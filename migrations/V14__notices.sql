-- Notices: people are told what waits for them, without looking. What happened is written down in
-- the transaction in which it happened, so that nothing is left out; a worker makes one letter for
-- each who is to be told of all that came within a minute, and sends it, by e-mail or through an
-- account. No letter has a word of a stranger's. Links to sign in are sent in the same way.

CREATE TABLE news (
    workspace_id uuid NOT NULL REFERENCES workspaces ON DELETE CASCADE,
    news_id      bigint GENERATED ALWAYS AS IDENTITY,
    kind         text NOT NULL,
    subject_id   uuid NOT NULL,
    happened_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (workspace_id, news_id)
);
COMMENT ON TABLE news IS 'What nobody has been told yet, of workspaces that want to be told';
COMMENT ON COLUMN news.kind IS
    'question: one waits; expired_question: one has got no answer in time; failure: a run has '
    'failed; refused_account: an account has refused its credential; ended_link: a form link has '
    'ended because its owner may not run workflows any more; stalled_subscription: a queue or a '
    'URL has got nothing for five minutes; deaf_webhook: one loses events';
COMMENT ON COLUMN news.subject_id IS
    'The approval, the run, the account, the workflow, the subscription or the webhook';

CREATE TABLE letters (
    workspace_id     uuid NOT NULL REFERENCES workspaces ON DELETE CASCADE,
    letter_id        uuid NOT NULL DEFAULT gen_random_uuid(),
    user_id          uuid REFERENCES users,
    account_id       uuid,
    told             jsonb NOT NULL,
    made_at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    due_at           timestamptz NOT NULL DEFAULT clock_timestamp(),
    attempts         integer NOT NULL DEFAULT 0,
    sent_at          timestamptz,
    error            text,
    is_seen          boolean NOT NULL DEFAULT false,
    PRIMARY KEY (workspace_id, letter_id),
    CONSTRAINT letters_have_a_recipient CHECK ((user_id IS NULL) <> (account_id IS NULL))
);
COMMENT ON TABLE letters IS 'Notices of the last thirty days, each to one recipient';
COMMENT ON COLUMN letters.letter_id IS
    'Message-ID of the e-mail, or idempotency key: the same for each attempt';
COMMENT ON COLUMN letters.user_id IS 'Who gets it by e-mail; null if an account does';
COMMENT ON COLUMN letters.told IS 'Of how many it tells, by the kind of news';
COMMENT ON COLUMN letters.due_at IS 'When it is tried next';
COMMENT ON COLUMN letters.attempts IS 'How often it was tried';
COMMENT ON COLUMN letters.sent_at IS 'When it was taken; null before';
COMMENT ON COLUMN letters.is_seen IS
    'Whether its user was here since: the more are not seen, the longer is the pause';
CREATE INDEX letters_by_time ON letters (made_at);
CREATE INDEX letters_due ON letters (due_at) WHERE sent_at IS NULL AND attempts < 12;
CREATE INDEX letters_unseen ON letters (user_id) WHERE NOT is_seen;

CREATE VIEW told_by_mail AS
SELECT m.workspace_id, m.user_id
FROM members m JOIN workspaces w USING (workspace_id) JOIN users u USING (user_id)
WHERE w.notify_by_email AND m.deactivated_at IS NULL AND m.role IN ('owner', 'editor')
    AND u.has_signed_in;
COMMENT ON VIEW told_by_mail IS
    'Who gets notices by e-mail: nobody whom others have named, and who has never been here';

CREATE TABLE sign_in_requests (
    address        text PRIMARY KEY CHECK (char_length(address) BETWEEN 3 AND 200),
    asked_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    asked_by       inet NOT NULL,
    browser_sha256 bytea NOT NULL CHECK (octet_length(browser_sha256) = 32)
);
COMMENT ON TABLE sign_in_requests IS
    'E-mail addresses, known or not, for which somebody wants a link to sign in';
COMMENT ON COLUMN sign_in_requests.address IS 'In lower case';
COMMENT ON COLUMN sign_in_requests.asked_by IS
    'The client; of an IPv6 address the network, of which clients have many addresses';
COMMENT ON COLUMN sign_in_requests.browser_sha256 IS
    'SHA-256 of what the browser keeps that has asked';

CREATE FUNCTION note_news() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO news (workspace_id, kind, subject_id)
    SELECT w.workspace_id, TG_ARGV[0], (to_jsonb(NEW) ->> TG_ARGV[1])::uuid FROM workspaces w
    WHERE w.workspace_id = NEW.workspace_id
        AND (w.notify_by_email OR w.notify_account IS NOT NULL);
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION note_news IS
    'Writes down that this has happened, if the workspace wants to be told; its arguments are the '
    'kind and the column that names the subject';

CREATE TRIGGER note_question AFTER INSERT ON approvals
    FOR EACH ROW EXECUTE FUNCTION note_news('question', 'approval_id');
CREATE TRIGGER note_question_again AFTER UPDATE OF state ON approvals
    FOR EACH ROW WHEN (NEW.state = 'pending' AND OLD.state <> 'pending')
    EXECUTE FUNCTION note_news('question', 'approval_id');
-- Not when the run has ended meanwhile: nobody could have answered.
CREATE TRIGGER note_expired_question AFTER UPDATE OF state ON approvals
    FOR EACH ROW WHEN (NEW.state = 'expired' AND OLD.state = 'pending'
        AND NEW.decided_at >= NEW.expires_at)
    EXECUTE FUNCTION note_news('expired_question', 'approval_id');
CREATE TRIGGER note_failure AFTER UPDATE OF state ON runs
    FOR EACH ROW WHEN (NEW.state = 'failed' AND OLD.state <> 'failed')
    EXECUTE FUNCTION note_news('failure', 'run_id');
CREATE TRIGGER note_refused_account AFTER UPDATE OF is_refused ON connected_accounts
    FOR EACH ROW WHEN (NEW.is_refused AND NOT OLD.is_refused)
    EXECUTE FUNCTION note_news('refused_account', 'account_id');

CREATE FUNCTION note_refusal() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE connected_accounts SET is_refused = true
    WHERE workspace_id = NEW.workspace_id
        AND account_id = (NEW.request::json ->> 'account_id')::uuid
        AND NOT is_refused AND disconnected_at IS NULL;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION note_refusal IS
    'Notes, once, that an account has refused its credential, and will not get a fresh token';
CREATE TRIGGER note_refusal AFTER UPDATE OF response_status ON run_actions
    FOR EACH ROW WHEN (NEW.response_status = 401 AND NEW.state <> 'retrying'
        AND NEW.request IS NOT NULL)
    EXECUTE FUNCTION note_refusal();

CREATE FUNCTION credential_is_new() RETURNS trigger LANGUAGE plpgsql
    SET search_path FROM CURRENT AS $$
BEGIN
    NEW.is_refused := false;
    RETURN NEW;
END
$$;
COMMENT ON FUNCTION credential_is_new IS 'A new credential has been refused by nobody';
CREATE TRIGGER credential_is_new BEFORE UPDATE OF credential_sealed ON connected_accounts
    FOR EACH ROW EXECUTE FUNCTION credential_is_new();

CREATE FUNCTION note_ended_link() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO news (workspace_id, kind, subject_id)
    SELECT w.workspace_id, 'ended_link', f.workflow_id
    FROM workspaces w
    JOIN workflows f ON f.workspace_id = w.workspace_id AND f.workflow_id = NEW.workflow_id
    WHERE w.workspace_id = NEW.workspace_id
        AND (w.notify_by_email OR w.notify_account IS NOT NULL)
        AND NOT EXISTS (SELECT FROM members m WHERE m.workspace_id = f.workspace_id
            AND m.user_id = f.owner_id AND m.may_run);
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION note_ended_link IS
    'Writes down that a link has ended though nobody has moved its workflow: its owner may not run '
    'it any more';
CREATE TRIGGER note_ended_link AFTER UPDATE OF ended_at ON form_links
    FOR EACH ROW EXECUTE FUNCTION note_ended_link();

CREATE FUNCTION write_letters(seconds double precision) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    since timestamptz := clock_timestamp() - make_interval(secs => seconds);
    tenant uuid;
    written bigint := 0;
    more bigint;
BEGIN
    -- Whoever looks at their notices keeps rows of theirs locked meanwhile: those are left.
    DELETE FROM letters l WHERE (l.workspace_id, l.letter_id) IN (
        SELECT old.workspace_id, old.letter_id FROM letters old
        WHERE old.made_at < clock_timestamp() - interval '30 days' FOR UPDATE SKIP LOCKED);
    FOR tenant IN SELECT DISTINCT workspace_id FROM news WHERE happened_at < since LIMIT 100 LOOP
        -- Another worker writes them, or they were written less than a minute ago.
        PERFORM FROM workspaces WHERE workspace_id = tenant FOR NO KEY UPDATE SKIP LOCKED;
        CONTINUE WHEN NOT FOUND OR EXISTS (SELECT FROM letters
            WHERE workspace_id = tenant AND made_at > since AND NOT told ? 'invitation');
        WITH told AS (
            DELETE FROM news WHERE workspace_id = tenant RETURNING kind, subject_id
        ), counted AS (
            SELECT jsonb_object_agg(kind, many) AS told
            FROM (SELECT kind, count(DISTINCT subject_id) AS many FROM told GROUP BY kind) AS kinds
        ), recipients AS (
            SELECT t.user_id, NULL::uuid AS account_id, (
                SELECT max(coalesce(l.sent_at, l.due_at)) + make_interval(secs =>
                    least(seconds * 2 ^ least(count(*) - 1, 30), 3600))
                FROM letters l
                WHERE l.workspace_id = tenant AND l.user_id = t.user_id AND NOT l.is_seen
                    AND NOT l.told ? 'invitation'
            ) AS not_before
            FROM told_by_mail t WHERE t.workspace_id = tenant
            UNION ALL
            SELECT NULL, a.account_id, NULL FROM workspaces w
            JOIN connected_accounts a
                ON a.workspace_id = w.workspace_id AND a.account_id = w.notify_account
                AND a.disconnected_at IS NULL
            WHERE w.workspace_id = tenant
        ), added AS (
            -- One that waits for its time tells of this, too.
            UPDATE letters l SET told = (
                SELECT jsonb_object_agg(kind, many) FROM (
                    SELECT b.key AS kind, sum(b.value::integer) AS many
                    FROM (SELECT * FROM jsonb_each_text(l.told)
                          UNION ALL SELECT * FROM jsonb_each_text(c.told)) AS b
                    GROUP BY b.key) AS summed)
            FROM counted c, (
                SELECT letter_id FROM letters
                WHERE workspace_id = tenant AND user_id IS NOT NULL AND sent_at IS NULL
                    AND attempts = 0 AND NOT told ? 'invitation'
                FOR NO KEY UPDATE SKIP LOCKED
            ) waiting
            WHERE l.workspace_id = tenant AND l.letter_id = waiting.letter_id
            RETURNING l.user_id
        )
        INSERT INTO letters (workspace_id, user_id, account_id, told, due_at)
        SELECT tenant, r.user_id, r.account_id, c.told,
            greatest(clock_timestamp(), r.not_before)
        FROM recipients r CROSS JOIN counted c
        WHERE c.told IS NOT NULL
            AND NOT EXISTS (SELECT FROM added WHERE added.user_id = r.user_id);
        GET DIAGNOSTICS more = ROW_COUNT;
        written := written + more;
    END LOOP;
    RETURN written;
END
$$;
COMMENT ON FUNCTION write_letters IS
    'Writes letters of what has happened, a minute after the first of it, and at most one a minute '
    'to each who is to be told; to a person who does not look, each after twice the pause, up to '
    'an hour; returns how many';

CREATE FUNCTION sends_mail() RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT EXISTS (SELECT FROM processes p WHERE p.program = 'worker' AND is_alive(p.seen_at, 30)
        AND p.settings ->> 'LETTERBOX_SMTP_URL' = 'set')
$$;
COMMENT ON FUNCTION sends_mail IS 'Whether a worker that is alive can send e-mail';

CREATE FUNCTION send_invitation(tenant uuid, whom uuid) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    own uuid[] := workspaces_as('owner');
BEGIN
    IF tenant <> ALL (own) THEN
        RAISE EXCEPTION 'only an owner of the workspace invites'
            USING ERRCODE = 'insufficient_privilege';
    END IF;
    -- One invitation at a time, of the workspace and of the person: what is counted below stays so.
    PERFORM FROM users u WHERE u.user_id = (SELECT a.user_id FROM acting() a) FOR NO KEY UPDATE;
    PERFORM FROM workspaces WHERE workspace_id = tenant FOR NO KEY UPDATE;
    UPDATE letters l SET attempts = 0, due_at = clock_timestamp()
    WHERE l.user_id = whom AND l.workspace_id = tenant AND l.told ? 'invitation'
        AND l.sent_at IS NULL AND sends_mail();
    IF FOUND THEN
        RETURN 'sent';
    ELSIF EXISTS (SELECT FROM letters l WHERE l.user_id = whom AND l.workspace_id = tenant
        AND l.told ? 'invitation') THEN
        RETURN 'before';
    END IF;
    -- Nobody can have this send letters without end to whom they please.
    INSERT INTO letters (workspace_id, user_id, told)
    SELECT tenant, whom, '{"invitation": 1}'
    WHERE sends_mail() AND EXISTS (SELECT FROM members m WHERE m.workspace_id = tenant
            AND m.user_id = whom AND m.deactivated_at IS NULL)
        AND (SELECT count(*) FROM letters l WHERE l.workspace_id = ANY (own)
            AND l.told ? 'invitation'
            AND l.made_at > clock_timestamp() - interval '1 day') < 20;
    RETURN CASE WHEN FOUND THEN 'sent' ELSE 'unsent' END;
END
$$;
COMMENT ON FUNCTION send_invitation IS
    'Has an active member told by e-mail that they are one, for an owner, once in thirty days and '
    'twenty a day; says what became of that';

CREATE FUNCTION letters_are_seen(whose uuid) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    UPDATE letters SET is_seen = true, due_at = CASE WHEN sent_at IS NULL AND attempts = 0
        THEN least(due_at, clock_timestamp()) ELSE due_at END
    WHERE user_id = whose AND NOT is_seen
$$;
COMMENT ON FUNCTION letters_are_seen IS
    'Notes that a user looks at what waits, so that they are told without a pause again';

CREATE FUNCTION see_letters() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM letters_are_seen(NEW.decided_by);
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION see_letters IS 'Whoever answers a question has seen what they were told';
CREATE TRIGGER see_letters AFTER UPDATE OF decided_by ON approvals
    FOR EACH ROW WHEN (NEW.decided_by IS NOT NULL) EXECUTE FUNCTION see_letters();

CREATE FUNCTION take_letters(most integer) RETURNS TABLE (workspace_id uuid, letter_id uuid,
    workspace_name text, email text, account_id uuid, account_user uuid, base_url text,
    header_name text, credential_sealed bytea, told jsonb)
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    WITH due AS (
        SELECT l.workspace_id, l.letter_id FROM letters l
        WHERE l.sent_at IS NULL AND l.attempts < 12 AND l.due_at <= clock_timestamp()
            AND (l.user_id IS NULL OR EXISTS (SELECT FROM told_by_mail t
                WHERE t.workspace_id = l.workspace_id AND t.user_id = l.user_id)
                OR l.told ? 'invitation' AND EXISTS (SELECT FROM members m
                    WHERE m.workspace_id = l.workspace_id AND m.user_id = l.user_id
                        AND m.deactivated_at IS NULL))
        ORDER BY l.due_at LIMIT most FOR UPDATE SKIP LOCKED
    ), taken AS (
        -- Whoever took it may have died: it is tried again then.
        UPDATE letters l SET attempts = l.attempts + 1, due_at = clock_timestamp()
            + least(interval '2 minutes' * 2 ^ l.attempts, interval '2 hours')
        FROM due WHERE l.workspace_id = due.workspace_id AND l.letter_id = due.letter_id
        RETURNING l.*
    )
    SELECT t.workspace_id, t.letter_id, w.name, u.email, a.account_id, a.user_id, a.base_url,
        a.header_name, a.credential_sealed, t.told
    FROM taken t JOIN workspaces w USING (workspace_id)
    LEFT JOIN users u ON u.user_id = t.user_id
    LEFT JOIN connected_accounts a
        ON a.workspace_id = t.workspace_id AND a.account_id = t.account_id
        AND a.credential_sealed IS NOT NULL
$$;
COMMENT ON FUNCTION take_letters IS 'The letters that are due, each for one attempt';

CREATE FUNCTION end_letter(tenant uuid, letter uuid, failure text) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    UPDATE letters SET error = left(failure, 1000),
        sent_at = CASE WHEN failure IS NULL THEN clock_timestamp() END
    WHERE workspace_id = tenant AND letter_id = letter AND sent_at IS NULL
$$;
COMMENT ON FUNCTION end_letter IS 'Notes what came of an attempt: sent, if there is no failure';

CREATE FUNCTION ask_sign_in_link(given text, client inet, browser bytea) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    WITH asking AS (
        SELECT network(set_masklen(client, CASE family(client) WHEN 4 THEN 32 ELSE 64 END)) AS by
    )
    INSERT INTO sign_in_requests (address, asked_by, browser_sha256)
    SELECT lower(given), by, browser FROM asking WHERE char_length(lower(given)) BETWEEN 3 AND 200
        AND (SELECT count(*) FROM sign_in_requests r WHERE r.asked_by = by) < 10
        AND (SELECT count(*) FROM sign_in_requests) < 1000
    ON CONFLICT DO NOTHING
$$;
COMMENT ON FUNCTION ask_sign_in_link IS
    'Has a link sent to an address, if it is a user''s: whoever asks can''t tell. A client has ten '
    'requests that nobody has answered yet, so it keeps nobody else out';

CREATE FUNCTION answer_sign_in_request(link bytea) RETURNS TABLE (address text, is_known boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    asked sign_in_requests;
    known users;
BEGIN
    DELETE FROM sign_in_links WHERE token_sha256 IN (
        SELECT old.token_sha256 FROM sign_in_links old WHERE old.expires_at < clock_timestamp()
        FOR UPDATE SKIP LOCKED);
    DELETE FROM sign_in_requests r WHERE r.address = (
        SELECT one.address FROM sign_in_requests one ORDER BY one.asked_at LIMIT 1
        FOR UPDATE SKIP LOCKED)
    RETURNING r.* INTO asked;
    IF asked.address IS NULL THEN
        RETURN;
    END IF;
    SELECT * INTO known FROM users u WHERE lower(u.email) = asked.address AND (SELECT count(*)
        FROM sign_in_links l WHERE l.user_id = u.user_id AND l.expires_at > clock_timestamp()) < 3;
    IF FOUND THEN
        INSERT INTO sign_in_links (token_sha256, user_id, browser_sha256)
        VALUES (link, known.user_id, asked.browser_sha256);
    END IF;
    RETURN QUERY SELECT coalesce(known.email, asked.address), known.user_id IS NOT NULL;
END
$$;
COMMENT ON FUNCTION answer_sign_in_request IS
    'Takes the oldest request and makes the link with this hash, if the address is a user''s who '
    'has not asked three times within ten minutes; no row if there is none';

REVOKE EXECUTE ON FUNCTION note_news, note_refusal, note_ended_link, write_letters,
    sends_mail, send_invitation, letters_are_seen, see_letters, take_letters, end_letter,
    ask_sign_in_link, answer_sign_in_request FROM PUBLIC;
GRANT EXECUTE ON FUNCTION write_letters, take_letters, end_letter, answer_sign_in_request
    TO letterbox_worker;
GRANT EXECUTE ON FUNCTION ask_sign_in_link, send_invitation TO letterbox_desk;
GRANT EXECUTE ON FUNCTION sends_mail TO letterbox_operator, letterbox_desk;
GRANT SELECT ON letters TO letterbox_operator;

-- Owners set it for their workspace, with accounts of their own.

CREATE FUNCTION notices_use_ones_own_account() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    IF NOT is_operator() AND NOT EXISTS (SELECT FROM connected_accounts c JOIN acting() a
        ON a.user_id = c.user_id WHERE c.workspace_id = NEW.workspace_id
            AND c.account_id = NEW.notify_account AND c.disconnected_at IS NULL) THEN
        RAISE EXCEPTION 'notices are sent through an account of one''s own'
            USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN NEW;
END
$$;
COMMENT ON FUNCTION notices_use_ones_own_account IS
    'Nobody but an operator has notices sent with a credential of somebody else';
CREATE TRIGGER notices_use_ones_own_account BEFORE UPDATE OF notify_account ON workspaces
    FOR EACH ROW WHEN (NEW.notify_account IS NOT NULL
        AND NEW.notify_account IS DISTINCT FROM OLD.notify_account)
    EXECUTE FUNCTION notices_use_ones_own_account();
REVOKE EXECUTE ON FUNCTION notices_use_ones_own_account FROM PUBLIC;
CREATE POLICY owners_govern ON workspaces FOR UPDATE TO letterbox_desk
    USING (workspace_id = ANY ((SELECT workspaces_as('owner'))::uuid[]));
GRANT UPDATE (notify_by_email, notify_account) ON workspaces TO letterbox_desk;
