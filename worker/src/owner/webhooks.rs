//! Orders about webhooks and their secrets: create (the only time that a secret is shown), delete
//! (the secret is destroyed).

use letterbox_common::{
    ids::{WebhookId, WorkspaceId},
    sealing::{KeyRing, Secret},
    webhook::{WebhookAddress, generate_secret, seal_place},
};
use tokio_postgres::error::SqlState;

use super::{Owner, OwnerError, WebhookRow, check_name, store};

/// A webhook and its secret, at the only time that it is shown.
#[derive(Debug, Clone)]
pub struct NewWebhook {
    pub address: WebhookAddress,
    pub secret: Secret,
}

impl Owner {
    /// # Errors
    /// When the name is empty or too long, or there is no such workspace.
    pub async fn create_webhook(
        &self,
        keys: &KeyRing,
        workspace: WorkspaceId,
        name: &str,
    ) -> Result<NewWebhook, OwnerError> {
        check_name(name)?;
        let address = WebhookAddress {
            workspace,
            webhook: WebhookId::generate(),
        };
        let failed =
            |error: letterbox_common::sealing::SealError| OwnerError::refused(error.to_string());
        let secret = generate_secret().map_err(failed)?;
        let sealed = keys
            .seal(seal_place(&address), secret.expose())
            .map_err(failed)?;
        store::create_webhook(&self.client, address, name, &sealed)
            .await
            .map_err(|error| {
                OwnerError::explain(
                    error,
                    &SqlState::FOREIGN_KEY_VIOLATION,
                    "there is no such workspace",
                )
            })?;
        Ok(NewWebhook { address, secret })
    }

    /// # Errors
    /// When there is no such workspace.
    pub async fn webhooks(&self, workspace: WorkspaceId) -> Result<Vec<WebhookRow>, OwnerError> {
        self.need_workspace(workspace).await?;
        Ok(store::webhooks(&self.client, workspace).await?)
    }

    /// Deletes a webhook: from the next request on its deliveries are refused. What it has received
    /// stays.
    ///
    /// # Errors
    /// When there is no such webhook, or it is deleted already.
    pub async fn delete_webhook(&self, webhook: WebhookId) -> Result<WebhookRow, OwnerError> {
        let deleted = store::delete_webhook(&self.client, webhook).await?;
        deleted.ok_or_else(|| OwnerError::refused("there is no such webhook"))
    }
}
