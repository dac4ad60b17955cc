//! `letterbox run …`

use clap::Subcommand;
use letterbox_common::ids::{RunId, WorkflowId, WorkspaceId};
use letterbox_operator::Operator;

use crate::{Failure, Output};

const COLUMNS: [&str; 5] = [
    "run_id",
    "received_at",
    "workflow_id",
    "state",
    "refused_reason",
];

#[derive(Subcommand)]
pub(crate) enum RunCommand {
    /// List the newest runs of a workspace
    List {
        #[arg(long)]
        workspace: WorkspaceId,
        /// Only those of one workflow
        #[arg(long)]
        workflow: Option<WorkflowId>,
        /// Most runs to list
        #[arg(long, default_value_t = 100, value_parser =
            clap::value_parser!(u32).range(1..=1_000_000))]
        limit: u32,
    },
    /// Show one run with its input, which a stranger wrote
    Show { run_id: RunId },
    /// Forget what was submitted to a run that is over, and what it has sent
    Erase { run_id: RunId },
}

pub(crate) async fn run(operator: &Operator, verb: RunCommand) -> Result<Output, Failure> {
    Ok(match verb {
        RunCommand::List {
            workspace,
            workflow,
            limit,
        } => Output::many(&operator.runs(workspace, workflow, limit).await?, &COLUMNS),
        RunCommand::Erase { run_id } => Output::one(&operator.erase_run(run_id).await?),
        RunCommand::Show { run_id } => Output::one(&operator.run(run_id).await?),
    })
}
