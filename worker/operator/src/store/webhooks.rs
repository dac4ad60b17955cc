//! Webhooks, without their secrets.

use std::time::Duration;

use jiff::Timestamp;
use letterbox_common::{
    ids::{WebhookId, WorkspaceId},
    sealing::Secret,
    webhook::{DeliveryFault, Scheme, WebhookAddress},
};
use letterbox_database::{Database, DatabaseError, statements};
use serde::Serialize;
use tokio_postgres::{Error, Row};

statements! {
    /// Creates a webhook.
    CREATE_WEBHOOK = create_webhook "
INSERT INTO webhooks (workspace_id, webhook_id, name, secret_sealed, scheme, scheme_rules,
    allow_from)
VALUES ($1, $2, $3, $4, $5, $6, $7)";

    /// Creates the successor of a webhook, which ends after $4 seconds.
    REPLACE_WEBHOOK = replace_webhook "
WITH former AS (
    UPDATE webhooks SET ends_at = clock_timestamp() + $4 * interval '1 second',
        memory_id = coalesce(memory_id, webhook_id)
    WHERE webhook_id = $1 AND deleted_at IS NULL AND ends_at IS NULL RETURNING *
)
INSERT INTO webhooks (workspace_id, webhook_id, name, secret_sealed, scheme, scheme_rules,
    allow_from, replaces, memory_id)
SELECT f.workspace_id, $2, f.name, $3, f.scheme, f.scheme_rules, f.allow_from, f.webhook_id,
    f.memory_id
FROM former f";

    /// How the sender of a webhook signs that is not replaced yet.
    WEBHOOK_TO_REPLACE = webhook_to_replace "
SELECT h.workspace_id, h.scheme, h.scheme_rules FROM workspaces w
JOIN webhooks h ON h.workspace_id = w.workspace_id AND h.webhook_id = $1
WHERE h.deleted_at IS NULL AND h.ends_at IS NULL";

    /// The webhooks of a workspace, oldest first.
    WEBHOOKS = webhooks "
SELECT webhook_id, workspace_id, name, scheme, allow_from, replaces, ends_at, created_at,
       deleted_at
FROM webhooks WHERE workspace_id = $1 ORDER BY created_at, webhook_id";

    /// Deletes a webhook and destroys its secret. One that it should have replaced goes on.
    DELETE_WEBHOOK = delete_webhook "
WITH going_on AS (
    UPDATE webhooks f SET ends_at = NULL FROM webhooks n
    WHERE n.webhook_id = $1 AND n.deleted_at IS NULL AND f.workspace_id = n.workspace_id
      AND f.webhook_id = n.replaces AND f.deleted_at IS NULL AND f.ends_at > clock_timestamp()
)
UPDATE webhooks SET deleted_at = now(), secret_sealed = NULL
WHERE webhook_id = $1 AND deleted_at IS NULL
RETURNING webhook_id, workspace_id, name, scheme, allow_from, replaces, ends_at, created_at,
       deleted_at";

    /// The last refused deliveries of a webhook.
    REFUSALS = refusals "
SELECT r.refused_at, r.reason, r.request_id
FROM workspaces w JOIN webhook_refusals r ON r.workspace_id = w.workspace_id AND r.webhook_id = $1
ORDER BY r.refusal_id DESC LIMIT $2";
}

/// How the sender of a webhook signs, and from where it sends.
#[derive(Debug, Clone)]
pub struct Sender {
    /// The scheme of its signatures.
    pub scheme: Scheme,
    /// JSON text of the rules, where the scheme is custom.
    pub rules: Option<String>,
    /// The secret that it has already; None makes a new one.
    pub secret: Option<Secret>,
    /// Networks that it sends from; None is from everywhere.
    pub allow_from: Option<String>,
}

impl Default for Sender {
    fn default() -> Self {
        Self {
            scheme: Scheme::Letterbox,
            rules: None,
            secret: None,
            allow_from: None,
        }
    }
}

/// A webhook, without its secret.
#[derive(Debug, Clone, Serialize)]
pub struct WebhookRow {
    /// The second part of its address.
    pub webhook_id: WebhookId,
    /// The workspace that it belongs to: the first part of its address.
    pub workspace_id: WorkspaceId,
    /// For people: which tool sends to it.
    pub name: String,
    /// How its deliveries are signed.
    pub scheme: Scheme,
    /// Networks that may send; None is from everywhere.
    pub allow_from: Option<String>,
    /// The webhook whose successor it is; None where it is none.
    pub replaces: Option<WebhookId>,
    /// When it ends because it was replaced, unless its successor is used before.
    pub ends_at: Option<Timestamp>,
    /// By the database's clock.
    pub created_at: Timestamp,
    /// When it was deleted and its secret destroyed; None while it takes deliveries.
    pub deleted_at: Option<Timestamp>,
}

impl WebhookRow {
    fn decode(row: &Row) -> Result<Self, Error> {
        Ok(Self {
            webhook_id: row.try_get("webhook_id")?,
            workspace_id: row.try_get("workspace_id")?,
            name: row.try_get("name")?,
            scheme: row.try_get("scheme")?,
            allow_from: row.try_get("allow_from")?,
            replaces: row.try_get("replaces")?,
            ends_at: row.try_get("ends_at")?,
            created_at: row.try_get("created_at")?,
            deleted_at: row.try_get("deleted_at")?,
        })
    }
}

/// A webhook that can be replaced.
pub(crate) struct Replaceable {
    pub(crate) workspace: WorkspaceId,
    pub(crate) scheme: Scheme,
    pub(crate) rules: Option<String>,
}

/// None if there is no such webhook, or it is deleted or being replaced.
pub(crate) async fn webhook_to_replace(
    database: &Database,
    webhook: WebhookId,
) -> Result<Option<Replaceable>, DatabaseError> {
    let row = database.query_opt(&WEBHOOK_TO_REPLACE, &[&webhook]).await?;
    let Some(row) = row else { return Ok(None) };
    Ok(Some(Replaceable {
        workspace: row.try_get("workspace_id")?,
        scheme: row.try_get("scheme")?,
        rules: row.try_get("scheme_rules")?,
    }))
}

/// False if there is no such webhook, or it is deleted or being replaced.
pub(crate) async fn replace_webhook(
    database: &Database,
    former: WebhookId,
    successor: WebhookId,
    secret_sealed: &[u8],
    overlap: Duration,
) -> Result<bool, DatabaseError> {
    let made = database
        .execute(
            &REPLACE_WEBHOOK,
            &[
                /* $1 former */ &former,
                /* $2 successor */ &successor,
                /* $3 secret_sealed */ &secret_sealed,
                /* $4 overlap_seconds */ &overlap.as_secs_f64(),
            ],
        )
        .await?;
    Ok(made > 0)
}

/// A refused delivery. Its sender was told as little as ever.
#[derive(Debug, Clone, Serialize)]
pub struct RefusalRow {
    /// By the gateway's clock.
    pub refused_at: Timestamp,
    /// What was wrong.
    pub reason: DeliveryFault,
    /// The `X-Request-Id` that its sender was answered.
    pub request_id: Option<String>,
}

pub(crate) async fn refusals(
    database: &Database,
    webhook: WebhookId,
    limit: u32,
) -> Result<Vec<RefusalRow>, DatabaseError> {
    let rows = database
        .query(&REFUSALS, &[&webhook, &i64::from(limit)])
        .await?;
    let decode = |row: &Row| {
        Ok(RefusalRow {
            refused_at: row.try_get("refused_at")?,
            reason: row.try_get("reason")?,
            request_id: row.try_get("request_id")?,
        })
    };
    rows.iter().map(decode).collect()
}

pub(crate) async fn create_webhook(
    database: &Database,
    address: WebhookAddress,
    name: &str,
    secret_sealed: &[u8],
    sender: &Sender,
) -> Result<(), DatabaseError> {
    database
        .execute(
            &CREATE_WEBHOOK,
            &[
                /* $1 workspace_id */ &address.workspace,
                /* $2 webhook_id */ &address.webhook,
                /* $3 name */ &name,
                /* $4 secret_sealed */ &secret_sealed,
                /* $5 scheme */ &sender.scheme,
                /* $6 scheme_rules */ &sender.rules,
                /* $7 allow_from */ &sender.allow_from,
            ],
        )
        .await
        .map(drop)
}

pub(crate) async fn webhooks(
    database: &Database,
    workspace: WorkspaceId,
) -> Result<Vec<WebhookRow>, DatabaseError> {
    let rows = database.query(&WEBHOOKS, &[&workspace]).await?;
    rows.iter()
        .map(|row| Ok(WebhookRow::decode(row)?))
        .collect()
}

/// None if there is no such webhook, or it is deleted already.
pub(crate) async fn delete_webhook(
    database: &Database,
    id: WebhookId,
) -> Result<Option<WebhookRow>, DatabaseError> {
    let row = database.query_opt(&DELETE_WEBHOOK, &[&id]).await?;
    Ok(row.map(|row| WebhookRow::decode(&row)).transpose()?)
}
