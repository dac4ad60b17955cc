//! `letterbox webhook …`

use clap::Subcommand;
use letterbox_common::ids::{WebhookId, WorkspaceId};
use serde_json::json;

use crate::{Failure, Output, Settings};

#[derive(Subcommand)]
pub enum Verb {
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

pub async fn carry_out(settings: &Settings, verb: Verb) -> Result<Output, Failure> {
    Ok(match verb {
        Verb::Create { workspace, name } => {
            // Asked for first: without keys nothing shall be created.
            let keys = settings.keys()?;
            let created = settings
                .owner()
                .await?
                .create_webhook(&keys, workspace, &name)
                .await?;
            let base = settings.base_url.as_str().trim_end_matches('/');
            Output::one(&json!({
                "webhook_id": created.address.webhook,
                "workspace_id": created.address.workspace,
                "name": name,
                "url": format!("{base}/webhooks/incoming/{}", created.address),
                "secret": String::from_utf8_lossy(created.secret.expose()),
            }))
        }
        Verb::List { workspace } => {
            let webhooks = settings.owner().await?.webhooks(workspace).await?;
            Output::many(
                &webhooks,
                &["webhook_id", "name", "created_at", "deleted_at"],
            )
        }
        Verb::Delete { webhook_id } => {
            Output::one(&settings.owner().await?.delete_webhook(webhook_id).await?)
        }
    })
}
