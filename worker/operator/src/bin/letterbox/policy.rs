//! `letterbox policy …`

use std::path::PathBuf;

use clap::Subcommand;
use letterbox_common::ids::WorkspaceId;
use letterbox_operator::{Named, Operator};
use serde_json::json;

use crate::{Output, Result, file};

#[derive(Subcommand)]
pub(crate) enum PolicyCommand {
    /// Print a policy as JSON, as 'policy set' takes it
    Show {
        workspace_id: Named<WorkspaceId>,
        /// A former version; 0 is the default policy
        #[arg(long, value_name = "N")]
        version: Option<i32>,
    },
    /// Set a policy, as a new version, and say what that changes
    Set {
        workspace_id: Named<WorkspaceId>,
        /// A file with {"rules": [{"when": {...}, "decision": "allow"|"approve"|"deny"}],
        /// "default": ...}; - reads standard input
        file: PathBuf,
        /// Show what would change, without setting it
        #[arg(long)]
        dry_run: bool,
    },
    /// List the versions of a policy, newest first, with their authors
    History {
        workspace_id: Named<WorkspaceId>,
        #[arg(long, value_name = "N", default_value_t = 100)]
        limit: u32,
    },
    /// Set the default policy again, as a new version
    Reset { workspace_id: Named<WorkspaceId> },
}

pub(crate) async fn run(operator: &Operator, verb: PolicyCommand) -> Result<Output> {
    Ok(match verb {
        PolicyCommand::Show {
            workspace_id,
            version,
        } => {
            let workspace = operator.id(&workspace_id).await?;
            let row = match version {
                None => operator.policy(workspace).await?,
                Some(version) => operator.policy_version(workspace, version).await?,
            };
            Output::Json(row.policy)
        }
        PolicyCommand::Set {
            workspace_id,
            file,
            dry_run,
        } => {
            let workspace = operator.id(&workspace_id).await?;
            set(operator, workspace, &file::read_text(&file)?, dry_run).await?
        }
        PolicyCommand::History {
            workspace_id,
            limit,
        } => {
            let workspace = operator.id(&workspace_id).await?;
            let versions = operator.policy_history(workspace, limit).await?;
            Output::many(&versions, "version set_at set_by_name reason policy")
        }
        PolicyCommand::Reset { workspace_id } => {
            let workspace = operator.id(&workspace_id).await?;
            let default = operator.policy_version(workspace, 0).await?;
            set(operator, workspace, &default.policy.to_string(), false).await?
        }
    })
}

/// Sets a policy, unless it is a dry run, and says what that changes.
async fn set(
    operator: &Operator,
    workspace: WorkspaceId,
    policy: &str,
    dry_run: bool,
) -> Result<Output> {
    // Before it holds: afterwards nothing would differ.
    let change = operator.preview_policy(workspace, policy).await?;
    let row = match dry_run {
        true => operator.policy(workspace).await?,
        false => operator.set_policy(workspace, policy).await?,
    };
    let mut shown = json!(&row);
    shown["warnings"] = json!(change.warnings);
    shown["changes"] = json!(change.changes);
    Ok(Output::One(shown))
}
