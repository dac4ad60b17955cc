-- Why: a sender and an operator had no word in common for one request: the answer to it now has an id, and so has what came
-- of it.

ALTER TABLE signals ADD COLUMN request_id text CHECK (length(request_id) BETWEEN 1 AND 64);
COMMENT ON COLUMN signals.request_id IS 'The X-Request-Id that its sender was answered; null for what was received before this was kept';
ALTER TABLE runs ADD COLUMN request_id text CHECK (length(request_id) BETWEEN 1 AND 64);
COMMENT ON COLUMN runs.request_id IS 'The X-Request-Id that its submitter was answered; null for what was received before this was kept';

-- Other programs read signals of the workspaces that they are let into, and nothing else.
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'letterbox_reader') THEN
        CREATE ROLE letterbox_reader NOLOGIN;
        COMMENT ON ROLE letterbox_reader IS 'Reads signals for other programs; see signal_feed';
    END IF;
END
$$;

CREATE TABLE signal_readers (
    workspace_id uuid NOT NULL REFERENCES workspaces ON DELETE CASCADE,
    login        name NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (workspace_id, login)
);
COMMENT ON TABLE signal_readers IS 'Which logins may read the signals of a workspace';
COMMENT ON COLUMN signal_readers.workspace_id IS 'Tenant';
COMMENT ON COLUMN signal_readers.login IS 'Name of a login of the database that is a member of letterbox_reader';
COMMENT ON COLUMN signal_readers.created_at IS 'Database clock';
CREATE TRIGGER audit AFTER INSERT OR UPDATE OR DELETE ON signal_readers FOR EACH ROW
WHEN (coalesce(current_setting('role', true), '') NOT IN ('letterbox_gateway', 'letterbox_worker'))
EXECUTE FUNCTION audit('login');

CREATE VIEW signal_feed WITH (security_barrier) AS
SELECT s.workspace_id, s.signal_id, s.webhook_id, w.name AS webhook_name, s.kind, s.entity, s.source_tool, s.amount_value,
    s.amount_currency, s.event_id, s.generic_reason, s.request_id, s.received_at, s.stored_at, s.body
FROM signals s JOIN webhooks w ON w.workspace_id = s.workspace_id AND w.webhook_id = s.webhook_id
WHERE s.workspace_id IN (SELECT r.workspace_id FROM signal_readers r WHERE r.login = session_user);
COMMENT ON VIEW signal_feed IS 'The signals that the login may read: for programs outside of Letterbox, which may rely on these columns';
COMMENT ON COLUMN signal_feed.webhook_name IS 'For people: which tool sent it';
GRANT SELECT ON signal_feed TO letterbox_reader;
GRANT SELECT, INSERT, DELETE ON signal_readers TO letterbox_operator;
