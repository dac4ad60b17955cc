//! Webhooks, without their secrets.

use jiff::Timestamp;
use letterbox_common::{
    ids::{WebhookId, WorkspaceId},
    webhook::WebhookAddress,
};
use serde::Serialize;
use tokio_postgres::{Client, Error, Row};

/// A webhook, without its secret.
#[derive(Debug, Clone, Serialize)]
pub struct WebhookRow {
    pub webhook_id: WebhookId,
    pub workspace_id: WorkspaceId,
    pub name: String,
    pub created_at: Timestamp,
    pub deleted_at: Option<Timestamp>,
}

pub(super) const CREATE_WEBHOOK: &str =
    "INSERT INTO webhooks (workspace_id, webhook_id, name, secret_sealed) VALUES ($1, $2, $3, $4)";

pub async fn create_webhook(
    client: &Client,
    address: WebhookAddress,
    name: &str,
    sealed: &[u8],
) -> Result<(), Error> {
    client
        .execute(
            CREATE_WEBHOOK,
            &[&address.workspace, &address.webhook, &name, &sealed],
        )
        .await
        .map(drop)
}

pub(super) const WEBHOOKS: &str = "
SELECT webhook_id, workspace_id, name, created_at, deleted_at
FROM webhooks WHERE workspace_id = $1 ORDER BY created_at, webhook_id";

pub async fn webhooks(client: &Client, workspace: WorkspaceId) -> Result<Vec<WebhookRow>, Error> {
    client
        .query(WEBHOOKS, &[&workspace])
        .await?
        .iter()
        .map(webhook)
        .collect()
}

pub(super) const DELETE_WEBHOOK: &str = "
UPDATE webhooks SET deleted_at = now(), secret_sealed = NULL
WHERE webhook_id = $1 AND deleted_at IS NULL
RETURNING webhook_id, workspace_id, name, created_at, deleted_at";

pub async fn delete_webhook(client: &Client, id: WebhookId) -> Result<Option<WebhookRow>, Error> {
    client
        .query_opt(DELETE_WEBHOOK, &[&id])
        .await?
        .map(|row| webhook(&row))
        .transpose()
}

fn webhook(row: &Row) -> Result<WebhookRow, Error> {
    Ok(WebhookRow {
        webhook_id: row.try_get(0)?,
        workspace_id: row.try_get(1)?,
        name: row.try_get(2)?,
        created_at: row.try_get(3)?,
        deleted_at: row.try_get(4)?,
    })
}
