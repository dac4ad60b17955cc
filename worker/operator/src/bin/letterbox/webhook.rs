//! `letterbox webhook …`

use std::{path::PathBuf, time::Duration};

use clap::{Args, Subcommand};
use letterbox_common::{
    ids::WebhookId,
    sealing::{SealedColumn, key_ring},
    webhook::Tool,
};
use letterbox_operator::{
    Named, NewWebhook, OperatorError, RefusalRow, SecretFrom, WebhookSettings, rules_in, span,
};
use serde_json::{Value, json};

use crate::{
    Output, Result, confirm::confirm_loss, file, follow, in_workspace::InWorkspace,
    settings::CliSettings, times::to_second,
};

const COLUMNS: &str = "webhook_id name tool repeats created_at ends_at deleted_at";

#[derive(Subcommand)]
pub(crate) enum WebhookCommand {
    /// Create a webhook; its secret is shown this once
    Create(Creation),
    /// Create the successor of a webhook, with an address and a secret of its own; both remember
    /// the deliveries of either
    ///
    /// The former one ends when the successor gets its first signed delivery, or after --overlap:
    /// so change the address and the secret in every sender before the first of them sends. If the
    /// successor is deleted before that, the former one goes on.
    Replace(Replacement),
    /// Set the secret of a webhook that was created with --secret-later, again within an hour; or
    /// change that of any other, with --overlap
    SetSecret {
        webhook_id: Named<WebhookId>,
        /// A file with the secret that the tool gave you; - reads standard input
        #[arg(long, value_name = "FILE")]
        secret_file: PathBuf,
        /// How long the former secret counts, too, such as 24h or 30m
        #[arg(long, value_name = "TIME", value_parser = overlap)]
        overlap: Option<Duration>,
    },
    /// Show why the last deliveries of a webhook were refused, at most 100; senders are never told
    Log {
        webhook_id: Named<WebhookId>,
        /// Most refusals to show
        #[arg(long, default_value_t = 20, value_parser =
            clap::value_parser!(u32).range(1..=100))]
        limit: u32,
        /// Go on until interrupted: print new refusals as they come
        #[arg(long)]
        follow: bool,
    },
    /// List the webhooks of a workspace
    List(InWorkspace),
    /// List the tools that are known, or show how one of them is set up
    Tools {
        /// Its name
        tool: Option<Tool>,
    },
    /// Show a webhook: its address, how its tool is set up, and how its tool signs
    Show { webhook_id: Named<WebhookId> },
    /// Delete a webhook: its deliveries are refused from now on; its signals stay
    Delete {
        webhook_id: WebhookId,
        /// Do not ask for confirmation
        #[arg(long)]
        yes: bool,
    },
}

/// The arguments of `webhook create`.
#[derive(Args)]
pub(crate) struct Creation {
    #[command(flatten)]
    workspace: InWorkspace,
    #[command(flatten)]
    settings: WebhookSettings,
    /// A file with the rules of a custom tool, as JSON
    #[arg(long, value_name = "FILE", required_if_eq("tool", "custom"))]
    rules: Option<PathBuf>,
    /// A file with the secret that the tool gave you, or with its public keys; without it, a secret
    /// is made
    #[arg(long, value_name = "FILE", visible_alias = "public-key-file")]
    secret_file: Option<PathBuf>,
    /// The tool gives you the secret only when it knows the address: set it with 'webhook
    /// set-secret'; nothing is accepted before
    #[arg(long, conflicts_with = "secret_file")]
    secret_later: bool,
}

/// The arguments of `webhook replace`.
#[derive(Args)]
pub(crate) struct Replacement {
    webhook_id: WebhookId,
    /// The longest time that the former one goes on, such as 24h or 30m
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = overlap)]
    overlap: Duration,
    /// A file with the secret that the tool gave you; without it, a new one is made
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
}

/// A time as `24h` or `2d`; a month at most.
fn overlap(text: &str) -> Result<Duration, &'static str> {
    let overlap = span(text).and_then(|overlap| Duration::try_from(overlap).ok());
    let overlap = overlap.ok_or("must be a time such as 24h, 30m or 2d")?;
    let most = Duration::from_secs(31 * 86_400);
    let overlap = Some(overlap).filter(|overlap| *overlap <= most);
    overlap.ok_or("at most 31 days")
}

pub(crate) async fn run(settings: &CliSettings, verb: WebhookCommand) -> Result<Output> {
    let operator = async || settings.operator().await;
    Ok(match verb {
        WebhookCommand::Create(new) => create(settings, new).await?,
        WebhookCommand::Replace(new) => replace(settings, new).await?,
        WebhookCommand::SetSecret {
            webhook_id,
            secret_file,
            overlap,
        } => {
            let secret = file::read_secret(&secret_file)?;
            let operator = operator().await?;
            let keys = key_ring(SealedColumn::WebhookSecret)?;
            let webhook = operator.id(&webhook_id).await?;
            let setting = operator.set_webhook_secret(&keys, webhook, secret, overlap);
            Output::one(&setting.await?)
        }
        WebhookCommand::List(workspace) => {
            let operator = operator().await?;
            let webhooks = operator.webhooks(workspace.id(&operator).await?).await?;
            Output::many(&webhooks, COLUMNS)
        }
        WebhookCommand::Log {
            webhook_id,
            limit,
            follow,
        } => {
            let operator = operator().await?;
            let webhook = operator.id(&webhook_id).await?;
            if follow {
                let read = async |limit| operator.refusals(webhook, limit).await;
                let known = |refusal: &RefusalRow| (refusal.refusal_id, ());
                return follow::follow(limit, settings.json, read, known, one_line).await;
            }
            let refusals = operator.refusals(webhook, limit).await?;
            let refusals: Vec<_> = refusals.iter().map(with_advice).collect();
            Output::many(&refusals, "refused_at reason detail request_id")
        }
        WebhookCommand::Tools { tool: Some(tool) } => Output::One(described(tool, "{url}")),
        WebhookCommand::Tools { tool: None } => {
            let tools: Vec<_> = Tool::all().map(|tool| described(tool, "{url}")).collect();
            Output::many(&tools, "tool title secret_from cannot")
        }
        WebhookCommand::Show { webhook_id } => {
            let operator = operator().await?;
            let row = operator.webhook(operator.id(&webhook_id).await?).await?;
            let url = settings.addresses.webhook_url(row.address());
            let mut shown = json!(&row);
            let known = row.settings.tool.map(|tool| described(tool, &url));
            if let (Some(shown), Some(Value::Object(known))) = (shown.as_object_mut(), known) {
                shown.extend(known);
            }
            shown["url"] = url.into();
            Output::One(shown)
        }
        WebhookCommand::Delete { webhook_id, yes } => {
            confirm_loss("the webhook's address and secret end", yes)?;
            Output::one(&operator().await?.delete_webhook(webhook_id).await?)
        }
    })
}

/// A refusal with the sentence that explains it.
fn with_advice(refusal: &RefusalRow) -> Value {
    let mut shown = json!(refusal);
    shown["advice"] = refusal.reason.advice().into();
    shown
}

fn one_line(refusal: &RefusalRow) -> String {
    let at = to_second(refusal.refused_at);
    let request = refusal.request_id.as_deref();
    format!(
        "{at}  {:<12}  {}  {}",
        refusal.reason.as_str(),
        request.unwrap_or("-"),
        refusal.detail.as_deref().unwrap_or_default()
    )
}

async fn create(settings: &CliSettings, new: Creation) -> Result<Output> {
    let secret = new.secret_file.as_deref().map(file::read_secret);
    let secret = secret.transpose()?;
    let rules = new.rules.map(|file| file::read_text(&file)).transpose()?;
    let rules = rules.map(|text| rules_in(&text)).transpose();
    let wanted = WebhookSettings {
        rules: rules.map_err(OperatorError::from)?,
        secret: new.secret_later.then_some(SecretFrom::Later),
        ..new.settings
    };
    let operator = settings.operator().await?;
    let keys = key_ring(SealedColumn::WebhookSecret)?;
    let workspace = new.workspace.id(&operator).await?;
    let creating = operator.create_webhook(&keys, workspace, &wanted, secret);
    let created = creating.await?;
    Ok(Output::One(shown(settings, &created)))
}

async fn replace(settings: &CliSettings, new: Replacement) -> Result<Output> {
    let secret = new.secret_file.as_deref().map(file::read_secret);
    let secret = secret.transpose()?;
    let operator = settings.operator().await?;
    let keys = key_ring(SealedColumn::WebhookSecret)?;
    let replacing = operator.replace_webhook(&keys, new.webhook_id, secret, new.overlap);
    let made = replacing.await?;
    let mut shown = shown(settings, &made);
    shown["replaces"] = json!(new.webhook_id);
    Ok(Output::One(shown))
}

/// A new webhook, at the only time that its secret is shown.
pub(crate) fn shown(settings: &CliSettings, new: &NewWebhook) -> Value {
    let url = settings.addresses.webhook_url(new.address);
    let secret = new.secret_text();
    let mut shown = json!({
        "webhook_id": new.address.webhook,
        "workspace_id": new.address.workspace,
        "name": new.name,
        "url": url,
        "secret": secret,
    });
    if let Some(token) = &new.verify_token {
        shown["verify_token"] = token.clone().into();
    }
    shown["tool"] = json!(new.tool);
    let steps = new.tool.described().steps(&url, secret.as_deref());
    if !steps.is_empty() {
        shown["setup"] = steps.into();
    }
    shown
}

/// What is known of a tool, with the steps for this address.
fn described(tool: Tool, url: &str) -> Value {
    let known = tool.described();
    let mut shown = json!({
        "tool": tool,
        "title": known.title,
        "secret_from": known.secret_from,
        "rules": tool.rules(),
        "retries": known.retries,
        "cannot": known.cannot,
        "setup": known.steps(url, None),
    });
    if let Some(shown) = shown.as_object_mut() {
        shown.retain(|_, value| !value.is_null() && *value != json!([]));
    }
    shown
}
