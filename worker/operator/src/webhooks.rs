//! Orders about webhooks and their secrets: create (the only time that a secret is shown), delete
//! (the secret is destroyed).

use std::time::Duration;

use letterbox_common::{
    ids::{WebhookId, WorkspaceId},
    process::networks::Networks,
    sealing::{KeyRing, Place, Secret},
    webhook::{Rules, Scheme, WebhookAddress, secret_for},
};
use tokio_postgres::error::SqlState;

use crate::{
    Operator, OperatorError, Reason, RefusalRow, Sender, WebhookRow, check_name, error::Explain,
    store,
};

/// Shortest secret that a tool may have given, in characters.
const MIN_SECRET: usize = 16;

/// The rules by which a sender signs; `rules` is JSON text, for a custom scheme.
///
/// # Errors
/// When a custom scheme has no rules, or another one has some, or they are wrong.
pub fn rules_of(scheme: Scheme, rules: Option<&str>) -> Result<Rules, Reason> {
    match (scheme.rules(), rules) {
        (None, Some(text)) => {
            Rules::parse(text).map_err(|error| Reason::InvalidScheme(error.to_string()))
        }
        (Some(rules), None) => Ok(rules),
        (None, None) => Err(Reason::InvalidScheme("a custom scheme needs rules".into())),
        (Some(_), Some(_)) => Err(Reason::InvalidScheme(format!("{scheme} has its own rules"))),
    }
}

/// The secret that a sender has, if it is one by these rules; a new one where it has none.
fn usable(rules: &Rules, given: Option<Secret>) -> Result<Secret, OperatorError> {
    let secret = match given {
        Some(secret) if secret.expose().len() < MIN_SECRET => {
            let told = format!("a secret must have at least {MIN_SECRET} characters");
            return Err(Reason::InvalidScheme(told).into());
        }
        Some(secret) => secret,
        None => secret_for(rules)?,
    };
    match rules.key(&secret) {
        Ok(_) => Ok(secret),
        Err(error) => Err(Reason::InvalidScheme(error.to_string()).into()),
    }
}

/// A webhook and its secret, at the only time that it is shown.
#[derive(Debug, Clone)]
pub struct NewWebhook {
    /// Where tools send to; the webhook's id is part of it.
    pub address: WebhookAddress,
    /// The text that its deliveries are signed with.
    pub secret: Secret,
}

impl Operator {
    /// Creates a webhook for whoever signs as the service itself does.
    ///
    /// # Errors
    /// When the name is empty or too long, or there is no such workspace.
    pub async fn create_webhook(
        &self,
        keys: &KeyRing,
        workspace: WorkspaceId,
        name: &str,
    ) -> Result<NewWebhook, OperatorError> {
        self.create_webhook_for(keys, workspace, name, &Sender::default())
            .await
    }

    /// Creates a webhook for a sender.
    ///
    /// # Errors
    /// Also when the sender's rules, secret or networks are not what they must be.
    pub async fn create_webhook_for(
        &self,
        keys: &KeyRing,
        workspace: WorkspaceId,
        name: &str,
        sender: &Sender,
    ) -> Result<NewWebhook, OperatorError> {
        check_name(name)?;
        let rules = rules_of(sender.scheme, sender.rules.as_deref())?;
        if let Some(networks) = &sender.allow_from {
            let parsed = networks.parse::<Networks>();
            parsed.map_err(|error| Reason::InvalidScheme(format!("networks: {error}")))?;
            if networks.trim().is_empty() {
                return Err(Reason::InvalidScheme("networks: none is named".into()).into());
            }
        }
        let address = WebhookAddress {
            workspace,
            webhook: WebhookId::generate(),
        };
        let secret = usable(&rules, sender.secret.clone())?;
        let place = Place::WebhookSecret {
            workspace,
            webhook: address.webhook,
        };
        let sealed = keys.seal(place, secret.expose())?;
        let creating = store::create_webhook(&self.database, address, name, &sealed, sender);
        let missing = Reason::NotFound("workspace");
        creating
            .await
            .explain(&SqlState::FOREIGN_KEY_VIOLATION, missing)?;
        Ok(NewWebhook { address, secret })
    }

    /// Creates the successor of a webhook: another address and another secret for the same sender.
    /// Both remember what either has received. The former one ends when the successor gets its
    /// first signed delivery, or after `overlap`.
    ///
    /// # Errors
    /// When there is no such webhook, or it is being replaced already, or the secret is not what
    /// its scheme wants.
    pub async fn replace_webhook(
        &self,
        keys: &KeyRing,
        former: WebhookId,
        secret: Option<Secret>,
        overlap: Duration,
    ) -> Result<NewWebhook, OperatorError> {
        let missing = || Reason::NotFound("webhook, or it is deleted or being replaced");
        let found = store::webhook_to_replace(&self.database, former).await?;
        let found = found.ok_or_else(missing)?;
        let rules = rules_of(found.scheme, found.rules.as_deref())?;
        let secret = usable(&rules, secret)?;
        let address = WebhookAddress {
            workspace: found.workspace,
            webhook: WebhookId::generate(),
        };
        let place = Place::WebhookSecret {
            workspace: address.workspace,
            webhook: address.webhook,
        };
        let sealed = keys.seal(place, secret.expose())?;
        let replacing =
            store::replace_webhook(&self.database, former, address.webhook, &sealed, overlap);
        match replacing.await? {
            true => Ok(NewWebhook { address, secret }),
            false => Err(missing().into()),
        }
    }

    /// The webhooks of a workspace, deleted ones included.
    ///
    /// # Errors
    /// When there is no such workspace.
    pub async fn webhooks(&self, workspace: WorkspaceId) -> Result<Vec<WebhookRow>, OperatorError> {
        self.need_workspace(workspace).await?;
        Ok(store::webhooks(&self.database, workspace).await?)
    }

    /// The last refused deliveries of a webhook, the newest first.
    ///
    /// # Errors
    /// When the database can't be asked.
    pub async fn refusals(
        &self,
        webhook: WebhookId,
        limit: u32,
    ) -> Result<Vec<RefusalRow>, OperatorError> {
        Ok(store::refusals(&self.database, webhook, limit).await?)
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
