-- Why: what a delivery becomes. The worker writes it in the transaction that it acknowledges after; the primary key
-- is the message's id, so a message that comes twice changes nothing the second time.

CREATE TABLE signals (
    workspace_id    uuid NOT NULL,
    signal_id       uuid NOT NULL,
    webhook_id      uuid NOT NULL,
    kind            text NOT NULL CHECK (kind IN ('proposal.created', 'proposal.won', 'client.created', 'generic')),
    generic_reason  text,
    entity          text,
    source_tool     text,
    amount_value    numeric CHECK (amount_value BETWEEN 0 AND 1000000000000 AND scale(amount_value) <= 4),
    amount_currency text CHECK (amount_currency ~ '^[A-Z]{3}$'),
    event_id        text,
    body            bytea NOT NULL,
    received_at     timestamptz NOT NULL,
    stored_at       timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (workspace_id, signal_id),
    FOREIGN KEY (workspace_id, webhook_id) REFERENCES webhooks (workspace_id, webhook_id),
    CONSTRAINT generic_says_why CHECK ((kind = 'generic') = (generic_reason IS NOT NULL)),
    CONSTRAINT native_is_complete CHECK (kind = 'generic' OR (entity IS NOT NULL AND source_tool IS NOT NULL)),
    CONSTRAINT proposal_has_an_amount CHECK (kind NOT LIKE 'proposal.%' OR amount_value IS NOT NULL),
    CONSTRAINT amount_has_a_currency CHECK ((amount_value IS NULL) = (amount_currency IS NULL))
);
COMMENT ON TABLE signals IS 'An event from outside, mapped natively where it keeps the proposal contract, else generic';
COMMENT ON COLUMN signals.workspace_id IS 'Tenant';
COMMENT ON COLUMN signals.signal_id IS 'Id of the delivery (UUIDv7: sorts by time of receipt)';
COMMENT ON COLUMN signals.webhook_id IS 'The webhook that received it';
COMMENT ON COLUMN signals.kind IS 'The event''s type where it was mapped, or generic';
COMMENT ON COLUMN signals.generic_reason IS 'The first rule of the proposal contract that the body broke; null when native';
COMMENT ON COLUMN signals.entity IS 'Whom it is about; U+0000, which text can''t hold, stands as U+FFFD (the body has the original)';
COMMENT ON COLUMN signals.source_tool IS 'The tool that sent it; U+0000 as in entity';
COMMENT ON COLUMN signals.amount_value IS 'Exact, at most four decimal places';
COMMENT ON COLUMN signals.amount_currency IS 'Three capital letters';
COMMENT ON COLUMN signals.event_id IS 'The sender''s own id of the event; U+0000 as in entity';
COMMENT ON COLUMN signals.body IS 'The exact bytes that were signed; untrusted';
COMMENT ON COLUMN signals.received_at IS 'When the gateway received it, by the gateway''s clock';
COMMENT ON COLUMN signals.stored_at IS 'When the worker stored it, by the database''s clock';

GRANT SELECT (workspace_id, signal_id), INSERT ON signals TO letterbox_worker;
GRANT SELECT, INSERT, UPDATE, DELETE ON signals TO letterbox_operator;
