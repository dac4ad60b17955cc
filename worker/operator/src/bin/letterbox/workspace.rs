//! `letterbox workspace …`

use std::{path::PathBuf, str::FromStr};

use clap::Subcommand;
use letterbox_common::ids::WorkspaceId;
use letterbox_operator::{Named, Operator, Retries};
use serde_json::json;

use crate::{Failure, Output, policy};

#[derive(Subcommand)]
pub(crate) enum WorkspaceCommand {
    /// Create a workspace
    Create {
        #[arg(long)]
        name: String,
        /// Runs that may start in a calendar month (UTC), or 'unlimited'
        #[arg(long, value_name = "N", default_value = "unlimited")]
        run_allowance: RunLimit,
    },
    /// List all workspaces
    List,
    /// Show how many runs may start in a calendar month (UTC) and have started in this one, or set
    /// it
    Allowance {
        workspace_id: Named<WorkspaceId>,
        /// Runs that may start, or 'unlimited'
        #[arg(long, value_name = "N")]
        set: Option<RunLimit>,
    },
    /// Show how often an action is tried, or set it
    Retries {
        workspace_id: Named<WorkspaceId>,
        /// Attempts, the first included
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..=30))]
        attempts: Option<i32>,
        /// Pause before the second attempt, doubled for each further one, up to an hour
        #[arg(long, value_name = "MS",
              value_parser = clap::value_parser!(i32).range(1..=3_600_000))]
        first_pause_milliseconds: Option<i32>,
        /// Back to what workers are set to
        #[arg(long, conflicts_with_all = ["attempts", "first_pause_milliseconds"])]
        default: bool,
    },
    /// Keep what accounts answer, sealed, after their runs have succeeded; or drop it then
    Answers {
        workspace_id: Named<WorkspaceId>,
        /// Keep it
        #[arg(long, required_unless_present = "drop")]
        keep: bool,
        /// Drop it when a run has succeeded, as is the default
        #[arg(long, conflicts_with = "keep")]
        drop: bool,
    },
    /// Let new runs be found by what is submitted to them (run list --field); or take that back for
    /// all runs
    Search {
        workspace_id: Named<WorkspaceId>,
        /// As is the default
        #[arg(long, required_unless_present = "off")]
        on: bool,
        /// Nothing is stored to find them by, and what is stored is deleted
        #[arg(long, conflicts_with = "on")]
        off: bool,
    },
    /// Show what a workspace uses: runs of this month, what was stored today and by which webhooks
    Usage { workspace_id: Named<WorkspaceId> },
    /// Let runs begin no action until they are released: forms go on, nothing is denied
    Hold {
        /// A workspace, or 'all'
        workspace: WorkspaceOrAll,
    },
    /// Let runs that were held begin actions again
    Release {
        /// A workspace, or 'all'
        workspace: WorkspaceOrAll,
    },
    /// Delete a workspace with everything in it, for good: forms, runs, signals, accounts, members
    Delete {
        workspace_id: WorkspaceId,
        /// Its name, so that it is not another one
        #[arg(long)]
        name: String,
    },
    /// Show what actions may do, need approval for, or may not; or set it
    Policy {
        workspace_id: Named<WorkspaceId>,
        /// A file with {"rules": [{"when": {...}, "decision": "allow"|"approve"|"deny"}],
        /// "default": ...}; - reads standard input
        #[arg(long, value_name = "FILE")]
        set: Option<PathBuf>,
        /// Say what would change, and set nothing
        #[arg(long, requires = "set")]
        dry_run: bool,
    },
}

/// A workspace, or 'all'.
#[derive(Debug, Clone)]
pub(crate) struct WorkspaceOrAll(Option<Named<WorkspaceId>>);

impl FromStr for WorkspaceOrAll {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "all" => Ok(Self(None)),
            text => text.parse().map(|workspace| Self(Some(workspace))),
        }
    }
}

/// A number of runs, or 'unlimited'.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RunLimit(Option<u32>);

impl FromStr for RunLimit {
    type Err = &'static str;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "unlimited" => Ok(Self(None)),
            text => text
                .parse()
                .map(|runs| Self(Some(runs)))
                .map_err(|_| "must be a number or 'unlimited'"),
        }
    }
}

pub(crate) async fn run(operator: &Operator, verb: WorkspaceCommand) -> Result<Output, Failure> {
    Ok(match verb {
        WorkspaceCommand::Create {
            name,
            run_allowance,
        } => Output::one(&operator.create_workspace(&name, run_allowance.0).await?),
        WorkspaceCommand::Usage { workspace_id } => {
            let workspace = operator.id(&workspace_id).await?;
            Output::one(&operator.usage(workspace).await?)
        }
        WorkspaceCommand::List => Output::many(
            &operator.workspaces().await?,
            &[
                "workspace_id",
                "name",
                "run_allowance",
                "held_at",
                "created_at",
            ],
        ),
        WorkspaceCommand::Allowance {
            workspace_id,
            set: None,
        } => Output::one(
            &operator
                .allowance(operator.id(&workspace_id).await?)
                .await?,
        ),
        WorkspaceCommand::Allowance {
            workspace_id,
            set: Some(runs),
        } => {
            let workspace = operator.id(&workspace_id).await?;
            Output::one(&operator.set_allowance(workspace, runs.0).await?)
        }
        WorkspaceCommand::Retries {
            workspace_id,
            attempts,
            first_pause_milliseconds,
            default,
        } => {
            let workspace_id = operator.id(&workspace_id).await?;
            let former = operator.retries(workspace_id).await?;
            let wanted = Retries {
                workspace_id,
                attempts: attempts.or(former.attempts).filter(|_| !default),
                first_pause_milliseconds: first_pause_milliseconds
                    .or(former.first_pause_milliseconds)
                    .filter(|_| !default),
            };
            match wanted == former {
                true => Output::one(&former),
                false => Output::one(&operator.set_retries(&wanted).await?),
            }
        }
        WorkspaceCommand::Answers {
            workspace_id, keep, ..
        } => {
            let workspace_id = operator.id(&workspace_id).await?;
            operator.keep_answers(workspace_id, keep).await?;
            Output::one(&json!({ "workspace_id": workspace_id, "keep_answers": keep }))
        }
        WorkspaceCommand::Search {
            workspace_id, on, ..
        } => {
            let workspace_id = operator.id(&workspace_id).await?;
            operator.set_search(workspace_id, on).await?;
            Output::one(&json!({ "workspace_id": workspace_id, "is_searchable": on }))
        }
        WorkspaceCommand::Hold { workspace } => {
            let workspace = operator.id_of(workspace.0.as_ref()).await?;
            let changed = operator.hold(workspace).await?;
            Output::one(&json!({ "workspace_id": workspace, "held": true, "changed": changed }))
        }
        WorkspaceCommand::Release { workspace } => {
            let workspace = operator.id_of(workspace.0.as_ref()).await?;
            let changed = operator.release(workspace).await?;
            Output::one(&json!({ "workspace_id": workspace, "held": false, "changed": changed }))
        }
        WorkspaceCommand::Delete { workspace_id, name } => {
            let rows = operator.delete_workspace(workspace_id, &name).await?;
            Output::one(&json!({ "workspace_id": workspace_id, "deleted_rows": rows }))
        }
        WorkspaceCommand::Policy {
            workspace_id,
            set,
            dry_run,
        } => {
            let workspace = operator.id(&workspace_id).await?;
            policy::show_or_set(operator, workspace, set.as_deref(), dry_run).await?
        }
    })
}
