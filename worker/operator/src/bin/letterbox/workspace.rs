//! `letterbox workspace …`

use std::{path::PathBuf, str::FromStr};

use clap::{Args, Subcommand};
use letterbox_common::ids::{AccountId, WorkspaceId};
use letterbox_operator::{Named, Operator, Retries};
use serde_json::json;

use crate::{Failure, Output, policy};

const COLUMNS: [&str; 5] = [
    "workspace_id",
    "name",
    "run_allowance",
    "held_at",
    "created_at",
];

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
    /// Write a workspace as documents for 'letterbox apply'; no secret is in them
    Export { workspace_id: Named<WorkspaceId> },
    /// Show or set how many runs may start in a calendar month (UTC)
    Allowance {
        workspace_id: Named<WorkspaceId>,
        /// Runs that may start, or 'unlimited'
        #[arg(long, value_name = "N")]
        set: Option<RunLimit>,
    },
    /// Show or set how often an action is tried
    Retries(RetryArguments),
    /// Keep the responses of accounts, sealed, after their runs have succeeded; or drop them then
    Answers {
        workspace_id: Named<WorkspaceId>,
        /// Keep them
        #[arg(long, required_unless_present = "drop")]
        keep: bool,
        /// Drop them when a run has succeeded (the default)
        #[arg(long, conflicts_with = "keep")]
        drop: bool,
    },
    /// Let runs be found by submitted values (run list --field), from now on; or turn that off and
    /// delete what is stored for it
    Search {
        workspace_id: Named<WorkspaceId>,
        /// Index new submissions (the default)
        #[arg(long, required_unless_present = "off")]
        on: bool,
        /// Index nothing, and delete what was indexed
        #[arg(long, conflicts_with = "on")]
        off: bool,
    },
    /// Show the usage of a workspace: runs of this month, bytes stored today, and by which webhooks
    Usage { workspace_id: Named<WorkspaceId> },
    /// Keep runs from beginning actions until they are released; forms and webhooks go on
    Hold {
        /// A workspace, or 'all'
        workspace: WorkspaceOrAll,
    },
    /// Let held runs begin actions again
    Release {
        /// A workspace, or 'all'
        workspace: WorkspaceOrAll,
    },
    /// Show or set who is told, within a minute, what waits for an answer and what went wrong
    Notify {
        workspace_id: Named<WorkspaceId>,
        /// E-mail to the owners and editors; needs LETTERBOX_SMTP_URL in the workers
        #[arg(long, value_name = "on|off", value_parser = on_or_off)]
        email: Option<bool>,
        /// A message {"text": "..."} to the base URL of this connected account
        #[arg(long)]
        account: Option<Named<AccountId>>,
        /// No message through an account any more
        #[arg(long, conflicts_with = "account")]
        no_account: bool,
    },
    /// Delete a workspace with everything in it, for good: forms, runs, signals, accounts, members
    Delete {
        workspace_id: WorkspaceId,
        /// Its name, as a safeguard
        #[arg(long)]
        name: String,
    },
    /// Show or set the policy: what actions may do, need approval for, or may not do
    Policy {
        workspace_id: Named<WorkspaceId>,
        /// A file with {"rules": [{"when": {...}, "decision": "allow"|"approve"|"deny"}],
        /// "default": ...}; - reads standard input
        #[arg(long, value_name = "FILE")]
        set: Option<PathBuf>,
        /// Show what would change, without setting it
        #[arg(long, requires = "set")]
        dry_run: bool,
    },
}

/// The arguments of `workspace retries`.
#[derive(Args)]
pub(crate) struct RetryArguments {
    workspace_id: Named<WorkspaceId>,
    /// Attempts, the first included
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..=30))]
    attempts: Option<i32>,
    /// Pause before the second attempt, doubled for each further one, up to an hour
    #[arg(long, value_name = "MS",
          value_parser = clap::value_parser!(i32).range(1..=3_600_000))]
    first_pause_milliseconds: Option<i32>,
    /// Back to the setting of the workers
    #[arg(long, conflicts_with_all = ["attempts", "first_pause_milliseconds"])]
    default: bool,
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

fn on_or_off(text: &str) -> Result<bool, &'static str> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("must be 'on' or 'off'"),
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
        WorkspaceCommand::Export { workspace_id } => {
            let workspace = operator.id(&workspace_id).await?;
            let documents = operator.export_workspace(workspace).await?;
            Output::Json(crate::output::value(&documents))
        }
        WorkspaceCommand::List => Output::many(&operator.workspaces().await?, &COLUMNS),
        WorkspaceCommand::Allowance { workspace_id, set } => {
            let workspace = operator.id(&workspace_id).await?;
            Output::one(&match set {
                Some(runs) => operator.set_allowance(workspace, runs.0).await?,
                None => operator.allowance(workspace).await?,
            })
        }
        WorkspaceCommand::Notify {
            workspace_id,
            email,
            account,
            no_account,
        } => {
            let workspace = operator.id(&workspace_id).await?;
            if let Some(is_on) = email {
                operator.notify_by_email(workspace, is_on).await?;
            }
            if let Some(account) = account {
                let account = operator.id(&account).await?;
                operator.notify_through(workspace, Some(account)).await?;
            }
            if no_account {
                operator.notify_through(workspace, None).await?;
            }
            Output::one(&operator.notices(workspace).await?)
        }
        WorkspaceCommand::Retries(arguments) => retries(operator, arguments).await?,
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

/// Sets what is given; shows the rest.
async fn retries(operator: &Operator, given: RetryArguments) -> Result<Output, Failure> {
    let workspace_id = operator.id(&given.workspace_id).await?;
    let former = operator.retries(workspace_id).await?;
    let attempts = given.attempts.or(former.attempts);
    let first_pause = given.first_pause_milliseconds;
    let first_pause = first_pause.or(former.first_pause_milliseconds);
    let wanted = Retries {
        workspace_id,
        attempts: attempts.filter(|_| !given.default),
        first_pause_milliseconds: first_pause.filter(|_| !given.default),
    };
    // Nothing is written, and so nothing is audited, unless something changes.
    if wanted == former {
        return Ok(Output::one(&former));
    }
    Ok(Output::one(&operator.set_retries(&wanted).await?))
}
