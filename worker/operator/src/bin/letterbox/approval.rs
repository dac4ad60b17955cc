//! `letterbox approval …`

use clap::Subcommand;
use letterbox_common::ids::{ApprovalId, WorkspaceId};

use crate::{Failure, Output, settings::CliSettings};

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
    ///
    /// --by names who decides: an owner or editor of the workspace
    Approve { approval_id: ApprovalId },
    /// Let it not be sent; the run is over
    ///
    /// --by names who decides: an owner or editor of the workspace
    Deny { approval_id: ApprovalId },
}

pub(crate) async fn run(settings: &CliSettings, verb: ApprovalCommand) -> Result<Output, Failure> {
    Ok(match verb {
        ApprovalCommand::List { workspace, limit } => {
            let operator = settings.operator().await?;
            Output::many(&operator.approvals(workspace, limit).await?, &COLUMNS)
        }
        ApprovalCommand::Approve { approval_id } => {
            let (operator, by) = settings.operator_by().await?;
            Output::one(&operator.approve(approval_id, by).await?)
        }
        ApprovalCommand::Deny { approval_id } => {
            let (operator, by) = settings.operator_by().await?;
            Output::one(&operator.deny(approval_id, by).await?)
        }
    })
}
