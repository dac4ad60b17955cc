//! `letterbox approval …`

use clap::Subcommand;
use letterbox_common::ids::{ApprovalId, UserId, WorkspaceId};
use letterbox_worker::owner::Owner;

use crate::{Failure, Output};

const COLUMNS: [&str; 6] = [
    "approval_id",
    "run_id",
    "action_id",
    "untrusted",
    "request",
    "expires_at",
];

#[derive(Subcommand)]
pub enum Verb {
    /// List what waits for an answer, with exactly what would be sent
    List {
        #[arg(long)]
        workspace: WorkspaceId,
    },
    /// Let a request be sent, as it is listed
    Approve {
        approval_id: ApprovalId,
        /// Who decides: an owner or editor of the workspace
        #[arg(long, value_name = "USER")]
        by: UserId,
    },
    /// Let it not be sent; the run is over
    Deny {
        approval_id: ApprovalId,
        /// Who decides: an owner or editor of the workspace
        #[arg(long, value_name = "USER")]
        by: UserId,
    },
}

pub async fn carry_out(owner: &Owner, verb: Verb) -> Result<Output, Failure> {
    Ok(match verb {
        Verb::List { workspace } => Output::many(&owner.approvals(workspace).await?, &COLUMNS),
        Verb::Approve { approval_id, by } => {
            Output::one(&owner.decide(approval_id, by, true).await?)
        }
        Verb::Deny { approval_id, by } => Output::one(&owner.decide(approval_id, by, false).await?),
    })
}
