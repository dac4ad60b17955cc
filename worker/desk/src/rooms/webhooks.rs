//! Webhooks, for editors: their addresses and secrets, what was refused and why, the last signals.
//! Secrets are sealed to the gateways: the desk shows a new one once and can open none.

use std::{fmt::Display, str::FromStr, time::Duration};

use askama::Template;
use axum::response::Response;
use letterbox_common::{
    ids::{DeliveryId, WebhookId, WorkspaceId},
    sealing::{SealedColumn, Secret},
    webhook::Tool,
};
use letterbox_operator::{
    NewWebhook, OperatorError, Reason, RefusalRow, SecretFrom, SignalDetail, SignalFilter,
    SignalRow, WebhookRow, WebhookSettings, rules_in,
};

use super::{Nowhere, PageWorkspace, To, Visit, id, or_refusal, see_list};
use crate::{
    pages::filters,
    response::{Answered, Trouble, see},
};

/// Refusals and signals that are shown.
const EACH: u32 = 30;
/// How long a webhook goes on beside its successor.
const OVERLAP: Duration = Duration::from_secs(24 * 3_600);

#[derive(Template)]
#[template(path = "webhooks.html")]
struct WebhooksPage<'v> {
    visit: &'v Visit,
    place: PageWorkspace,
    webhooks: Vec<WebhookRow>,
    refused: Option<String>,
}

/// The webhooks of a workspace.
pub(crate) async fn list(visit: Visit) -> Answered {
    Ok(match visit.place().await? {
        Some(place) => visit.page("Webhooks", &found(&visit, place).await?),
        None => visit.page("Webhooks", &Nowhere { title: "Webhooks" }),
    })
}

async fn found(visit: &Visit, place: PageWorkspace) -> Result<WebhooksPage<'_>, Trouble> {
    let mut webhooks = Vec::new();
    if place.rights.is_editor() {
        webhooks = visit.operator.webhooks(place.workspace).await?;
        webhooks.retain(|one| one.deleted_at.is_none());
    }
    Ok(WebhooksPage {
        visit,
        place,
        webhooks,
        refused: None,
    })
}

/// Creates a webhook. Its address and its secret are shown once.
pub(crate) async fn create(visit: Visit) -> Answered {
    let form = &visit.asked.form;
    let workspace: WorkspaceId = id(visit.given("workspace")?)?;
    let name = visit.given("name")?;
    let tool = visit.given("tool")?.trim();
    let operator = &visit.operator;
    let keys = operator.recipient(SealedColumn::WebhookSecret).await?;
    let creating = async {
        let kept = form.get("kept_headers").map(str::split_whitespace);
        let settings = WebhookSettings {
            name: name.to_owned(),
            tool: Some(parsed(tool)?),
            rules: form.get("rules").map(rules_in).transpose()?,
            allow_from: form.get("allow_from").map(|text| Some(text.to_owned())),
            kept_headers: kept.map(|names| names.map(str::to_owned).collect()),
            same_by: form.get("same_by").map(parsed).transpose()?,
            secret: form.get("later").map(|_| SecretFrom::Later),
        };
        let created = operator.create_webhook(&keys, workspace, &settings, secret(&visit));
        created.await
    };
    match or_refusal(creating.await)? {
        Ok(new) => Ok(made(&visit, &new)),
        Err(refused) => {
            let mut found = found(&visit, visit.some_place().await?).await?;
            found.refused = Some(refused);
            Ok(visit.refusal("Webhooks", &found))
        }
    }
}

/// What somebody has typed in, or why it can't be that.
fn parsed<T: FromStr<Err: Display>>(text: &str) -> Result<T, OperatorError> {
    let wrong = |error: T::Err| Reason::InvalidWebhook(error.to_string());
    Ok(text.parse().map_err(wrong)?)
}

/// The secret that the sender has given, if it has one.
fn secret(visit: &Visit) -> Option<Secret> {
    let secret = visit.asked.form.get("secret")?.trim();
    Some(Secret::new(secret.as_bytes().to_vec()))
}

fn made(visit: &Visit, new: &NewWebhook) -> Response {
    let id = new.address.webhook;
    let secret = new.secret_text().unwrap_or_default();
    let token = new.verify_token.as_deref().unwrap_or_default();
    let shown = format!("{secret}~{token}");
    visit.show_once(&format!("/webhooks/{id}/new"), &id, &shown)
}

/// A step in pieces: whether each is a name that stands on the tool's pages.
type Step = Vec<(bool, String)>;

/// How the tool of a webhook is set up.
fn steps(webhook: &WebhookRow, url: &str) -> Vec<Step> {
    let described = webhook.described().into_iter();
    let steps = described.flat_map(|tool| tool.steps(url, None));
    let in_pieces = |step: String| {
        let pieces = step.split(['*', '`']).enumerate();
        pieces
            .map(|(at, piece)| (at % 2 == 1, piece.to_owned()))
            .collect()
    };
    steps.map(in_pieces).collect()
}

#[derive(Template)]
#[template(path = "webhook_new.html")]
struct NewWebhookPage<'v> {
    webhook: WebhookRow,
    url: String,
    steps: Vec<Step>,
    /// Empty if the person has given it, or will.
    secret: &'v str,
    /// Empty if its tool asks for none.
    verify_token: &'v str,
}

/// The webhook that was made just now; without its secret, if it was shown already.
pub(crate) async fn new(To(visit, webhook): To<WebhookId>) -> Answered {
    let row = visit.operator.webhook(webhook).await?;
    let shown = visit.asked.made(&row.webhook_id);
    let Some((secret, verify_token)) = shown.and_then(|shown| shown.split_once('~')) else {
        return Ok(see(&format!("/webhooks/{}", row.webhook_id)));
    };
    let url = visit.asked.desk.addresses.webhook_url(row.address());
    let page = NewWebhookPage {
        steps: steps(&row, &url),
        webhook: row,
        url,
        secret,
        verify_token,
    };
    Ok(visit.once("Webhook", &page))
}

/// Sets the secret that the tool has made. A token that it asks for is shown once.
pub(crate) async fn set_secret(To(visit, webhook): To<WebhookId>) -> Answered {
    let Some(secret) = secret(&visit) else {
        return Err(super::refused("Nothing was done: the secret is missing."));
    };
    let operator = &visit.operator;
    let keys = operator.recipient(SealedColumn::WebhookSecret).await?;
    let overlap = visit.asked.form.get("overlap").map(|_| OVERLAP);
    let setting = operator.set_webhook_secret(&keys, webhook, secret, overlap);
    let set = setting.await?;
    let id = set.row.webhook_id;
    Ok(match set.verify_token {
        Some(token) => visit.show_once(&format!("/webhooks/{id}/new"), &id, &format!("~{token}")),
        None => see(&format!("/webhooks/{id}")),
    })
}

#[derive(Template)]
#[template(path = "webhook.html")]
struct WebhookPage<'v> {
    visit: &'v Visit,
    webhook: WebhookRow,
    url: String,
    steps: Vec<Step>,
    refusals: Vec<RefusalRow>,
    signals: Vec<SignalRow>,
}

/// One webhook: what it refused, and the signals that came of what it took.
pub(crate) async fn show(To(visit, webhook): To<WebhookId>) -> Answered {
    let operator = &visit.operator;
    let row = operator.webhook(webhook).await?;
    let filter = SignalFilter {
        webhook: Some(webhook),
        ..SignalFilter::default()
    };
    let signals = operator.signals(row.workspace_id, &filter, None, EACH);
    let url = visit.asked.desk.addresses.webhook_url(row.address());
    let page = WebhookPage {
        visit: &visit,
        steps: steps(&row, &url),
        url,
        webhook: row,
        refusals: operator.refusals(webhook, EACH).await?,
        signals: signals.await?,
    };
    Ok(visit.page("Webhook", &page))
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

#[derive(Template)]
#[template(path = "signal.html")]
struct SignalPage {
    signal: SignalDetail,
}

/// One signal with its body.
pub(crate) async fn signal(To(visit, signal): To<DeliveryId>) -> Answered {
    let signal = visit.operator.signal(signal).await?;
    Ok(visit.page("Signal", &SignalPage { signal }))
}
