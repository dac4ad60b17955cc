//! `letterbox workflow …`

use std::path::PathBuf;

use clap::Subcommand;
use letterbox_common::ids::{UserId, WorkflowId, WorkspaceId};
use letterbox_operator::{Move, Operator};

use crate::{Failure, Output, file};

const COLUMNS: [&str; 4] = ["workflow_id", "name", "state", "owner_id"];

#[derive(Subcommand)]
pub(crate) enum WorkflowCommand {
    /// Create a workflow, as a draft
    Create {
        #[arg(long)]
        workspace: WorkspaceId,
        /// The user under whose identity it will run; a member who may run workflows
        #[arg(long)]
        owner: UserId,
        #[arg(long)]
        name: String,
        /// A file with {"form": {...}, "actions": [...]}; - reads standard input
        #[arg(long, value_name = "FILE")]
        definition: PathBuf,
    },
    /// Make a release of the definition and deploy it; ends the form link
    Deploy {
        workflow_id: WorkflowId,
        /// A new definition; without it, the one that the workflow has
        #[arg(long, value_name = "FILE")]
        definition: Option<PathBuf>,
    },
    /// Take no more submissions; ends the form link
    Pause { workflow_id: WorkflowId },
    /// Deploy the last release again; ends the form link
    Activate { workflow_id: WorkflowId },
    /// Return to draft; ends the form link
    Draft { workflow_id: WorkflowId },
    /// Delete for good; ends the form link. Its runs stay
    Delete { workflow_id: WorkflowId },
    /// Show one workflow with its definition
    Show { workflow_id: WorkflowId },
    /// List the workflows of a workspace
    List {
        #[arg(long)]
        workspace: WorkspaceId,
    },
}

pub(crate) async fn run(operator: &Operator, verb: WorkflowCommand) -> Result<Output, Failure> {
    let (workflow, to) = match verb {
        WorkflowCommand::Create {
            workspace,
            owner: user,
            name,
            definition,
        } => {
            let definition = file::read_text(&definition)?;
            return Ok(Output::one(
                &operator
                    .create_workflow(workspace, user, &name, &definition)
                    .await?,
            ));
        }
        WorkflowCommand::Deploy {
            workflow_id,
            definition,
        } => {
            let definition = definition.map(|file| file::read_text(&file)).transpose()?;
            return Ok(Output::one(
                &operator.deploy(workflow_id, definition.as_deref()).await?,
            ));
        }
        WorkflowCommand::Show { workflow_id } => {
            return Ok(Output::one(&operator.workflow(workflow_id).await?));
        }
        WorkflowCommand::List { workspace } => {
            return Ok(Output::many(
                &operator.workflows(workspace).await?,
                &COLUMNS,
            ));
        }
        WorkflowCommand::Pause { workflow_id } => (workflow_id, Move::Pause),
        WorkflowCommand::Activate { workflow_id } => (workflow_id, Move::Activate),
        WorkflowCommand::Draft { workflow_id } => (workflow_id, Move::Draft),
        WorkflowCommand::Delete { workflow_id } => (workflow_id, Move::Delete),
    };
    Ok(Output::one(&operator.move_workflow(workflow, to).await?))
}
