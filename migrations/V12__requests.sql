-- Why: what was approved is what is sent. The request of an action could be rewritten while its run waited for a person.

CREATE FUNCTION keep_request() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- Only the functions that forget and erase work with the rights of the table's owner.
    IF NEW.request IS NULL AND pg_has_role(current_user, (SELECT relowner FROM pg_class WHERE oid = TG_RELID), 'MEMBER') THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'the request of an action is recorded once' USING ERRCODE = 'restrict_violation';
END
$$;
COMMENT ON FUNCTION keep_request IS 'A recorded request can be forgotten, not replaced';
CREATE TRIGGER keep_request BEFORE UPDATE OF request ON run_actions FOR EACH ROW
WHEN (OLD.request IS NOT NULL AND NEW.request IS DISTINCT FROM OLD.request) EXECUTE FUNCTION keep_request();
