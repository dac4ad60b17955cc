//! Orders about webhooks and their secrets: create (the only time that a secret is shown), delete
//! (the secret is destroyed).

use letterbox_common::{
    ids::{WebhookId, WorkspaceId},
    sealing::{KeyRing, Place, Secret},
    webhook::{WebhookAddress, generate_secret},
};
use tokio_postgres::error::SqlState;

use crate::{Operator, OperatorError, Reason, WebhookRow, check_name, error::Explain, store};

/// A webhook and its secret, at the only time that it is shown.
#[derive(Debug, Clone)]
pub struct NewWebhook {
    /// Where tools send to; the webhook's id is part of it.
    pub address: WebhookAddress,
    /// The text that its deliveries are signed with.
    pub secret: Secret,
}

impl Operator {
    /// Creates a webhook.
    ///
    /// # Errors
    /// When the name is empty or too long, or there is no such workspace.
    pub async fn create_webhook(
        &self,
        keys: &KeyRing,
        workspace: WorkspaceId,
        name: &str,
    ) -> Result<NewWebhook, OperatorError> {
        check_name(name)?;
        let address = WebhookAddress {
            workspace,
            webhook: WebhookId::generate(),
        };
        let secret = generate_secret()?;
        let place = Place::WebhookSecret {
            workspace,
            webhook: address.webhook,
        };
        let sealed = keys.seal(place, secret.expose())?;
        let creating = store::create_webhook(&self.database, address, name, &sealed);
        let missing = Reason::NotFound("workspace");
        creating
            .await
            .explain(&SqlState::FOREIGN_KEY_VIOLATION, missing)?;
        Ok(NewWebhook { address, secret })
    }

    /// The webhooks of a workspace, deleted ones included.
    ///
    /// # Errors
    /// When there is no such workspace.
    pub async fn webhooks(&self, workspace: WorkspaceId) -> Result<Vec<WebhookRow>, OperatorError> {
        self.need_workspace(workspace).await?;
        Ok(store::webhooks(&self.database, workspace).await?)
    }

    /// Deletes a webhook: from the next request on its deliveries are refused. What it has received
    /// stays.
    ///
    /// # Errors
    /// When there is no such webhook, or it is deleted already.
    pub async fn delete_webhook(&self, webhook: WebhookId) -> Result<WebhookRow, OperatorError> {
        let deleted = store::delete_webhook(&self.database, webhook).await?;
        deleted.ok_or(Reason::NotFound("webhook").into())
    }
}
