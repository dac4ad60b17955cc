-- Why: who asks for a webhook that is not there waits as long as who asks for one that is. Where a row is found it is
-- fetched; where none is, or a deleted one, the row of a decoy is fetched instead.

CREATE UNIQUE INDEX webhooks_live ON webhooks (workspace_id, webhook_id) WHERE deleted_at IS NULL;

CREATE TABLE decoy_webhooks (
    is_known boolean PRIMARY KEY DEFAULT false CHECK (NOT is_known),
    filler   bytea NOT NULL
);
COMMENT ON TABLE decoy_webhooks IS 'One row, fetched for each webhook that is not found';
COMMENT ON COLUMN decoy_webhooks.is_known IS 'Never';
COMMENT ON COLUMN decoy_webhooks.filler IS 'As long as a sealed secret';
INSERT INTO decoy_webhooks (filler) VALUES (decode(repeat('00', 110), 'hex'));
GRANT SELECT ON decoy_webhooks TO letterbox_gateway;
