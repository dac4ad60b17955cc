//! Webhooks, for editors: their addresses and secrets, what was refused and why, the last signals.
//! Secrets are sealed to the gateways: the desk shows a new one once and can open none.

use std::time::Duration;

use axum::response::Response;
use letterbox_common::{
    ids::{WebhookId, WorkspaceId},
    sealing::{SealedColumn, Secret},
    webhook::{Scheme, WebhookAddress},
};
use letterbox_operator::{NewWebhook, SameBy, SignalFilter, WebhookSettings, rules_in};
use serde_json::{Value, json};

use super::{To, Visit, chosen, id, or_refusal, see_list};
use crate::response::{Answered, Trouble, see};

/// Refusals and signals that are shown.
const EACH: u32 = 30;
/// How long a webhook goes on beside its successor.
const OVERLAP: Duration = Duration::from_secs(24 * 3_600);

/// The webhooks of a workspace.
pub(crate) async fn list(visit: Visit) -> Answered {
    let found = found(&visit).await?;
    Ok(visit.page("webhooks", "Webhooks", found))
}

async fn found(visit: &Visit) -> Result<Value, Trouble> {
    let Some(place) = visit.place().await? else {
        return Ok(json!({}));
    };
    let is_editor = place.is_editor();
    let mut webhooks = Vec::new();
    if is_editor {
        webhooks = visit.operator.webhooks(place.workspace).await?;
        webhooks.retain(|one| one.deleted_at.is_none());
    }
    Ok(json!({
        "place": place,
        "is_editor": is_editor,
        "webhooks": webhooks,
        "schemes": Scheme::ALL,
    }))
}

/// Creates a webhook. Its address and its secret are shown once.
pub(crate) async fn create(visit: Visit) -> Answered {
    let form = &visit.asked.form;
    let workspace: WorkspaceId = id(visit.given("workspace")?)?;
    let name = visit.given("name")?;
    let scheme = chosen(visit.given("scheme")?)?;
    let operator = &visit.operator;
    let keys = operator.recipient(SealedColumn::WebhookSecret).await?;
    let creating = async {
        let kept = form.get("kept_headers").map(str::split_whitespace);
        let settings = WebhookSettings {
            name: name.to_owned(),
            scheme: Some(scheme),
            rules: form.get("rules").map(rules_in).transpose()?,
            allow_from: form.get("allow_from").map(|text| Some(text.to_owned())),
            kept_headers: kept.map(|names| names.map(str::to_owned).collect()),
            same_by: form.get("same_by").map(|_| SameBy::Id),
            secret: None,
        };
        let created = operator.create_webhook(&keys, workspace, &settings, secret(&visit));
        created.await
    };
    match or_refusal(creating.await)? {
        Ok(new) => Ok(made(&visit, &new)),
        Err(refused) => {
            let mut found = found(&visit).await?;
            found["refused"] = refused.into();
            Ok(visit.refusal("webhooks", "Webhooks", found))
        }
    }
}

/// The secret that the sender has given, if it has one.
fn secret(visit: &Visit) -> Option<Secret> {
    let secret = visit.asked.form.get("secret")?.trim();
    Some(Secret::new(secret.as_bytes().to_vec()))
}

fn made(visit: &Visit, new: &NewWebhook) -> Response {
    let id = new.address.webhook;
    let made = String::from_utf8_lossy(new.secret.expose());
    // One that was given is known, and may be longer than a browser keeps.
    let made = if secret(visit).is_some() { "" } else { &made };
    visit.show_once(&format!("/webhooks/{id}/new"), &id, made)
}

/// The webhook that was made just now; without its secret, if it was shown already.
pub(crate) async fn new(To(visit, webhook): To<WebhookId>) -> Answered {
    let row = visit.operator.webhook(webhook).await?;
    let Some(secret) = visit.asked.made(&row.webhook_id) else {
        return Ok(see(&format!("/webhooks/{}", row.webhook_id)));
    };
    let address = WebhookAddress {
        workspace: row.workspace_id,
        webhook: row.webhook_id,
    };
    let found = json!({
        "webhook": row.webhook_id,
        "url": visit.asked.desk.addresses.webhook_url(address),
        "secret": secret,
        "is_own_scheme": row.scheme == Scheme::Letterbox,
    });
    Ok(visit.once("webhook_new", "Webhook", found))
}

/// One webhook: what it refused, and the signals that came of what it took.
pub(crate) async fn show(To(visit, webhook): To<WebhookId>) -> Answered {
    let operator = &visit.operator;
    let row = operator.webhook(webhook).await?;
    let mut filter = SignalFilter::of(row.workspace_id);
    filter.webhook = Some(webhook);
    let found = json!({
        "webhook": row,
        "refusals": operator.refusals(webhook, EACH).await?,
        "signals": operator.signals(&filter, None, EACH).await?,
    });
    Ok(visit.page("webhook", "Webhook", found))
}

/// Makes the successor of a webhook. Its address and its secret are shown once.
pub(crate) async fn replace(To(visit, webhook): To<WebhookId>) -> Answered {
    let operator = &visit.operator;
    let keys = operator.recipient(SealedColumn::WebhookSecret).await?;
    let replacing = operator.replace_webhook(&keys, webhook, secret(&visit), OVERLAP);
    Ok(made(&visit, &replacing.await?))
}

/// Deletes a webhook.
pub(crate) async fn delete(To(visit, webhook): To<WebhookId>) -> Answered {
    visit.need_sure()?;
    let gone = visit.operator.delete_webhook(webhook).await?;
    Ok(see_list("webhooks", gone.workspace_id))
}
