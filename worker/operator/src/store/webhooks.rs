//! Webhooks, without their secrets.

use jiff::Timestamp;
use letterbox_common::{
    ids::{WebhookId, WorkspaceId},
    webhook::WebhookAddress,
};
use letterbox_database::{Database, DatabaseError, statements};
use serde::Serialize;
use tokio_postgres::{Error, Row};

statements! {
    /// Creates a webhook.
    CREATE_WEBHOOK = create_webhook "
INSERT INTO webhooks (workspace_id, webhook_id, name, secret_sealed) VALUES ($1, $2, $3, $4)";

    /// The webhooks of a workspace, oldest first.
    WEBHOOKS = webhooks "
SELECT webhook_id, workspace_id, name, created_at, deleted_at
FROM webhooks WHERE workspace_id = $1 ORDER BY created_at, webhook_id";

    /// Deletes a webhook and destroys its secret.
    DELETE_WEBHOOK = delete_webhook "
UPDATE webhooks SET deleted_at = now(), secret_sealed = NULL
WHERE webhook_id = $1 AND deleted_at IS NULL
RETURNING webhook_id, workspace_id, name, created_at, deleted_at";
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
            created_at: row.try_get("created_at")?,
            deleted_at: row.try_get("deleted_at")?,
        })
    }
}

pub(crate) async fn create_webhook(
    database: &Database,
    address: WebhookAddress,
    name: &str,
    secret_sealed: &[u8],
) -> Result<(), DatabaseError> {
    database
        .execute(
            &CREATE_WEBHOOK,
            &[
                /* $1 workspace_id */ &address.workspace,
                /* $2 webhook_id */ &address.webhook,
                /* $3 name */ &name,
                /* $4 secret_sealed */ &secret_sealed,
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
