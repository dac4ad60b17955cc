//! Webhooks: create one (the only time that its secret is shown), replace it by a successor, delete
//! it (its secret is destroyed).

use std::time::Duration;

use jiff::Timestamp;
use letterbox_common::{
    ids::{WebhookId, WorkspaceId},
    sealing::{Place, Seal, Secret},
    webhook::{DeliveryFault, Described, Rules, Tool, UnknownTool, WebhookAddress},
};
use letterbox_database::{FromRow, statements};
use serde::Serialize;

use crate::{
    Operator, Reason, Result, SecretFrom, WebhookSettings,
    asking::Sought,
    check_name,
    webhook_settings::{replace_webhook, rules_of, settings_columns, usable_secret},
};

/// The columns of a [`WebhookRow`].
macro_rules! columns {
    () => {
        concat!(
            "webhook_id, workspace_id, ",
            settings_columns!(),
            ", replaces, ends_at, created_at, deleted_at, \
             coalesce(settable_until = 'infinity', false) AS awaits_secret, \
             former_until, coalesce((SELECT r.times FROM webhook_repeats r \
                WHERE r.workspace_id = webhooks.workspace_id \
                AND r.webhook_id = webhooks.webhook_id), 0) AS repeats"
        )
    };
}

statements! {
    /// Sets the secret of a webhook that was made without one, or not an hour ago; of another one
    /// if its former secret is to be valid for so many seconds.
    desk fn set_webhook_secret(
        workspace: WorkspaceId, webhook: WebhookId, secret_sealed: &[u8],
        overlap_seconds: Option<f64>,
    ) -> Option<WebhookRow> = concat!("
UPDATE webhooks SET secret_sealed = $3,
    former_until = CASE WHEN settable_until > now() THEN former_until
        ELSE now() + $4::float8 * interval '1 second' END,
    settable_until = least(settable_until, now() + interval '1 hour')
WHERE workspace_id = $1 AND webhook_id = $2 AND deleted_at IS NULL
  AND (settable_until > now() OR $4::float8 IS NOT NULL)
RETURNING ", columns!());

    /// How the sender of a webhook signs, and what may be done with its secret.
    desk fn signing(webhook: WebhookId) -> Option<SigningRow> = "
SELECT h.workspace_id AS workspace, h.name, h.tool, h.rules,
    coalesce(h.settable_until > now(), false) AS is_settable, h.ends_at IS NULL AS is_replaceable
FROM workspaces w
JOIN webhooks h ON h.workspace_id = w.workspace_id AND h.webhook_id = $1
WHERE h.deleted_at IS NULL";

    /// The webhooks of a workspace, oldest first.
    desk fn webhooks(workspace: WorkspaceId) -> Vec<WebhookRow> = concat!("
SELECT ", columns!(), "
FROM webhooks WHERE workspace_id = $1 ORDER BY created_at, webhook_id");

    /// One webhook.
    desk fn webhook(webhook: WebhookId) -> Option<WebhookRow> = concat!("
SELECT ", columns!(), "
FROM webhooks WHERE webhook_id = $1 AND workspace_id IN (SELECT workspace_id FROM workspaces)");

    /// Deletes a webhook and destroys its secret. One that it should have replaced goes on.
    desk fn delete_webhook(
        workspace: WorkspaceId, webhook: WebhookId,
    ) -> Option<WebhookRow> = concat!("
WITH going_on AS (
    UPDATE webhooks f SET ends_at = NULL FROM webhooks n
    WHERE n.workspace_id = $1 AND n.webhook_id = $2 AND n.deleted_at IS NULL
      AND f.workspace_id = n.workspace_id
      AND f.webhook_id = n.replaces AND f.deleted_at IS NULL AND f.ends_at > clock_timestamp()
)
UPDATE webhooks SET deleted_at = now(), secret_sealed = NULL
WHERE workspace_id = $1 AND webhook_id = $2 AND deleted_at IS NULL
RETURNING ", columns!());

    /// The last refused deliveries of a webhook.
    desk fn refusals(workspace: WorkspaceId, webhook: WebhookId, limit: i64) -> Vec<RefusalRow> = "
SELECT refusal_id, refused_at, reason, detail, request_id FROM webhook_refusals
WHERE workspace_id = $1 AND webhook_id = $2 ORDER BY refusal_id DESC LIMIT $3";
}

/// A webhook, without its secret.
#[derive(Debug, Clone, FromRow, Serialize)]
pub struct WebhookRow {
    /// The second part of its address.
    pub webhook_id: WebhookId,
    /// The workspace that it belongs to: the first part of its address.
    pub workspace_id: WorkspaceId,
    /// Its name, how its deliveries are signed, and what is kept of them.
    #[serde(flatten)]
    #[row(flatten)]
    pub settings: WebhookSettings,
    /// The webhook whose successor it is; `None` if it is none.
    pub replaces: Option<WebhookId>,
    /// When it ends because it was replaced, unless its successor is used before.
    pub ends_at: Option<Timestamp>,
    /// By the database's clock.
    pub created_at: Timestamp,
    /// When it was deleted and its secret destroyed; `None` while it takes deliveries.
    pub deleted_at: Option<Timestamp>,
    /// Whether its secret is still to be set: it takes nothing before.
    pub awaits_secret: bool,
    /// Until when its former secret counts, too; `None` if there is none.
    pub former_until: Option<Timestamp>,
    /// How many of its deliveries were taken before, and changed nothing.
    pub repeats: i64,
}

impl WebhookRow {
    /// What is known of its tool; `None` if a newer version has stored it.
    pub fn described(&self) -> Option<&'static Described> {
        self.settings.tool.map(Tool::described)
    }

    /// Its tool, for people.
    pub fn tool_title(&self) -> &'static str {
        self.described()
            .map_or("a tool that only a newer version knows", |tool| &tool.title)
    }

    /// Where tools send to.
    pub fn address(&self) -> WebhookAddress {
        WebhookAddress {
            workspace: self.workspace_id,
            webhook: self.webhook_id,
        }
    }
}

/// How the sender of a webhook signs.
#[derive(FromRow)]
struct SigningRow {
    workspace: WorkspaceId,
    name: String,
    #[row(with = str::parse)]
    tool: Result<Tool, UnknownTool>,
    rules: Option<String>,
    is_settable: bool,
    is_replaceable: bool,
}

impl SigningRow {
    fn rules(&self) -> Result<(Tool, Rules), Reason> {
        let tool = self.tool.clone();
        let tool = tool.map_err(|unknown| Reason::InvalidWebhook(unknown.to_string()))?;
        Ok((tool, rules_of(tool, self.rules.as_deref())?))
    }
}

fn verify_token(rules: &Rules, secret: &Secret) -> Option<String> {
    rules.verify_token(&rules.keys(secret).ok()?)
}

/// A refused delivery. Its sender was told as little as ever.
#[derive(Debug, Clone, FromRow, Serialize)]
pub struct RefusalRow {
    /// Sorts by time.
    pub refusal_id: i64,
    /// By the gateway's clock.
    pub refused_at: Timestamp,
    /// The fault that was found.
    pub reason: DeliveryFault,
    /// What was received, as far as that explains it.
    pub detail: Option<String>,
    /// The `X-Request-Id` that its sender was answered.
    pub request_id: Option<String>,
}

/// A webhook with its secret, which is shown only now.
#[derive(Debug, Clone)]
pub struct NewWebhook {
    /// Its name.
    pub name: String,
    /// The path that tools send to; it holds the webhook's id.
    pub address: WebhookAddress,
    /// What sends to it.
    pub tool: Tool,
    /// The text that its deliveries are signed with, if it was made here: one that was given is
    /// known, and one that is to be set nobody knows.
    pub secret: Option<Secret>,
    /// The token that the tool shows when it asks whether the address is right, if it does so.
    pub verify_token: Option<String>,
}

impl NewWebhook {
    /// The secret as text, for the moment in which it is shown.
    pub fn secret_text(&self) -> Option<String> {
        let secret = self.secret.as_ref()?;
        Some(String::from_utf8_lossy(secret.expose()).into_owned())
    }

    /// A new address for this secret, and the secret as it is stored.
    fn seal(
        keys: &dyn Seal,
        workspace: WorkspaceId,
        name: &str,
        (tool, rules): (Tool, &Rules),
        secret: Secret,
    ) -> Result<(Self, Vec<u8>)> {
        let webhook = WebhookId::generate();
        let place = Place::WebhookSecret { workspace, webhook };
        let sealed = keys.seal(place, secret.expose())?;
        let address = WebhookAddress { workspace, webhook };
        let new = Self {
            name: name.to_owned(),
            address,
            tool,
            verify_token: verify_token(rules, &secret),
            secret: Some(secret),
        };
        Ok((new, sealed))
    }
}

/// A webhook whose secret was set.
#[derive(Debug, Clone, Serialize)]
pub struct SetWebhook {
    /// The webhook.
    #[serde(flatten)]
    pub row: WebhookRow,
    /// As in [`NewWebhook`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verify_token: Option<String>,
}

impl Operator {
    /// Creates a webhook, with the secret that the tool has given, if it has.
    pub async fn create_webhook(
        &self,
        keys: &dyn Seal,
        workspace: WorkspaceId,
        settings: &WebhookSettings,
        secret: Option<Secret>,
    ) -> Result<NewWebhook> {
        check_name(&settings.name)?;
        let is_given = secret.is_some();
        let is_later = settings.secret == Some(SecretFrom::Later);
        let (rules, secret) = settings.check(secret)?;
        let way = (settings.tool(), &rules);
        let (mut new, sealed) = NewWebhook::seal(keys, workspace, &settings.name, way, secret)?;
        let id = new.address.webhook;
        settings.store(self, workspace, id, &sealed).await?;
        new.secret.take_if(|_| is_given || is_later);
        new.verify_token.take_if(|_| is_later);
        Ok(new)
    }

    /// Sets the secret of a webhook that was made without one; again within an hour, if the first
    /// one was wrong. Of any other it is changed, if there is an `overlap`, for which both count.
    ///
    /// # Errors
    /// When there is no such webhook, its secret was set, or its tool can't use this one.
    pub async fn set_webhook_secret(
        &self,
        keys: &dyn Seal,
        webhook: WebhookId,
        secret: Secret,
        overlap: Option<Duration>,
    ) -> Result<SetWebhook> {
        let noun = "webhook whose secret is to be set";
        let found = signing(self, webhook).await?;
        let found = found.filter(|one| one.is_settable || overlap.is_some());
        let found = found.found(noun)?;
        let (_, rules) = found.rules()?;
        let secret = usable_secret(&rules, Some(secret))?;
        let place = Place::WebhookSecret {
            workspace: found.workspace,
            webhook,
        };
        let sealed = keys.seal(place, secret.expose())?;
        let overlap = overlap.map(|overlap| overlap.as_secs_f64());
        let set = set_webhook_secret(self, found.workspace, webhook, &sealed, overlap).await?;
        Ok(SetWebhook {
            row: set.found(noun)?,
            verify_token: verify_token(&rules, &secret),
        })
    }

    /// Creates the successor of a webhook: another address and another secret for the same sender.
    /// Both remember what either has received. The former one ends when the successor gets its
    /// first signed delivery, or after `overlap`.
    ///
    /// # Errors
    /// When there is no such webhook, it is being replaced already, or its tool can't use the
    /// secret.
    pub async fn replace_webhook(
        &self,
        keys: &dyn Seal,
        former: WebhookId,
        secret: Option<Secret>,
        overlap: Duration,
    ) -> Result<NewWebhook> {
        let noun = "webhook, or it is deleted or being replaced";
        let found = signing(self, former).await?;
        let found = found.filter(|one| one.is_replaceable).found(noun)?;
        let (tool, rules) = found.rules()?;
        let is_given = secret.is_some();
        let secret = usable_secret(&rules, secret)?;
        let (workspace, way) = (found.workspace, (tool, &rules));
        let (mut new, sealed) = NewWebhook::seal(keys, workspace, &found.name, way, secret)?;
        new.secret.take_if(|_| is_given);
        let successor = new.address.webhook;
        let seconds = overlap.as_secs_f64();
        let made = replace_webhook(self, workspace, former, successor, &sealed, seconds).await?;
        // Another operator may have been faster since it was looked up.
        made.found(noun)?;
        Ok(new)
    }

    /// Lists the webhooks of a workspace, deleted ones included.
    pub async fn webhooks(&self, workspace: WorkspaceId) -> Result<Vec<WebhookRow>> {
        self.need_workspace(workspace).await?;
        webhooks(self, workspace).await
    }

    /// Gives one webhook.
    pub async fn webhook(&self, webhook: WebhookId) -> Result<WebhookRow> {
        self::webhook(self, webhook).await?.found("webhook")
    }

    /// Lists the last refused deliveries of a webhook, newest first.
    pub async fn refusals(&self, webhook: WebhookId, limit: u32) -> Result<Vec<RefusalRow>> {
        let workspace = self.webhook(webhook).await?.workspace_id;
        refusals(self, workspace, webhook, limit.into()).await
    }

    /// Deletes a webhook: from the next request on its deliveries are refused. Its signals stay.
    pub async fn delete_webhook(&self, webhook: WebhookId) -> Result<WebhookRow> {
        let workspace = self.webhook(webhook).await?.workspace_id;
        let deleted = delete_webhook(self, workspace, webhook).await?;
        deleted.found("webhook")
    }
}
