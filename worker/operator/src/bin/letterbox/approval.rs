//! `letterbox approval …`

use clap::Subcommand;
use letterbox_common::ids::{ApprovalId, UserId, WorkspaceId};
use letterbox_operator::Operator;

use crate::{Failure, Output};

const COLUMNS: [&str; 7] = [
    "approval_id",
    "run_id",
    "action_id",
    "untrusted",
    "steered_by",
    "request",
    "expires_at",
];

#[derive(Subcommand)]
pub(crate) enum ApprovalCommand {
    /// List what waits for an answer, with exactly what would be sent
    List {
        #[arg(long)]
        workspace: WorkspaceId,
        #[arg(long, value_name = "N", default_value_t = 100)]
        limit: u32,
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

pub(crate) async fn run(operator: &Operator, verb: ApprovalCommand) -> Result<Output, Failure> {
    Ok(match verb {
        ApprovalCommand::List { workspace, limit } => {
            Output::many(&operator.approvals(workspace, limit).await?, &COLUMNS)
        }
        ApprovalCommand::Approve { approval_id, by } => {
            Output::one(&operator.approve(approval_id, by).await?)
        }
        ApprovalCommand::Deny { approval_id, by } => {
            Output::one(&operator.deny(approval_id, by).await?)
        }
    })
}
