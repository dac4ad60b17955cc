-- Grants of OAuth 2.0: with what access tokens are got. The token itself is the credential of its
-- account, as any other. People hand in a client secret, or a code, sealed to the workers; a worker
-- exchanges it, and renews the token before it ends, one for all. While an account waits for its
-- token, or for its owner, no run calls it: its runs wait, and go on after.

-- The search path of the SECURITY DEFINER functions below.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

CREATE TABLE grants (
    workspace_id         uuid NOT NULL,
    account_id           uuid NOT NULL,
    user_id              uuid NOT NULL,
    token_url            text NOT NULL,
    authorize_url        text,
    client_id            text NOT NULL CHECK (char_length(client_id) BETWEEN 1 AND 500),
    scope                text CHECK (char_length(scope) BETWEEN 1 AND 1000),
    client_secret_sealed bytea,
    grant_sealed         bytea,
    revision             bigint NOT NULL DEFAULT 0,
    renew_at             timestamptz,
    taken_until          timestamptz,
    failures             integer NOT NULL DEFAULT 0,
    error                text,
    PRIMARY KEY (workspace_id, account_id),
    FOREIGN KEY (workspace_id, account_id, user_id)
        REFERENCES connected_accounts (workspace_id, account_id, user_id)
);
COMMENT ON TABLE grants IS 'How a connected account gets its access tokens, by OAuth 2.0';
COMMENT ON COLUMN grants.workspace_id IS 'Tenant';
COMMENT ON COLUMN grants.account_id IS 'The account, whose credential the access token is';
COMMENT ON COLUMN grants.user_id IS 'The owner of the account';
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
COMMENT ON COLUMN grants.revision IS
    'Counts what people handed in and exchanges that began: what comes of an earlier one is void';
COMMENT ON COLUMN grants.renew_at IS
    'When a worker gets the next token; null if nothing is to be done before this one is refused';
COMMENT ON COLUMN grants.taken_until IS
    'A worker exchanges it now, or has died; null if none does';
COMMENT ON COLUMN grants.failures IS 'Exchanges since the last token that ended without an answer';
COMMENT ON COLUMN grants.error IS 'Why there is no new token; null if there is one';
CREATE INDEX grants_due ON grants (renew_at) WHERE renew_at IS NOT NULL;

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
    WITH due AS (
        SELECT g.workspace_id, g.account_id FROM grants g
        WHERE g.renew_at <= now() AND (g.taken_until <= now()) IS NOT FALSE
        ORDER BY g.renew_at LIMIT most FOR UPDATE SKIP LOCKED
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

CREATE FUNCTION keep_token(tenant uuid, account uuid, of_revision bigint, token bytea,
    next_grant bytea, is_spent boolean, seconds double precision) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM FROM connected_accounts a WHERE a.workspace_id = tenant AND a.account_id = account
        FOR NO KEY UPDATE;
    UPDATE grants g SET failures = 0, error = NULL, taken_until = NULL,
        grant_sealed = coalesce(next_grant, CASE WHEN NOT is_spent THEN g.grant_sealed END),
        renew_at = clock_timestamp() + make_interval(secs => seconds)
    WHERE g.workspace_id = tenant AND g.account_id = account AND g.revision = of_revision;
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
    is_final boolean) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM FROM connected_accounts a WHERE a.workspace_id = tenant AND a.account_id = account
        FOR NO KEY UPDATE;
    UPDATE grants g SET failures = g.failures + 1, error = left(why, 500), taken_until = NULL,
        renew_at = CASE WHEN NOT is_final THEN clock_timestamp()
            + least(interval '2 seconds' * 2 ^ least(g.failures, 10), interval '5 minutes') END
    WHERE g.workspace_id = tenant AND g.account_id = account AND g.revision = of_revision;
    IF FOUND AND is_final THEN
        UPDATE connected_accounts a SET waits_for = 'owner', is_refused = true
        WHERE a.workspace_id = tenant AND a.account_id = account;
    END IF;
    RETURN FOUND;
END
$$;
COMMENT ON FUNCTION keep_failure IS
    'Notes that an exchange gave no token: it is tried again, or if that is final, the account '
    'waits for its owner, and with it its runs; false if the exchange is void';

CREATE FUNCTION refuse_token(tenant uuid, account uuid, used bytea) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    can_renew boolean;
BEGIN
    PERFORM FROM connected_accounts a WHERE a.workspace_id = tenant AND a.account_id = account
        FOR NO KEY UPDATE;
    SELECT g.grant_sealed IS NOT NULL OR g.authorize_url IS NULL INTO can_renew FROM grants g
    WHERE g.workspace_id = tenant AND g.account_id = account FOR UPDATE;
    IF can_renew IS NULL THEN
        RETURN false;
    END IF;
    UPDATE connected_accounts a SET waits_for = CASE WHEN can_renew THEN 'token' ELSE 'owner' END,
        is_refused = NOT can_renew
    WHERE a.workspace_id = tenant AND a.account_id = account
        AND a.credential_sealed = used AND a.waits_for IS NULL;
    IF FOUND AND can_renew THEN
        UPDATE grants g SET renew_at = least(g.renew_at, clock_timestamp())
        WHERE g.workspace_id = tenant AND g.account_id = account;
    END IF;
    RETURN true;
END
$$;
COMMENT ON FUNCTION refuse_token IS
    'An account has refused this credential: if it is its token still, it waits for another one; '
    'false if it has no grant to get one for';

REVOKE EXECUTE ON FUNCTION disconnect_ends_grant, take_grants, keep_token, keep_failure,
    refuse_token FROM PUBLIC;
GRANT EXECUTE ON FUNCTION take_grants, keep_token, keep_failure, refuse_token TO letterbox_worker;
GRANT SELECT, INSERT, UPDATE ON grants TO letterbox_operator;

-- The owner of an account hands in its grant, and sees it but for what is sealed.

ALTER TABLE grants ENABLE ROW LEVEL SECURITY;
CREATE POLICY processes_see_all ON grants TO letterbox_worker, letterbox_operator USING (true);
CREATE POLICY members_see ON grants FOR SELECT TO letterbox_person USING (
    user_id = (SELECT user_id FROM acting())
    OR workspace_id = ANY ((SELECT workspaces_as('owner'))::uuid[]));
CREATE POLICY owners_connect ON grants FOR INSERT TO letterbox_person WITH CHECK (
    user_id = (SELECT user_id FROM acting())
    AND workspace_id = ANY ((SELECT workspaces_as('runner'))::uuid[]));
CREATE POLICY owners_change ON grants FOR UPDATE TO letterbox_person USING (
    user_id = (SELECT user_id FROM acting())
    AND workspace_id = ANY ((SELECT workspaces_as('viewer'))::uuid[]));
GRANT SELECT (workspace_id, account_id, user_id, token_url, authorize_url, client_id, scope,
    revision, renew_at, failures, error) ON grants TO letterbox_person;
GRANT INSERT (workspace_id, account_id, user_id, token_url, authorize_url, client_id, scope,
    client_secret_sealed, renew_at), UPDATE (client_secret_sealed, grant_sealed, revision, renew_at,
    taken_until, failures, error) ON grants TO letterbox_person;

CREATE TRIGGER audit AFTER INSERT OR UPDATE OF client_secret_sealed, grant_sealed ON grants
    FOR EACH ROW WHEN (COALESCE(current_setting('role', true), '') NOT IN ('letterbox_gateway',
        'letterbox_worker')) EXECUTE FUNCTION audit('account_id');
