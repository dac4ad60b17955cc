//! `letterbox webhook …`

use std::{path::PathBuf, time::Duration};

use clap::Subcommand;
use letterbox_common::{
    ids::{WebhookId, WorkspaceId},
    sealing::{SealedColumn, Secret, key_ring},
    webhook::Scheme,
};
use letterbox_operator::{Named, Sender};
use serde_json::json;

use crate::{Failure, Output, confirm::confirm_loss, file, settings::CliSettings};

#[derive(Subcommand)]
pub(crate) enum WebhookCommand {
    /// Create a webhook; its secret is shown this once
    Create {
        #[arg(long)]
        workspace: Named<WorkspaceId>,
        /// Which tool will send to it
        #[arg(long)]
        name: String,
        /// How that tool signs
        #[arg(
            long,
            default_value = "letterbox",
            value_name = "letterbox|github|stripe|slack|shopify|standard-webhooks|svix|custom"
        )]
        scheme: Scheme,
        /// A file with the rules of a custom scheme, as JSON
        #[arg(long, value_name = "FILE", required_if_eq("scheme", "custom"))]
        rules: Option<PathBuf>,
        /// A file with the secret that the tool has given you; without it, one is made
        #[arg(long, value_name = "FILE")]
        secret_file: Option<PathBuf>,
        /// Networks that the tool sends from; who sends from elsewhere gets a 401 [default: any]
        #[arg(long, value_name = "CIDR[,CIDR...]")]
        allow_from: Option<String>,
    },
    /// Create the successor of a webhook, with an address and a secret of its own; both remember
    /// what either has received
    ///
    /// The former one ends when the successor gets its first signed delivery, or after --overlap:
    /// so change the address and the secret of everything that sends before the first of them
    /// sends. If the successor is deleted before, the former one goes on.
    Replace {
        webhook_id: WebhookId,
        /// How long the former one goes on at most, such as 24h or 30m
        #[arg(long, value_name = "TIME", default_value = "24h", value_parser = overlap)]
        overlap: Duration,
        /// A file with the secret that the tool has given you; without it, one is made
        #[arg(long, value_name = "FILE")]
        secret_file: Option<PathBuf>,
    },
    /// Show why the last deliveries of a webhook were refused, at most 100; senders are never told
    Log {
        webhook_id: Named<WebhookId>,
        /// Most refusals to show
        #[arg(long, default_value_t = 20, value_parser =
            clap::value_parser!(u32).range(1..=100))]
        limit: u32,
    },
    /// List the webhooks of a workspace
    List {
        #[arg(long)]
        workspace: Named<WorkspaceId>,
    },
    /// Delete a webhook: its deliveries are refused from now on; what it has received stays
    Delete {
        webhook_id: WebhookId,
        /// Without asking
        #[arg(long)]
        yes: bool,
    },
}

/// A time as `24h`, `30m` or `90s`; a month at most.
fn overlap(text: &str) -> Result<Duration, String> {
    let expected = || "must be a number of hours, minutes or seconds: 24h, 30m, 90s".to_owned();
    let (number, unit) = text
        .split_at_checked(text.len().saturating_sub(1))
        .ok_or_else(expected)?;
    let number: u64 = number.parse().map_err(|_| expected())?;
    let seconds = match unit {
        "h" => 3_600,
        "m" => 60,
        "s" => 1,
        _ => return Err(expected()),
    };
    let most = Duration::from_secs(31 * 86_400);
    let overlap = number.checked_mul(seconds).map(Duration::from_secs);
    overlap
        .filter(|overlap| *overlap <= most)
        .ok_or("at most 31 days".to_owned())
}

pub(crate) async fn run(settings: &CliSettings, verb: WebhookCommand) -> Result<Output, Failure> {
    Ok(match verb {
        WebhookCommand::Create {
            workspace,
            name,
            scheme,
            rules,
            secret_file,
            allow_from,
        } => {
            // First, so that nothing is created without keys.
            let keys = key_ring(SealedColumn::WebhookSecret)?;
            let secret = secret_file.map(|file| file::read(&file)).transpose()?;
            let secret = secret.map(|text| Secret::new(text.trim_ascii().to_vec()));
            let sender = Sender {
                scheme,
                rules: rules.map(|file| file::read_text(&file)).transpose()?,
                secret,
                allow_from,
            };
            let operator = settings.operator().await?;
            let workspace = operator.id(&workspace).await?;
            let creating = operator.create_webhook_for(&keys, workspace, &name, &sender);
            let created = creating.await?;
            Output::one(&json!({
                "webhook_id": created.address.webhook,
                "workspace_id": created.address.workspace,
                "name": name,
                "scheme": scheme,
                "url": settings.webhook_url(created.address),
                "secret": String::from_utf8_lossy(created.secret.expose()),
            }))
        }
        WebhookCommand::List { workspace } => {
            let operator = settings.operator().await?;
            let webhooks = operator.webhooks(operator.id(&workspace).await?).await?;
            Output::many(
                &webhooks,
                &[
                    "webhook_id",
                    "name",
                    "scheme",
                    "created_at",
                    "ends_at",
                    "deleted_at",
                ],
            )
        }
        WebhookCommand::Replace {
            webhook_id,
            overlap,
            secret_file,
        } => {
            let keys = key_ring(SealedColumn::WebhookSecret)?;
            let secret = secret_file.map(|file| file::read(&file)).transpose()?;
            let secret = secret.map(|text| Secret::new(text.trim_ascii().to_vec()));
            let operator = settings.operator().await?;
            let replacing = operator.replace_webhook(&keys, webhook_id, secret, overlap);
            let made = replacing.await?;
            Output::one(&json!({
                "webhook_id": made.address.webhook,
                "workspace_id": made.address.workspace,
                "replaces": webhook_id,
                "url": settings.webhook_url(made.address),
                "secret": String::from_utf8_lossy(made.secret.expose()),
            }))
        }
        WebhookCommand::Log { webhook_id, limit } => {
            let operator = settings.operator().await?;
            let webhook = operator.id(&webhook_id).await?;
            let refusals = operator.refusals(webhook, limit).await?;
            Output::many(&refusals, &["refused_at", "reason", "request_id"])
        }
        WebhookCommand::Delete { webhook_id, yes } => {
            confirm_loss("the webhook's address and secret end", yes)?;
            let operator = settings.operator().await?;
            Output::one(&operator.delete_webhook(webhook_id).await?)
        }
    })
}
