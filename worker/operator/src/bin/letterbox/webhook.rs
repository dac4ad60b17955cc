//! `letterbox webhook …`

use clap::Subcommand;
use letterbox_common::{
    ids::{WebhookId, WorkspaceId},
    sealing::{SealedColumn, key_ring},
};
use letterbox_operator::Named;
use serde_json::json;

use crate::{Failure, Output, settings::CliSettings};

#[derive(Subcommand)]
pub(crate) enum WebhookCommand {
    /// Create a webhook; its secret is shown this once
    Create {
        #[arg(long)]
        workspace: Named<WorkspaceId>,
        /// Which tool will send to it
        #[arg(long)]
        name: String,
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
        WebhookCommand::Create { workspace, name } => {
            // First, so that nothing is created without keys.
            let keys = key_ring(SealedColumn::WebhookSecret)?;
            let operator = settings.operator().await?;
            let workspace = operator.id(&workspace).await?;
            let created = operator.create_webhook(&keys, workspace, &name).await?;
            Output::one(&json!({
                "webhook_id": created.address.webhook,
                "workspace_id": created.address.workspace,
                "name": name,
                "url": settings.webhook_url(created.address),
                "secret": String::from_utf8_lossy(created.secret.expose()),
            }))
        }
        WebhookCommand::List { workspace } => {
            let operator = settings.operator().await?;
            let webhooks = operator.webhooks(operator.id(&workspace).await?).await?;
            Output::many(
                &webhooks,
                &["webhook_id", "name", "created_at", "deleted_at"],
            )
        }
        WebhookCommand::Delete { webhook_id } => {
            let operator = settings.operator().await?;
            Output::one(&operator.delete_webhook(webhook_id).await?)
        }
    })
}
