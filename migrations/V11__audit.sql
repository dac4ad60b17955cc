-- Who ordered what, and when. Every change that somebody makes with the operator's rights, or with
-- greater ones, is written down in the transaction that makes it, by the tables themselves: no
-- program can forget it, and no role can change or delete what was written. Values that are secret,
-- or that a person may ask to have erased, are not.

-- Where functions with rights of their own search.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

CREATE TABLE audit_log (
    workspace_id uuid,
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
    UNIQUE NULLS NOT DISTINCT (workspace_id, entry_id)
);
COMMENT ON TABLE audit_log IS
    'Every order of an operator or approver; also of workspaces that are deleted';
COMMENT ON COLUMN audit_log.workspace_id IS 'Tenant; null for what belongs to none';
COMMENT ON COLUMN audit_log.entry_id IS 'Counts';
COMMENT ON COLUMN audit_log.ordered_at IS 'Database clock';
COMMENT ON COLUMN audit_log.ordered_by IS 'The user who answers for it, where one was named';
COMMENT ON COLUMN audit_log.login IS 'The login of the database that gave the order';
COMMENT ON COLUMN audit_log.command IS
    'The command, such as run cancel; else the statement and its table';
COMMENT ON COLUMN audit_log.subject IS 'The table of what was changed';
COMMENT ON COLUMN audit_log.subject_id IS 'Which of them';
COMMENT ON COLUMN audit_log.reason IS 'Why, where that was said';
COMMENT ON COLUMN audit_log.before IS
    'What was changed, as it was; values that are not kept here read (hidden)';
COMMENT ON COLUMN audit_log.after IS 'The same, as it is since then';
CREATE INDEX audit_log_by_entry ON audit_log (entry_id);
CREATE INDEX audit_log_by_subject ON audit_log (subject_id, entry_id);
CREATE TRIGGER audit_log_is_not_emptied BEFORE TRUNCATE ON audit_log FOR EACH STATEMENT
    EXECUTE FUNCTION refuse_change();
CREATE TRIGGER audit_log_is_only_added_to BEFORE UPDATE OR DELETE ON audit_log
    FOR EACH ROW EXECUTE FUNCTION refuse_change();

CREATE FUNCTION shown_in_audit(subject text, name text, value jsonb)
    RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN value <> 'null' AND (name IN ('credential_sealed', 'secret_sealed',
        'token_sha256', 'input')
            OR subject = 'users' AND name IN ('email', 'name') OR subject = 'runs'
                AND name IN ('failure', 'failing'))
        THEN '"(hidden)"' ELSE value END
$$;
COMMENT ON FUNCTION shown_in_audit IS 'Secrets and what identifies a person are not kept for ever';

CREATE FUNCTION audit()
    RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
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
    INSERT INTO audit_log (workspace_id, ordered_by, login, command, subject, subject_id, reason,
        before, after)
    SELECT (one ->> 'workspace_id')::uuid,
           coalesce(nullif(current_setting('letterbox.ordered_by', true), ''),
               one ->> 'decided_by')::uuid,
           session_user,
           coalesce(nullif(current_setting('letterbox.command', true), ''),
               lower(TG_OP) || ' ' || TG_TABLE_NAME),
           TG_TABLE_NAME, one ->> TG_ARGV[0], nullif(current_setting('letterbox.reason', true), ''),
           coalesce(jsonb_object_agg(name, shown_in_audit(TG_TABLE_NAME, name,
               former -> name)) FILTER (WHERE former ? name), '{}'),
           coalesce(jsonb_object_agg(name, shown_in_audit(TG_TABLE_NAME, name,
               latter -> name)) FILTER (WHERE latter ? name), '{}')
    FROM jsonb_object_keys(one) AS name
    WHERE coalesce(former -> name, 'null') <> coalesce(latter -> name, 'null')
      AND NOT (TG_TABLE_NAME = 'runs' AND name = 'found_by')
    HAVING count(*) > 0;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION audit IS
    'Writes down what was changed; its argument names the column that identifies the row';
REVOKE EXECUTE ON FUNCTION audit FROM PUBLIC;

-- What services write by themselves is not an order.
CREATE TRIGGER audit AFTER INSERT OR UPDATE OR DELETE ON workspaces
    FOR EACH ROW WHEN (COALESCE(current_setting('role', true), '') NOT IN ('letterbox_gateway',
        'letterbox_worker')) EXECUTE FUNCTION audit('workspace_id');
CREATE TRIGGER audit AFTER INSERT OR UPDATE OR DELETE ON users
    FOR EACH ROW WHEN (COALESCE(current_setting('role', true), '') NOT IN ('letterbox_gateway',
        'letterbox_worker')) EXECUTE FUNCTION audit('user_id');
CREATE TRIGGER audit AFTER INSERT OR UPDATE OR DELETE ON members
    FOR EACH ROW WHEN (COALESCE(current_setting('role', true), '') NOT IN ('letterbox_gateway',
        'letterbox_worker')) EXECUTE FUNCTION audit('user_id');
CREATE TRIGGER audit AFTER INSERT OR UPDATE ON workflows
    FOR EACH ROW WHEN (COALESCE(current_setting('role', true), '') NOT IN ('letterbox_gateway',
        'letterbox_worker')) EXECUTE FUNCTION audit('workflow_id');
CREATE TRIGGER audit AFTER INSERT OR UPDATE ON form_links
    FOR EACH ROW WHEN (COALESCE(current_setting('role', true), '') NOT IN ('letterbox_gateway',
        'letterbox_worker')) EXECUTE FUNCTION audit('form_link_id');
CREATE TRIGGER audit AFTER INSERT OR UPDATE ON webhooks
    FOR EACH ROW WHEN (COALESCE(current_setting('role', true), '') NOT IN ('letterbox_gateway',
        'letterbox_worker')) EXECUTE FUNCTION audit('webhook_id');
CREATE TRIGGER audit AFTER INSERT OR UPDATE OR DELETE ON signal_readers
    FOR EACH ROW WHEN (COALESCE(current_setting('role', true), '') NOT IN ('letterbox_gateway',
        'letterbox_worker')) EXECUTE FUNCTION audit('login');
CREATE TRIGGER audit AFTER INSERT OR UPDATE ON connected_accounts
    FOR EACH ROW WHEN (COALESCE(current_setting('role', true), '') NOT IN ('letterbox_gateway',
        'letterbox_worker')) EXECUTE FUNCTION audit('account_id');
CREATE TRIGGER audit AFTER INSERT ON policies
    FOR EACH ROW WHEN (COALESCE(current_setting('role', true), '') NOT IN ('letterbox_gateway',
        'letterbox_worker')) EXECUTE FUNCTION audit('version');
CREATE TRIGGER audit AFTER UPDATE ON runs
    FOR EACH ROW WHEN (COALESCE(current_setting('role', true), '') NOT IN ('letterbox_gateway',
        'letterbox_worker')) EXECUTE FUNCTION audit('run_id');
CREATE TRIGGER audit AFTER UPDATE ON approvals
    FOR EACH ROW WHEN (COALESCE(current_setting('role', true), '') NOT IN ('letterbox_gateway',
        'letterbox_worker')) EXECUTE FUNCTION audit('approval_id');
CREATE TRIGGER audit AFTER UPDATE ON all_workspaces
    FOR EACH ROW WHEN (COALESCE(current_setting('role', true), '') NOT IN ('letterbox_gateway',
        'letterbox_worker')) EXECUTE FUNCTION audit('one');

CREATE FUNCTION note_order(about text, told jsonb)
    RETURNS void LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    INSERT INTO audit_log (ordered_by, login, command, subject, reason, before, after)
    VALUES (nullif(current_setting('letterbox.ordered_by', true), '')::uuid, session_user,
            coalesce(nullif(current_setting('letterbox.command', true), ''), about), about,
            nullif(current_setting('letterbox.reason', true), ''), '{}', told)
$$;
COMMENT ON FUNCTION note_order IS 'Writes down an order that changes no table';
REVOKE EXECUTE ON FUNCTION note_order FROM PUBLIC;
GRANT EXECUTE ON FUNCTION note_order TO letterbox_operator;

GRANT SELECT ON audit_log TO letterbox_operator;
