//! `letterbox workspace …`

use std::{path::PathBuf, str::FromStr};

use clap::Subcommand;
use letterbox_common::ids::WorkspaceId;
use letterbox_worker::owner::Owner;

use crate::{Failure, Output, file};

#[derive(Subcommand)]
pub enum Verb {
    /// Create a workspace
    Create {
        #[arg(long)]
        name: String,
        /// Runs that may start in a calendar month (UTC), or 'unlimited'
        #[arg(long, value_name = "N", default_value = "unlimited")]
        run_allowance: Runs,
    },
    /// List all workspaces
    List,
    /// Show how many runs may start in a calendar month (UTC) and have started in this one, or set
    /// it
    Allowance {
        workspace_id: WorkspaceId,
        /// Runs that may start, or 'unlimited'
        #[arg(long, value_name = "N")]
        set: Option<Runs>,
    },
    /// Show what actions may do, need approval for, or may not; or set it
    Policy {
        workspace_id: WorkspaceId,
        /// A file with {"rules": [{"when": {...}, "decision": "allow"|"approve"|"deny"}],
        /// "default": ...}; - reads standard input
        #[arg(long, value_name = "FILE")]
        set: Option<PathBuf>,
    },
}

/// A number of runs.
#[derive(Debug, Clone, Copy)]
pub struct Runs(Option<u32>);

impl FromStr for Runs {
    type Err = &'static str;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "unlimited" => Ok(Self(None)),
            text => text
                .parse()
                .map(|runs| Self(Some(runs)))
                .map_err(|_| "neither a number nor 'unlimited'"),
        }
    }
}

pub async fn carry_out(owner: &Owner, verb: Verb) -> Result<Output, Failure> {
    Ok(match verb {
        Verb::Create {
            name,
            run_allowance,
        } => Output::one(&owner.create_workspace(&name, run_allowance.0).await?),
        Verb::List => Output::many(
            &owner.workspaces().await?,
            &["workspace_id", "name", "run_allowance", "created_at"],
        ),
        Verb::Allowance {
            workspace_id,
            set: None,
        } => Output::one(&owner.allowance(workspace_id).await?),
        Verb::Allowance {
            workspace_id,
            set: Some(runs),
        } => Output::one(&owner.set_allowance(workspace_id, runs.0).await?),
        Verb::Policy {
            workspace_id,
            set: None,
        } => Output::one(&owner.policy(workspace_id).await?),
        Verb::Policy {
            workspace_id,
            set: Some(file),
        } => Output::one(
            &owner
                .set_policy(workspace_id, &file::read_text(&file)?)
                .await?,
        ),
    })
}
