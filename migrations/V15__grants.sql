-- Grants of OAuth 2.0: with what access tokens are got. The token itself is the credential of its
-- account, as any other. People hand in a client secret, or a code, sealed to the workers; a worker
-- exchanges it, and renews the token before it ends, one for all. While an account waits for its
-- token, or for its owner, no run calls it: its runs wait, and go on after.

CREATE TABLE grants (
    workspace_id         uuid NOT NULL,
    account_id           uuid NOT NULL,
    user_id              uuid NOT NULL,
    token_url            text NOT NULL CHECK (char_length(token_url) <= 2000),
    authorize_url        text CHECK (char_length(authorize_url) <= 2000),
    client_id            text NOT NULL CHECK (char_length(client_id) BETWEEN 1 AND 500),
    scope                text CHECK (char_length(scope) BETWEEN 1 AND 1000),
    client_secret_sealed bytea CHECK (octet_length(client_secret_sealed) <= 8192),
    grant_sealed         bytea CHECK (octet_length(grant_sealed) <= 131072),
    handed_in            bigint NOT NULL DEFAULT 0,
    revision             bigint NOT NULL DEFAULT 0,
    renew_at             timestamptz,
    planned_at           timestamptz NOT NULL DEFAULT now(),
    taken_until          timestamptz,
    refused_at           timestamptz,
    failures             integer NOT NULL DEFAULT 0,
    error                text,
    PRIMARY KEY (workspace_id, account_id),
    FOREIGN KEY (workspace_id, account_id, user_id)
        REFERENCES connected_accounts (workspace_id, account_id, user_id)
);
COMMENT ON TABLE grants IS 'How a connected account gets its access tokens, by OAuth 2.0';
COMMENT ON COLUMN grants.account_id IS 'The account, whose credential the access token is';
COMMENT ON COLUMN grants.token_url IS 'Where tokens are got';
COMMENT ON COLUMN grants.authorize_url IS
    'Where the owner lets Letterbox in; null for client credentials, which need nobody';
COMMENT ON COLUMN grants.client_id IS 'Who Letterbox is there';
COMMENT ON COLUMN grants.scope IS 'What is asked for, words with spaces between them; null if '
    'nothing in particular';
COMMENT ON COLUMN grants.client_secret_sealed IS
    'Sealed to this row; null for a client without a secret';
COMMENT ON COLUMN grants.grant_sealed IS
    'The code with its verifier, until it is exchanged, then the refresh token; sealed to this row';
COMMENT ON COLUMN grants.handed_in IS 'Counts what people handed in: a code counts once';
COMMENT ON COLUMN grants.revision IS
    'Counts what people handed in and exchanges that began: what an earlier one fails with is void';
COMMENT ON COLUMN grants.renew_at IS
    'When a worker gets the next token; null if nothing is to be done before this one is refused';
COMMENT ON COLUMN grants.planned_at IS
    'When renew_at was set: if that is in the future, the clock was set back since, and it is due';
COMMENT ON COLUMN grants.taken_until IS 'A worker exchanges it now, or has died; null if none does';
COMMENT ON COLUMN grants.refused_at IS
    'When another token was got because the account refused the last one; null if never';
COMMENT ON COLUMN grants.failures IS 'Exchanges since the last token that ended without an answer';
COMMENT ON COLUMN grants.error IS 'Why there is no new token; null if there is one';
CREATE INDEX grants_due ON grants (renew_at) WHERE renew_at IS NOT NULL;
CREATE INDEX grants_planned ON grants (planned_at) WHERE renew_at IS NOT NULL;

-- Whoever began a moment later is ahead of now(), by less than five seconds.
CREATE FUNCTION is_due(grants) RETURNS boolean LANGUAGE sql STABLE
RETURN $1.renew_at <= now()
    OR $1.renew_at IS NOT NULL AND $1.planned_at > now() + interval '5 seconds';
COMMENT ON FUNCTION is_due IS 'Whether a token is to be got by this grant now';
CREATE FUNCTION is_taken(grants) RETURNS boolean LANGUAGE sql STABLE
RETURN ($1.taken_until BETWEEN now() AND now() + interval '65 seconds') IS TRUE;
COMMENT ON FUNCTION is_taken IS
    'Whether a worker exchanges this grant now: it has a minute, and more was given by a clock '
    'that has been set back since';

CREATE FUNCTION disconnect_ends_grant() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    DELETE FROM grants WHERE workspace_id = NEW.workspace_id AND account_id = NEW.account_id;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION disconnect_ends_grant IS 'Destroys the grant of an account with its credential';
CREATE TRIGGER disconnect_ends_grant AFTER UPDATE OF disconnected_at ON connected_accounts
    FOR EACH ROW WHEN (NEW.disconnected_at IS NOT NULL) EXECUTE FUNCTION disconnect_ends_grant();

-- Whoever changes an account and its grant locks the account first.

CREATE FUNCTION take_grants(most integer) RETURNS TABLE (workspace_id uuid, account_id uuid,
    user_id uuid, header_name text, base_url text, token_url text, client_id text, scope text,
    is_code boolean, client_secret_sealed bytea, grant_sealed bytea, revision bigint)
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    WITH turns AS (
        -- Each workspace in turn, with ten at a time at most; what has failed comes after the rest.
        SELECT g.workspace_id, g.account_id, g.renew_at, g.failures > 0 AS has_failed,
            row_number() OVER (PARTITION BY g.workspace_id
                ORDER BY NOT is_taken(g), g.failures > 0, g.renew_at) AS turn
        FROM grants g WHERE is_due(g)
    ), due AS (
        SELECT g.workspace_id, g.account_id FROM turns t
        JOIN grants g ON g.workspace_id = t.workspace_id AND g.account_id = t.account_id
        -- While its owner keeps the account locked, nothing could be kept for it.
        JOIN connected_accounts a ON a.workspace_id = t.workspace_id
            AND a.account_id = t.account_id
        WHERE t.turn <= 10 AND is_due(g) AND NOT is_taken(g)
        ORDER BY t.has_failed, t.turn, t.renew_at LIMIT most FOR UPDATE OF g, a SKIP LOCKED
    ), taken AS (
        -- Whoever took it may have died: another one tries then.
        UPDATE grants g SET revision = g.revision + 1,
            taken_until = now() + interval '1 minute'
        FROM due WHERE g.workspace_id = due.workspace_id AND g.account_id = due.account_id
        RETURNING g.*
    )
    SELECT t.workspace_id, t.account_id, t.user_id, a.header_name, a.base_url, t.token_url,
        t.client_id, t.scope, t.authorize_url IS NOT NULL, t.client_secret_sealed, t.grant_sealed,
        t.revision
    FROM taken t JOIN connected_accounts a
        ON a.workspace_id = t.workspace_id AND a.account_id = t.account_id
$$;
COMMENT ON FUNCTION take_grants IS 'The grants that are due, each for one exchange within a minute';

CREATE FUNCTION keep_token(tenant uuid, account uuid, of_revision bigint, used_grant bytea,
    token bytea, next_grant bytea, is_spent boolean, seconds double precision) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM FROM connected_accounts a WHERE a.workspace_id = tenant AND a.account_id = account
        FOR NO KEY UPDATE;
    -- What was got for the grant that is there still is the only one that works from now on: others
    -- that have taken it since get nothing for it, and may have said so.
    UPDATE grants g SET failures = 0, error = NULL, taken_until = NULL, revision = g.revision + 1,
        grant_sealed = coalesce(next_grant, CASE WHEN NOT is_spent THEN g.grant_sealed END),
        renew_at = clock_timestamp() + make_interval(secs => seconds),
        planned_at = clock_timestamp()
    WHERE g.workspace_id = tenant AND g.account_id = account
        AND (g.revision = of_revision OR g.grant_sealed = used_grant
            OR g.grant_sealed IS NULL AND used_grant IS NOT NULL AND g.failures > 0);
    IF FOUND THEN
        UPDATE connected_accounts a SET credential_sealed = token, waits_for = NULL
        WHERE a.workspace_id = tenant AND a.account_id = account;
    END IF;
    RETURN FOUND;
END
$$;
COMMENT ON FUNCTION keep_token IS
    'Gives an account the token of an exchange, to be renewed after some seconds (null: not before '
    'it is refused), and lets its runs go on; false if the exchange is void';

CREATE FUNCTION keep_failure(tenant uuid, account uuid, of_revision bigint, why text,
    is_final boolean, is_spent boolean) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    failed integer;
BEGIN
    PERFORM FROM connected_accounts a WHERE a.workspace_id = tenant AND a.account_id = account
        FOR NO KEY UPDATE;
    UPDATE grants g SET failures = g.failures + 1, error = left(why, 500), taken_until = NULL,
        grant_sealed = CASE WHEN NOT is_spent THEN g.grant_sealed END,
        renew_at = CASE WHEN is_spent THEN NULL
            WHEN is_final THEN clock_timestamp() + interval '1 hour'
            ELSE clock_timestamp() + least(interval '2 s' * 2 ^ least(g.failures, 10), '5 min') END,
        planned_at = clock_timestamp()
    WHERE g.workspace_id = tenant AND g.account_id = account AND g.revision = of_revision
    RETURNING g.failures INTO failed;
    IF is_final THEN
        UPDATE connected_accounts a SET is_refused = true,
            waits_for = CASE WHEN a.waits_for IS NOT NULL THEN 'owner' END
        WHERE a.workspace_id = tenant AND a.account_id = account AND failed IS NOT NULL;
    ELSE
        -- A quarter of an hour in vain, with runs that wait: somebody is told.
        UPDATE connected_accounts a SET is_refused = true
        WHERE a.workspace_id = tenant AND a.account_id = account AND a.waits_for IS NOT NULL
            AND failed >= 10 AND NOT a.is_refused;
    END IF;
    RETURN failed IS NOT NULL;
END
$$;
COMMENT ON FUNCTION keep_failure IS
    'Notes that an exchange gave no token: it is tried again soon, if that is final, in an hour, '
    'because servers err, and not at all once the grant is spent; then the account waits for its '
    'owner, unless it has a token that serves; false if the exchange is void';

CREATE FUNCTION refuse_token(tenant uuid, account uuid, used bytea, again boolean) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    can_renew boolean;
    is_again boolean;
BEGIN
    PERFORM FROM connected_accounts a WHERE a.workspace_id = tenant AND a.account_id = account
        FOR NO KEY UPDATE;
    SELECT g.grant_sealed IS NOT NULL OR g.authorize_url IS NULL,
        -- One that was to be renewed may well have ended: whoever renews it was held up, or got
        -- none, and tries again in a while.
        (again OR g.refused_at BETWEEN clock_timestamp() - interval '1 minute'
            AND clock_timestamp()) IS TRUE
            AND (is_due(g) OR g.failures > 0) IS NOT TRUE
    INTO can_renew, is_again FROM grants g
    WHERE g.workspace_id = tenant AND g.account_id = account FOR UPDATE;
    IF can_renew IS NULL THEN
        RETURN false;
    END IF;
    IF is_again AND EXISTS (SELECT FROM connected_accounts a WHERE a.workspace_id = tenant
            AND a.account_id = account AND a.credential_sealed = used AND a.waits_for IS NULL) THEN
        RETURN false;
    END IF;
    UPDATE connected_accounts a SET waits_for = CASE WHEN can_renew THEN 'token' ELSE 'owner' END,
        is_refused = NOT can_renew
    WHERE a.workspace_id = tenant AND a.account_id = account
        AND a.credential_sealed = used AND a.waits_for IS NULL;
    IF FOUND AND can_renew THEN
        UPDATE grants g SET renew_at = least(g.renew_at, clock_timestamp()),
            refused_at = clock_timestamp(), planned_at = clock_timestamp()
        WHERE g.workspace_id = tenant AND g.account_id = account;
    END IF;
    RETURN true;
END
$$;
COMMENT ON FUNCTION refuse_token IS
    'An account has refused this credential: if it is its token still, it waits for another one; '
    'false if it has no grant to get one for, or has refused another one within a minute, or just '
    'before (again): then it is not the token that it refuses';

CREATE FUNCTION hand_in(tenant uuid, account uuid, since bigint, secret bytea, code bytea)
RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM FROM connected_accounts a WHERE a.workspace_id = tenant AND a.account_id = account
        AND a.disconnected_at IS NULL
        AND (is_operator() OR a.user_id = (SELECT user_id FROM acting())
            AND tenant = ANY (workspaces_as('viewer')))
        FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    -- With another secret, an exchange that has begun may yet give the next grant.
    UPDATE grants g SET client_secret_sealed = coalesce(secret, g.client_secret_sealed),
        grant_sealed = coalesce(code, g.grant_sealed), handed_in = g.handed_in + 1,
        revision = g.revision + 1, renew_at = now(), planned_at = now(), failures = 0, error = NULL,
        taken_until = CASE WHEN code IS NULL AND g.grant_sealed IS NOT NULL THEN g.taken_until END
    WHERE g.workspace_id = tenant AND g.account_id = account AND g.handed_in = since;
    IF FOUND THEN
        UPDATE connected_accounts a SET waits_for = 'token'
        WHERE a.workspace_id = tenant AND a.account_id = account;
    END IF;
    RETURN FOUND;
END
$$;
COMMENT ON FUNCTION hand_in IS
    'Hands in a client secret or a code, for an operator or the owner of the account: a worker '
    'exchanges it now; false if there is no such grant, or something was handed in since';

REVOKE EXECUTE ON FUNCTION disconnect_ends_grant, take_grants, keep_token, keep_failure,
    refuse_token, hand_in FROM PUBLIC;
GRANT EXECUTE ON FUNCTION hand_in TO letterbox_operator, letterbox_desk;
GRANT EXECUTE ON FUNCTION take_grants, keep_token, keep_failure, refuse_token TO letterbox_worker;
GRANT SELECT, INSERT, UPDATE ON grants TO letterbox_operator;

-- The owner of an account hands in its grant, and sees it but for what is sealed.

ALTER TABLE grants ENABLE ROW LEVEL SECURITY;
CREATE POLICY processes_see_all ON grants TO letterbox_worker, letterbox_operator USING (true);
CREATE POLICY members_see ON grants FOR SELECT TO letterbox_desk USING (
    user_id = (SELECT user_id FROM acting())
    OR workspace_id = ANY ((SELECT workspaces_as('owner'))::uuid[]));
CREATE POLICY owners_connect ON grants FOR INSERT TO letterbox_desk WITH CHECK (
    user_id = (SELECT user_id FROM acting())
    AND workspace_id = ANY ((SELECT workspaces_as('runner'))::uuid[])
    AND (renew_at = now()) IS NOT FALSE);
GRANT SELECT (workspace_id, account_id, user_id, token_url, authorize_url, client_id, scope,
    handed_in, renew_at, failures, error) ON grants TO letterbox_desk;
GRANT INSERT (workspace_id, account_id, user_id, token_url, authorize_url, client_id, scope,
    client_secret_sealed, renew_at) ON grants TO letterbox_desk;

CREATE TRIGGER audit AFTER INSERT OR UPDATE OF client_secret_sealed, grant_sealed ON grants
    FOR EACH ROW WHEN (COALESCE(current_setting('role', true), '') NOT IN ('letterbox_gateway',
        'letterbox_worker')) EXECUTE FUNCTION audit('account_id');
