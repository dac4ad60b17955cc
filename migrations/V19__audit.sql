-- Why: who ordered what, and when, could not be found out later. Every change that somebody makes with the operator's rights, or
-- with greater ones, is written down in the transaction that makes it, by the tables themselves: no program can forget it, and
-- no role can change or delete what was written. Values that are secret, or that a person may ask to have erased, are not.

-- Where functions with rights of their own search.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

CREATE TABLE audit_log (
    workspace_id uuid NOT NULL,
    entry_id     bigint GENERATED ALWAYS AS IDENTITY,
    ordered_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    ordered_by   uuid,
    login        text NOT NULL,
    command      text NOT NULL,
    subject      text NOT NULL,
    subject_id   text,
    reason       text,
    before       jsonb NOT NULL,
    after        jsonb NOT NULL,
    PRIMARY KEY (workspace_id, entry_id)
);
CREATE INDEX audit_log_by_entry ON audit_log (entry_id);
CREATE INDEX audit_log_by_subject ON audit_log (subject_id, entry_id);
CREATE TRIGGER audit_log_is_only_added_to BEFORE UPDATE OR DELETE ON audit_log FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER audit_log_is_not_emptied BEFORE TRUNCATE ON audit_log FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
COMMENT ON TABLE audit_log IS 'Every order of an operator or approver; also of workspaces that are deleted';
COMMENT ON COLUMN audit_log.workspace_id IS 'Tenant; nil for what belongs to none';
COMMENT ON COLUMN audit_log.entry_id IS 'Counts';
COMMENT ON COLUMN audit_log.ordered_at IS 'Database clock';
COMMENT ON COLUMN audit_log.ordered_by IS 'The user who answers for it, where one was named';
COMMENT ON COLUMN audit_log.login IS 'The login of the database that gave the order';
COMMENT ON COLUMN audit_log.command IS 'The command, such as run cancel; else the statement and its table';
COMMENT ON COLUMN audit_log.subject IS 'The table of what was changed';
COMMENT ON COLUMN audit_log.subject_id IS 'Which of them';
COMMENT ON COLUMN audit_log.reason IS 'Why, where that was said';
COMMENT ON COLUMN audit_log.before IS 'What was changed, as it was; values that are not kept here read (hidden)';
COMMENT ON COLUMN audit_log.after IS 'The same, as it is since then';

CREATE FUNCTION shown_in_audit(subject text, name text, value jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN value <> 'null' AND (name IN ('credential_sealed', 'secret_sealed', 'token_sha256', 'input')
            OR subject = 'users' AND name IN ('email', 'name'))
        THEN '"(hidden)"' ELSE value END
$$;
COMMENT ON FUNCTION shown_in_audit IS 'Secrets and what identifies a person are not kept for ever';

CREATE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    former jsonb := '{}';
    latter jsonb := '{}';
    one jsonb;
BEGIN
    IF TG_OP <> 'INSERT' THEN
        former := to_jsonb(OLD);
    END IF;
    IF TG_OP <> 'DELETE' THEN
        latter := to_jsonb(NEW);
    END IF;
    one := former || latter;
    INSERT INTO audit_log (workspace_id, ordered_by, login, command, subject, subject_id, reason, before, after)
    SELECT coalesce((one ->> 'workspace_id')::uuid, '00000000-0000-0000-0000-000000000000'),
           coalesce(nullif(current_setting('letterbox.ordered_by', true), ''), one ->> 'decided_by')::uuid,
           session_user,
           coalesce(nullif(current_setting('letterbox.command', true), ''), lower(TG_OP) || ' ' || TG_TABLE_NAME),
           TG_TABLE_NAME, one ->> TG_ARGV[0], nullif(current_setting('letterbox.reason', true), ''),
           coalesce(jsonb_object_agg(name, shown_in_audit(TG_TABLE_NAME, name, former -> name)) FILTER (WHERE former ? name), '{}'),
           coalesce(jsonb_object_agg(name, shown_in_audit(TG_TABLE_NAME, name, latter -> name)) FILTER (WHERE latter ? name), '{}')
    FROM jsonb_object_keys(one) AS name
    WHERE coalesce(former -> name, 'null') <> coalesce(latter -> name, 'null')
    HAVING count(*) > 0;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION audit IS 'Writes down what was changed; its argument names the column that identifies the row';

-- What services write by themselves is not an order.
DO $$
DECLARE
    audited text[];
BEGIN
    FOREACH audited SLICE 1 IN ARRAY ARRAY[
        ['workspaces', 'workspace_id', 'INSERT OR UPDATE OR DELETE'],
        ['users', 'user_id', 'INSERT OR UPDATE OR DELETE'],
        ['members', 'user_id', 'INSERT OR UPDATE OR DELETE'],
        ['workflows', 'workflow_id', 'INSERT OR UPDATE'],
        ['form_links', 'form_link_id', 'INSERT OR UPDATE'],
        ['webhooks', 'webhook_id', 'INSERT OR UPDATE'],
        ['connected_accounts', 'account_id', 'INSERT OR UPDATE'],
        ['policies', 'version', 'INSERT'],
        ['approvals', 'approval_id', 'UPDATE'],
        ['runs', 'run_id', 'UPDATE']] LOOP
        EXECUTE format('CREATE TRIGGER audit AFTER %3$s ON %1$I FOR EACH ROW
            WHEN (coalesce(current_setting(''role'', true), '''') NOT IN (''letterbox_gateway'', ''letterbox_worker''))
            EXECUTE FUNCTION audit(%2$L)', audited[1], audited[2], audited[3]);
    END LOOP;
END
$$;
GRANT SELECT ON audit_log TO letterbox_operator;
