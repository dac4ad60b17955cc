-- Each process works under a role with only the rights that it needs, so that a gateway that has
-- been taken over can't read the signals and runs of accepted entries. A process sets its role when
-- it connects; the login in its DATABASE_URL has to be the role itself or a member of it.
--
-- Roles belong to the whole server: another database of the same server may have created them.

DO $$
DECLARE
    wanted text;
BEGIN
    FOREACH wanted IN ARRAY ARRAY['letterbox_gateway', 'letterbox_worker', 'letterbox_operator',
        'letterbox_desk']
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
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'letterbox_scaler') THEN
        CREATE ROLE letterbox_scaler NOLOGIN;
        COMMENT ON ROLE letterbox_scaler IS 'Counts runs for an autoscaler; see runs_in_demand';
    END IF;
END
$$;

-- Nobody but the owner makes temporary tables, which could stand in for others.
DO $$
BEGIN
    EXECUTE format('REVOKE TEMPORARY ON DATABASE %I FROM PUBLIC', current_database());
EXCEPTION WHEN insufficient_privilege THEN
    RAISE NOTICE 'The owner of the database must REVOKE TEMPORARY ON DATABASE … FROM PUBLIC';
END
$$;

-- SECURITY DEFINER functions search this schema, so no one else may create objects in it.
REVOKE CREATE ON SCHEMA public FROM PUBLIC;

-- Every process checks the version of the schema when it starts.
GRANT SELECT ON refinery_schema_history
    TO letterbox_gateway, letterbox_worker, letterbox_operator, letterbox_desk;
