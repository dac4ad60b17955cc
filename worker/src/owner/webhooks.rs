//! Orders about webhooks and their secrets: create (the only time that a secret is shown), delete (the secret is
//! destroyed), and seal everything again under a new key.

use letterbox_common::{
    ids::{WebhookId, WorkspaceId},
    sealing::{KeyRing, Secret},
    webhook::{WebhookAddress, generate_secret, seal_place},
};
use serde::Serialize;
use tokio_postgres::error::SqlState;

use super::{Owner, OwnerError, WebhookRow, check_name, store};

/// Rows that a rotation takes at a time: each is sealed again in a short statement of its own.
const ROTATION_PAGE: i64 = 500;

/// A webhook and its secret, at the only time that it is shown.
#[derive(Debug, Clone)]
pub struct NewWebhook {
    pub address: WebhookAddress,
    pub secret: Secret,
}

/// What a rotation did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Rotation {
    /// Values sealed again with the first key.
    pub resealed: u64,
    /// Values that were sealed with it already.
    pub current: u64,
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
        let address = WebhookAddress { workspace, webhook: WebhookId::generate() };
        let failed = |error: letterbox_common::sealing::SealError| OwnerError::refused(error.to_string());
        let secret = generate_secret().map_err(failed)?;
        let sealed = keys.seal(seal_place(&address), secret.expose()).map_err(failed)?;
        store::create_webhook(&self.client, address, name, &sealed).await.map_err(|error| {
            OwnerError::explain(error, &SqlState::FOREIGN_KEY_VIOLATION, "there is no such workspace")
        })?;
        Ok(NewWebhook { address, secret })
    }

    /// # Errors
    /// When there is no such workspace.
    pub async fn webhooks(&self, workspace: WorkspaceId) -> Result<Vec<WebhookRow>, OwnerError> {
        self.need_workspace(workspace).await?;
        Ok(store::webhooks(&self.client, workspace).await?)
    }

    /// Deletes a webhook: from the next request on its deliveries are refused. What it has received stays.
    ///
    /// # Errors
    /// When there is no such webhook, or it is deleted already.
    pub async fn delete_webhook(&self, webhook: WebhookId) -> Result<WebhookRow, OwnerError> {
        let deleted = store::delete_webhook(&self.client, webhook).await?;
        deleted.ok_or_else(|| OwnerError::refused("there is no such webhook"))
    }

    /// Seals every secret again that is not sealed with the first key. Safe while everything runs, and safe to repeat: a
    /// value that changes meanwhile is left alone.
    ///
    /// # Errors
    /// When a value does not open. What was sealed until then stays so.
    pub async fn rotate_keys(&self, keys: &KeyRing) -> Result<Rotation, OwnerError> {
        let mut rotation = Rotation::default();
        let mut after = None;
        loop {
            let page = store::sealed_secrets(&self.client, after, ROTATION_PAGE).await?;
            let Some((last, _)) = page.last() else { return Ok(rotation) };
            after = Some(*last);
            for (address, sealed) in &page {
                let failed = |error: &dyn std::fmt::Display| {
                    OwnerError::refused(format!("the secret of webhook {}: {error}", address.webhook))
                };
                if keys.is_current(sealed).map_err(|error| failed(&error))? {
                    rotation.current += 1;
                    continue;
                }
                let secret = keys.open(seal_place(address), sealed).map_err(|error| failed(&error))?;
                let fresh = keys.seal(seal_place(address), secret.expose()).map_err(|error| failed(&error))?;
                rotation.resealed += store::reseal_secret(&self.client, *address, sealed, &fresh).await?;
            }
        }
    }
}
