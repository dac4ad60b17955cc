-- Each process works under a role that can do what it must and nothing else, so that a gateway that
-- has been taken over can't read what became of what it accepted. A process takes its role when it
-- connects; the login in its DATABASE_URL has to be the role itself or a member of it.
--
-- Roles belong to the whole server: another database of the same server may have made them already.

DO $$
DECLARE
    wanted text;
BEGIN
    FOREACH wanted IN ARRAY ARRAY['letterbox_gateway', 'letterbox_worker', 'letterbox_operator']
    LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = wanted) THEN
            EXECUTE format('CREATE ROLE %I NOLOGIN', wanted);
            EXECUTE format('COMMENT ON ROLE %I IS %L', wanted,
                'Least rights of one Letterbox process');
        END IF;
        BEGIN
            EXECUTE format('GRANT %I TO current_user', wanted);
        EXCEPTION WHEN insufficient_privilege THEN
            RAISE NOTICE 'The logins of the processes must be members of % already', wanted;
        END;
    END LOOP;
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'letterbox_reader') THEN
        CREATE ROLE letterbox_reader NOLOGIN;
        COMMENT ON ROLE letterbox_reader IS 'Reads signals for other programs; see signal_feed';
    END IF;
END
$$;

-- Functions with rights of their own search where nobody else makes anything.
REVOKE CREATE ON SCHEMA public FROM PUBLIC;

-- Every process checks at its start that it knows the schema.
GRANT SELECT ON refinery_schema_history
    TO letterbox_gateway, letterbox_worker, letterbox_operator;
