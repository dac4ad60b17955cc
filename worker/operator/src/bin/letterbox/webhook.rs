//! `letterbox webhook …`

use clap::Subcommand;
use letterbox_common::{
    ids::{WebhookId, WorkspaceId},
    sealing::{SealedColumn, key_ring},
};
use serde_json::json;

use crate::{Failure, Output, settings::CliSettings};

#[derive(Subcommand)]
pub(crate) enum WebhookCommand {
    /// Create a webhook; its secret is shown this once
    Create {
        #[arg(long)]
        workspace: WorkspaceId,
        /// Which tool will send to it
        #[arg(long)]
        name: String,
    },
    /// List the webhooks of a workspace
    List {
        #[arg(long)]
        workspace: WorkspaceId,
    },
    /// Delete a webhook: its deliveries are refused from now on; what it has received stays
    Delete { webhook_id: WebhookId },
}

pub(crate) async fn run(settings: &CliSettings, verb: WebhookCommand) -> Result<Output, Failure> {
    Ok(match verb {
        WebhookCommand::Create { workspace, name } => {
            // First, so that nothing is created without keys.
            let keys = key_ring(SealedColumn::WebhookSecret)?;
            let created = settings
                .operator()
                .await?
                .create_webhook(&keys, workspace, &name)
                .await?;
            Output::one(&json!({
                "webhook_id": created.address.webhook,
                "workspace_id": created.address.workspace,
                "name": name,
                "url": settings.webhook_url(created.address),
                "secret": String::from_utf8_lossy(created.secret.expose()),
            }))
        }
        WebhookCommand::List { workspace } => {
            let webhooks = settings.operator().await?.webhooks(workspace).await?;
            Output::many(
                &webhooks,
                &["webhook_id", "name", "created_at", "deleted_at"],
            )
        }
        WebhookCommand::Delete { webhook_id } => Output::one(
            &settings
                .operator()
                .await?
                .delete_webhook(webhook_id)
                .await?,
        ),
    })
}
