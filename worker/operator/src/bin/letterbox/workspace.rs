//! `letterbox workspace …`

use clap::Subcommand;
use letterbox_common::ids::{AccountId, WorkspaceId};
use letterbox_operator::{Named, Operator, WorkspaceSettings, or_unlimited};
use serde_json::json;

use crate::{Output, Result};

const COLUMNS: &str = "workspace_id name run_allowance held_at created_at";

#[derive(Subcommand)]
pub(crate) enum WorkspaceCommand {
    /// Create a workspace
    Create {
        #[arg(long)]
        name: String,
        /// Runs that may start in a calendar month (UTC), or 'unlimited'
        #[arg(long, value_name = "N", default_value = "unlimited", value_parser = or_unlimited)]
        run_allowance: Limit,
    },
    /// List all workspaces
    List,
    /// Write a workspace as documents for 'letterbox apply'; no secret is in them
    Export { workspace_id: Named<WorkspaceId> },
    /// Show the settings of a workspace, or change those that are given
    Settings {
        workspace_id: Named<WorkspaceId>,
        #[command(flatten)]
        settings: WorkspaceSettings,
        /// Tell the same by a message {"text": "..."} to the base URL of this connected account,
        /// or of none
        #[arg(long, value_name = "ACCOUNT|none", value_parser = named_or::<AccountId>("none"))]
        notify_account: Option<AccountOrNone>,
    },
    /// Show the usage of a workspace: runs of this month, bytes stored today, and by which webhooks
    Usage { workspace_id: Named<WorkspaceId> },
    /// Keep runs from beginning actions until they are released; forms and webhooks go on
    Hold {
        /// A workspace, or 'all'
        #[arg(value_parser = named_or::<WorkspaceId>("all"))]
        workspace: WorkspaceOrAll,
    },
    /// Let held runs begin actions again
    Release {
        /// A workspace, or 'all'
        #[arg(value_parser = named_or::<WorkspaceId>("all"))]
        workspace: WorkspaceOrAll,
    },
    /// Delete a workspace with everything in it, for good: forms, runs, signals, accounts, members
    Delete {
        workspace_id: WorkspaceId,
        /// Its name, as a safeguard
        #[arg(long)]
        name: String,
    },
}

/// Runs that may start in a month; `None` is unlimited.
type Limit = Option<u32>;

/// A workspace; `None` is all.
type WorkspaceOrAll = Option<Named<WorkspaceId>>;

/// An account; `None` is none.
type AccountOrNone = Option<Named<AccountId>>;

/// Parses what names a thing; this word is `None`.
fn named_or<I>(word: &str) -> impl Fn(&str) -> Result<Option<Named<I>>, &'static str> + Clone {
    move |text| match text == word {
        true => Ok(None),
        false => text.parse().map(Some),
    }
}

pub(crate) async fn run(operator: &Operator, verb: WorkspaceCommand) -> Result<Output> {
    Ok(match verb {
        WorkspaceCommand::Create {
            name,
            run_allowance,
        } => Output::one(&operator.create_workspace(&name, run_allowance).await?),
        WorkspaceCommand::Usage { workspace_id } => {
            Output::one(&operator.usage(operator.id(&workspace_id).await?).await?)
        }
        WorkspaceCommand::Export { workspace_id } => {
            let workspace = operator.id(&workspace_id).await?;
            let documents = operator.export_workspace(workspace).await?;
            Output::Json(json!(&documents))
        }
        WorkspaceCommand::List => Output::many(&operator.workspaces().await?, COLUMNS),
        WorkspaceCommand::Settings {
            workspace_id,
            settings,
            notify_account,
        } => {
            let workspace = operator.id(&workspace_id).await?;
            let account = match &notify_account {
                Some(account) => Some(operator.id_in(Some(workspace), account.as_ref()).await?),
                None => None,
            };
            // Where one of them is refused, nothing is changed.
            let settings = operator.set_settings(workspace, &settings).await?;
            if let Some(account) = account {
                operator.notify(workspace, None, Some(account)).await?;
            }
            let mut shown = json!(&settings);
            shown["workspace_id"] = json!(workspace);
            shown["notify_account"] = json!(operator.notices(workspace).await?.account_id);
            Output::One(shown)
        }
        WorkspaceCommand::Hold { workspace } => {
            let workspace = operator.id_in(None, workspace.as_ref()).await?;
            let changed = operator.hold(workspace).await?;
            Output::one(&json!({ "workspace_id": workspace, "held": true, "changed": changed }))
        }
        WorkspaceCommand::Release { workspace } => {
            let workspace = operator.id_in(None, workspace.as_ref()).await?;
            let changed = operator.release(workspace).await?;
            Output::one(&json!({ "workspace_id": workspace, "held": false, "changed": changed }))
        }
        WorkspaceCommand::Delete { workspace_id, name } => {
            let rows = operator.delete_workspace(workspace_id, &name).await?;
            Output::one(&json!({ "workspace_id": workspace_id, "deleted_rows": rows }))
        }
    })
}
