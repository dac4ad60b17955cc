-- The audit log. Triggers record every change that is made with the operator's rights, or with
-- greater ones, in the same transaction: no program can omit it, and no role can change or delete
-- an entry. Secret values, and values that a person may ask to have erased, are not recorded.

CREATE TABLE audit_log (
    workspace_id uuid,
    entry_id     bigint GENERATED ALWAYS AS IDENTITY,
    ordered_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    ordered_by   uuid,
    proven_by    text CHECK (proven_by IN ('asserted', 'link', 'oidc')),
    login        text NOT NULL,
    address      text CHECK (char_length(address) <= 100),
    command      text NOT NULL CHECK (char_length(command) <= 200),
    subject      text NOT NULL,
    subject_id   text,
    reason       text CHECK (char_length(reason) <= 500),
    before       jsonb NOT NULL,
    after        jsonb NOT NULL,
    UNIQUE NULLS NOT DISTINCT (workspace_id, entry_id)
);
COMMENT ON TABLE audit_log IS
    'Every change by an operator or approver; kept when its workspace is deleted';
COMMENT ON COLUMN audit_log.workspace_id IS 'Tenant; null if it concerns none';
COMMENT ON COLUMN audit_log.ordered_by IS 'The user who is responsible, if one was named';
COMMENT ON COLUMN audit_log.proven_by IS
    'How that user has proven who they are: by an operator''s word alone, or by a session of the '
    'desk; null if no user was named';
COMMENT ON COLUMN audit_log.login IS 'The database login that made the change';
COMMENT ON COLUMN audit_log.address IS
    'The address that the order came from: as the desk says, otherwise that of the client';
COMMENT ON COLUMN audit_log.command IS
    'The command, such as run cancel; otherwise the statement and its table';
COMMENT ON COLUMN audit_log.subject IS 'The table of the changed row';
COMMENT ON COLUMN audit_log.reason IS
    'The reason, if one was given; as long as it may be, since it is kept for ever';
COMMENT ON COLUMN audit_log.before IS
    'The row before the change; values that are not kept here read (hidden)';
COMMENT ON COLUMN audit_log.after IS 'The row after the change';
CREATE INDEX audit_log_by_entry ON audit_log (entry_id);
CREATE INDEX audit_log_by_subject ON audit_log (subject_id, entry_id);
CREATE TRIGGER audit_log_is_not_emptied BEFORE TRUNCATE ON audit_log FOR EACH STATEMENT
    EXECUTE FUNCTION refuse_change();
CREATE TRIGGER audit_log_is_only_added_to BEFORE UPDATE OR DELETE ON audit_log
    FOR EACH ROW EXECUTE FUNCTION refuse_change();

CREATE FUNCTION shown_in_audit(subject text, name text, value jsonb)
    RETURNS jsonb LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
    SELECT CASE WHEN value <> 'null' AND subject = 'workflows' AND name = 'definition'
        THEN jsonb_build_object('bytes', octet_length(value #>> '{}'),
            'sha256', encode(sha256(convert_to(value #>> '{}', 'UTF8')), 'hex'))
        WHEN value <> 'null' AND (name IN ('credential_sealed', 'secret_sealed',
        'former_secret_sealed', 'client_secret_sealed', 'grant_sealed', 'token_sha256',
        'browser_sha256', 'input')
            OR subject = 'users' AND name IN ('email', 'name') OR subject = 'runs'
                AND name IN ('failure', 'failing') OR subject = 'subscriptions'
                AND name IN ('failure', 'received') OR subject = 'account_trials'
                AND name IN ('path', 'step', 'answer', 'error'))
        THEN '"(hidden)"' ELSE value END;
END;
COMMENT ON FUNCTION shown_in_audit IS
    'Hides secrets and personal data, which are not kept forever; of a definition it shows the '
    'length and the SHA-256';

CREATE FUNCTION audit()
    RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    former jsonb := '{}';
    latter jsonb := '{}';
    one jsonb;
    person record;
    named uuid;
BEGIN
    SELECT * INTO person FROM acting();
    IF TG_OP <> 'INSERT' THEN
        former := to_jsonb(OLD);
    END IF;
    IF TG_OP <> 'DELETE' THEN
        latter := to_jsonb(NEW);
    END IF;
    one := former || latter;
    -- A session that begins or has ended names nobody yet, or no more: it is its user's own order.
    IF TG_TABLE_NAME = 'sessions' AND person.user_id IS NULL AND NOT is_operator() THEN
        SELECT (one ->> 'user_id')::uuid AS user_id, one ->> 'proven_by' AS proven_by
        INTO person;
    END IF;
    named := coalesce(person.user_id, coalesce(nullif(current_setting('letterbox.ordered_by',
        true), ''), one ->> 'decided_by')::uuid);
    INSERT INTO audit_log (workspace_id, ordered_by, proven_by, login, address, command, subject,
        subject_id, reason, before, after)
    SELECT (one ->> 'workspace_id')::uuid, named,
           coalesce(person.proven_by, CASE WHEN named IS NOT NULL THEN 'asserted' END),
           session_user,
           -- Only the desk speaks for others. Whoever has a login comes from where they connect.
           CASE WHEN person.proven_by IN ('link', 'oidc')
               THEN current_setting('letterbox.address', true)
               ELSE host(inet_client_addr()) END,
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
    'Records a change; its argument names the column that identifies the row';
REVOKE EXECUTE ON FUNCTION audit FROM PUBLIC;

-- Changes by gateways and workers are not recorded.
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
    INSERT INTO audit_log (ordered_by, proven_by, login, address, command, subject, reason, before,
        after)
    VALUES (nullif(current_setting('letterbox.ordered_by', true), '')::uuid,
            CASE WHEN current_setting('letterbox.ordered_by', true) <> '' THEN 'asserted' END,
            session_user, host(inet_client_addr()),
            coalesce(nullif(current_setting('letterbox.command', true), ''), about), about,
            nullif(current_setting('letterbox.reason', true), ''), '{}', told)
$$;
COMMENT ON FUNCTION note_order IS 'Records a command that changes no table';
REVOKE EXECUTE ON FUNCTION note_order FROM PUBLIC;
GRANT EXECUTE ON FUNCTION note_order TO letterbox_operator;

GRANT SELECT ON audit_log TO letterbox_operator;
