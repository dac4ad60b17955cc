//! `letterbox webhook …`

use std::path::PathBuf;

use clap::Subcommand;
use letterbox_common::{
    ids::{WebhookId, WorkspaceId},
    sealing::{SealedColumn, Secret, key_ring},
    webhook::Scheme,
};
use letterbox_operator::{Named, Sender};
use serde_json::json;

use crate::{Failure, Output, file, settings::CliSettings};

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
            value_name = "letterbox|github|stripe|slack|shopify|standard-webhooks|custom"
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
    Delete { webhook_id: WebhookId },
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
                &["webhook_id", "name", "scheme", "created_at", "deleted_at"],
            )
        }
        WebhookCommand::Log { webhook_id, limit } => {
            let operator = settings.operator().await?;
            let webhook = operator.id(&webhook_id).await?;
            let refusals = operator.refusals(webhook, limit).await?;
            Output::many(&refusals, &["refused_at", "reason", "request_id"])
        }
        WebhookCommand::Delete { webhook_id } => {
            let operator = settings.operator().await?;
            Output::one(&operator.delete_webhook(webhook_id).await?)
        }
    })
}
