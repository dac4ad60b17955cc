-- Why: the signed door. A webhook is an address and a sealed secret; a delivery is one distinct body that it
-- received. The row of a delivery is the claim that makes sure that the body is taken once: it is inserted before
-- anything is published, holds a lease while its gateway works, and is settled when the broker has confirmed.

CREATE TABLE webhooks (
    workspace_id  uuid NOT NULL REFERENCES workspaces,
    webhook_id    uuid NOT NULL,
    name          text NOT NULL CHECK (char_length(name) BETWEEN 1 AND 200),
    secret_sealed bytea,
    created_at    timestamptz NOT NULL DEFAULT now(),
    deleted_at    timestamptz,
    PRIMARY KEY (workspace_id, webhook_id),
    CONSTRAINT secret_lives_as_long_as_the_webhook CHECK ((deleted_at IS NULL) = (secret_sealed IS NOT NULL))
);
COMMENT ON TABLE webhooks IS 'An address that other tools send signed events to';
COMMENT ON COLUMN webhooks.workspace_id IS 'Tenant; first part of the URL token';
COMMENT ON COLUMN webhooks.webhook_id IS 'Second part of the URL token';
COMMENT ON COLUMN webhooks.name IS 'For people: which tool sends here';
COMMENT ON COLUMN webhooks.secret_sealed IS 'Signing secret, AES-256-GCM bound to this row; destroyed with the webhook';
COMMENT ON COLUMN webhooks.created_at IS 'Database clock';
COMMENT ON COLUMN webhooks.deleted_at IS 'When the webhook was deleted; its deliveries and signals stay';

CREATE TABLE webhook_deliveries (
    workspace_id uuid NOT NULL,
    webhook_id   uuid NOT NULL,
    body_sha256  bytea NOT NULL CHECK (octet_length(body_sha256) = 32),
    delivery_id  uuid NOT NULL,
    attempt      integer NOT NULL DEFAULT 1,
    lease_until  timestamptz NOT NULL,
    claimed_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    settled_at   timestamptz,
    PRIMARY KEY (workspace_id, webhook_id, body_sha256),
    FOREIGN KEY (workspace_id, webhook_id) REFERENCES webhooks (workspace_id, webhook_id)
) WITH (fillfactor = 80); -- room for the settled version of a row on the page of its claim
COMMENT ON TABLE webhook_deliveries IS 'One distinct body received by one webhook: the claim that lets it be taken once';
COMMENT ON COLUMN webhook_deliveries.workspace_id IS 'Tenant';
COMMENT ON COLUMN webhook_deliveries.webhook_id IS 'The webhook that received it';
COMMENT ON COLUMN webhook_deliveries.body_sha256 IS 'SHA-256 of the exact bytes that were signed';
COMMENT ON COLUMN webhook_deliveries.delivery_id IS 'AMQP message_id and id of the signal; the same for every attempt';
COMMENT ON COLUMN webhook_deliveries.attempt IS 'Counts the claims; only the holder of the last one may settle or give back';
COMMENT ON COLUMN webhook_deliveries.lease_until IS 'Until then nobody else may claim, by the database''s clock';
COMMENT ON COLUMN webhook_deliveries.claimed_at IS 'When the last claim was made';
COMMENT ON COLUMN webhook_deliveries.settled_at IS 'When the broker''s confirm was noted; null before';

GRANT SELECT (workspace_id, webhook_id, secret_sealed, deleted_at) ON webhooks TO letterbox_gateway;
GRANT SELECT, INSERT, UPDATE ON webhook_deliveries TO letterbox_gateway;
GRANT SELECT, INSERT, UPDATE, DELETE ON webhooks, webhook_deliveries TO letterbox_operator;
