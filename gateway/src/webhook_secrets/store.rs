//! The look-up of sealed secrets: one statement for all webhooks asked for at one moment.

use jiff::Timestamp;
use letterbox_common::{
    ids::{WebhookId, WorkspaceId},
    webhook::WebhookAddress,
};
use letterbox_database::{FromRow, Row, RowError, statements};

statements! {
    /// The sealed secret of every webhook that is asked for, or the decoy ($3) if no such webhook
    /// is live. An address without a webhook takes as many rows, steps and bytes.
    pub(super) fn find_secrets(
        workspaces: &[WorkspaceId], webhooks: &[WebhookId], decoy: &[u8],
    ) -> Vec<StoredSecret> = "
SELECT wanted.workspace_id, wanted.webhook_id, w.webhook_id IS NOT NULL AS is_live,
       coalesce(w.secret_sealed, $3::bytea) AS sealed,
       CASE WHEN w.former_until > statement_timestamp() THEN w.former_secret_sealed END
           AS former_sealed, w.former_until, coalesce(w.version, 0) AS version,
       coalesce(w.tool, 'letterbox') AS tool, w.rules, w.allow_from,
       coalesce(w.kept_headers, '{}') AS kept_headers, coalesce(w.same_by, 'body') AS same_by,
       coalesce(w.settable_until = 'infinity', false) AS awaits_secret,
       coalesce(w.memory_id, wanted.webhook_id) AS memory,
       coalesce(octet_length(d.filler), 0) AS decoys
FROM unnest($1::uuid[], $2::uuid[]) AS wanted (workspace_id, webhook_id)
LEFT JOIN webhooks w
    ON w.workspace_id = wanted.workspace_id AND w.webhook_id = wanted.webhook_id
    AND w.deleted_at IS NULL AND (w.ends_at IS NULL OR w.ends_at > statement_timestamp())
LEFT JOIN decoy_webhooks d ON d.is_known = (w.webhook_id IS NOT NULL)";

    /// How the tools sign for which there are webhooks: their names, with the rules as JSON text of
    /// what is custom.
    pub(super) fn find_ways() -> Vec<(String, Option<String>)> = "
SELECT DISTINCT tool, rules FROM webhooks WHERE deleted_at IS NULL AND tool <> 'letterbox'";
}

/// The secret behind an address.
#[derive(Debug, Clone, FromRow)]
pub(super) struct StoredSecret {
    #[row(from = address)]
    pub(super) address: WebhookAddress,
    /// Whether there is a live webhook; if not, `sealed` is the decoy.
    pub(super) is_live: bool,
    pub(super) sealed: Vec<u8>,
    /// The secret before, while it is valid, too.
    pub(super) former_sealed: Option<Vec<u8>>,
    pub(super) former_until: Option<Timestamp>,
    /// Changes whenever the row does; `0` for the decoy.
    pub(super) version: i64,
    #[row(flatten)]
    pub(super) checks: StoredChecks,
    /// The webhook under whose id it remembers bodies.
    pub(super) memory: WebhookId,
}

/// What a webhook checks, as it is stored.
#[derive(Debug, Clone, FromRow)]
pub(super) struct StoredChecks {
    /// The name of a tool, perhaps of a newer version.
    pub(super) tool: String,
    /// The rules as JSON text, if the tool is custom.
    pub(super) rules: Option<String>,
    /// The networks that may send, as CIDR[,CIDR...]; `None` for all.
    pub(super) allow_from: Option<String>,
    /// The names of headers that are kept besides those of the tool.
    pub(super) kept_headers: Vec<String>,
    /// What makes two deliveries one.
    pub(super) same_by: String,
    /// Whether its secret has yet to be set.
    pub(super) awaits_secret: bool,
}

fn address(row: &Row) -> Result<WebhookAddress, RowError> {
    Ok(WebhookAddress {
        workspace: row.try_get("workspace_id")?,
        webhook: row.try_get("webhook_id")?,
    })
}
