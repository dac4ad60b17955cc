-- Why: what was decided and what was done is a trail. The operator's role could rewrite it, and take a policy away so that
-- an older one counts again; the worker's could give its own approvals.

REVOKE UPDATE, DELETE ON policies, releases FROM letterbox_operator;
REVOKE INSERT, UPDATE, DELETE ON run_actions, approvals FROM letterbox_operator;
GRANT UPDATE (state, decided_by, decided_at) ON approvals TO letterbox_operator;

CREATE FUNCTION worker_only_asks() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF current_user = 'letterbox_worker' AND (
        (TG_OP = 'INSERT' AND NEW.state <> 'pending')
        OR (TG_OP = 'UPDATE' AND NEW.state <> OLD.state AND NEW.state <> 'expired')
    ) THEN
        RAISE EXCEPTION 'a worker asks for approvals and does not give them' USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN NEW;
END
$$;
COMMENT ON FUNCTION worker_only_asks IS 'People approve and deny';
CREATE TRIGGER worker_only_asks BEFORE INSERT OR UPDATE ON approvals FOR EACH ROW EXECUTE FUNCTION worker_only_asks();
