//! `letterbox workflow …`

use std::path::PathBuf;

use clap::Subcommand;
use jiff::Timestamp;
use letterbox_common::ids::{UserId, WorkflowId, WorkspaceId};
use letterbox_operator::{Move, Named, Operator};

use crate::{Failure, Output, export, file};

const COLUMNS: [&str; 4] = ["workflow_id", "name", "state", "owner_id"];

#[derive(Subcommand)]
pub(crate) enum WorkflowCommand {
    /// Create a workflow, as a draft
    Create {
        #[arg(long)]
        workspace: Named<WorkspaceId>,
        /// The user under whose identity it will run; a member who may run workflows
        #[arg(long)]
        owner: Named<UserId>,
        #[arg(long)]
        name: String,
        /// A file with {"form": {...}, "actions": [...]}; - reads standard input
        #[arg(long, value_name = "FILE")]
        definition: PathBuf,
    },
    /// Make a release of the definition and deploy it; ends the form link
    Deploy {
        workflow_id: Named<WorkflowId>,
        /// A new definition; without it, the one that the workflow has
        #[arg(long, value_name = "FILE")]
        definition: Option<PathBuf>,
    },
    /// Take no more submissions; ends the form link
    Pause { workflow_id: Named<WorkflowId> },
    /// Deploy the last release again; ends the form link
    Activate { workflow_id: Named<WorkflowId> },
    /// Return to draft; ends the form link
    Draft { workflow_id: Named<WorkflowId> },
    /// Delete for good; ends the form link. Its runs stay
    Delete { workflow_id: WorkflowId },
    /// Show one workflow with its definition
    Show { workflow_id: Named<WorkflowId> },
    /// Write what was submitted as CSV to standard output, oldest first, a column for each field
    ///
    /// A text that a spreadsheet would take for a formula begins with an apostrophe.
    Export {
        workflow_id: Named<WorkflowId>,
        /// Only what was received since a time, such as 2026-01-31T08:00:00Z
        #[arg(long, value_name = "TIME")]
        since: Option<Timestamp>,
        /// Only what was received before a time
        #[arg(long, value_name = "TIME")]
        until: Option<Timestamp>,
    },
    /// List the workflows of a workspace
    List {
        #[arg(long)]
        workspace: Named<WorkspaceId>,
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
            let (workspace, user) = (operator.id(&workspace).await?, operator.id(&user).await?);
            let creating = operator.create_workflow(workspace, user, &name, &definition);
            return Ok(Output::one(&creating.await?));
        }
        WorkflowCommand::Deploy {
            workflow_id,
            definition,
        } => {
            let definition = definition.map(|file| file::read_text(&file)).transpose()?;
            let workflow = operator.id(&workflow_id).await?;
            let deploying = operator.deploy(workflow, definition.as_deref());
            return Ok(Output::one(&deploying.await?));
        }
        WorkflowCommand::Show { workflow_id } => {
            let workflow = operator.id(&workflow_id).await?;
            return Ok(Output::one(&operator.workflow(workflow).await?));
        }
        WorkflowCommand::List { workspace } => {
            let workflows = operator.workflows(operator.id(&workspace).await?).await?;
            return Ok(Output::many(&workflows, &COLUMNS));
        }
        WorkflowCommand::Export {
            workflow_id,
            since,
            until,
        } => {
            let workflow = operator.id(&workflow_id).await?;
            return export::export(operator, workflow, (since, until)).await;
        }
        WorkflowCommand::Pause { workflow_id } => (workflow_id, Move::Pause),
        WorkflowCommand::Activate { workflow_id } => (workflow_id, Move::Activate),
        WorkflowCommand::Draft { workflow_id } => (workflow_id, Move::Draft),
        WorkflowCommand::Delete { workflow_id } => {
            let deleting = operator.move_workflow(workflow_id, Move::Delete);
            return Ok(Output::one(&deleting.await?));
        }
    };
    let workflow = operator.id(&workflow).await?;
    Ok(Output::one(&operator.move_workflow(workflow, to).await?))
}
