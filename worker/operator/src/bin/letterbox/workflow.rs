//! `letterbox workflow …`

use std::path::PathBuf;

use clap::{Args, Subcommand};
use jiff::Timestamp;
use letterbox_common::ids::{UserId, WorkflowId};
use letterbox_operator::{
    Closing, Losing, Move, Named, Operator, OperatorError, Reason, WorkflowDetail, moment,
};
use letterbox_workflow::Definition;
use serde_json::json;

use crate::{
    Failure, Output, Result, confirm::confirm, export, file, form_link, in_workspace::InWorkspace,
    output, settings::CliSettings,
};

const COLUMNS: &str = "workflow_id name state owner_id";

#[derive(Subcommand)]
pub(crate) enum WorkflowCommand {
    /// Create a workflow, as a draft
    Create {
        #[command(flatten)]
        workspace: InWorkspace,
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
    Deploy(Deployment),
    /// Check a definition, without a database: its mistakes and warnings
    Check {
        /// A file with {"form": {...}, "actions": [...]}; - reads standard input
        definition: PathBuf,
    },
    /// Give a workflow to another member, under whose identity it runs from then on; ends the form
    /// link
    Transfer {
        workflow_id: Named<WorkflowId>,
        /// The new owner; a member who may run workflows
        #[arg(long, value_name = "USER")]
        to: Named<UserId>,
        #[command(flatten)]
        said: Said,
    },
    /// Take no more submissions; ends the form link
    Pause(Moved),
    /// Deploy the last release again; ends the form link
    Activate(Moved),
    /// Return to draft; ends the form link
    Draft(Moved),
    /// Delete for good; ends the form link. Its runs stay
    Delete {
        workflow_id: WorkflowId,
        #[command(flatten)]
        said: Said,
    },
    /// Show one workflow with its definition
    Show { workflow_id: Named<WorkflowId> },
    /// Write submissions as CSV to standard output, oldest first, with a column for each field
    ///
    /// For a spreadsheet: text that it would take for a formula is preceded by an apostrophe,
    /// control characters but line breaks and tabs are replaced by U+FFFD. With --json one array,
    /// with the values exactly as they were submitted.
    Export {
        workflow_id: Named<WorkflowId>,
        /// Only submissions received since a time, such as 2026-01-31T08:00:00Z, yesterday or 1h
        #[arg(long, value_name = "TIME", value_parser = moment)]
        since: Option<Timestamp>,
        /// Only submissions received before a time
        #[arg(long, value_name = "TIME", value_parser = moment)]
        until: Option<Timestamp>,
    },
    /// List the workflows of a workspace
    List(InWorkspace),
}

/// The arguments of `workflow deploy`.
#[derive(Args)]
pub(crate) struct Deployment {
    workflow_id: Named<WorkflowId>,
    /// A new definition; without it, the workflow's own is used
    #[arg(long, value_name = "FILE")]
    definition: Option<PathBuf>,
    /// Create the new form link in the same step; its token is shown this once
    #[arg(long)]
    new_link: bool,
    #[command(flatten)]
    closing: Closing,
    /// Only say what it would do: links that end, what changes, warnings
    #[arg(long, conflicts_with = "new_link")]
    dry_run: bool,
    #[command(flatten)]
    said: Said,
}

/// Consent that is given beforehand.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Said {
    /// Do not ask for confirmation before a form link ends
    #[arg(long)]
    yes: bool,
}

/// A workflow that is moved.
#[derive(Debug, Clone, Args)]
pub(crate) struct Moved {
    workflow_id: Named<WorkflowId>,
    #[command(flatten)]
    said: Said,
}

pub(crate) async fn run(settings: &CliSettings, verb: WorkflowCommand) -> Result<Output> {
    if let WorkflowCommand::Check { definition } = &verb {
        let definition = Definition::check(&file::read_text(definition)?)
            .map_err(|problems| OperatorError::from(Reason::InvalidDefinition(problems)))?;
        return Ok(Output::One(json!({ "warnings": definition.warnings() })));
    }
    let operator = &settings.operator().await?;
    Ok(match verb {
        WorkflowCommand::Create {
            workspace,
            owner: user,
            name,
            definition,
        } => {
            let definition = file::read_text(&definition)?;
            let workspace = workspace.id(operator).await?;
            let user = operator.id(&user).await?;
            let creating = operator.create_workflow(workspace, user, &name, &definition);
            Output::one(&creating.await?)
        }
        WorkflowCommand::Deploy(new) => deploy(settings, operator, new).await?,
        WorkflowCommand::Check { .. } => Output::Nothing,
        WorkflowCommand::Transfer {
            workflow_id,
            to,
            said,
        } => {
            let workflow = operator.id(&workflow_id).await?;
            let to = operator.id(&to).await?;
            confirm(operator, Losing::Workflow(workflow), said.yes).await?;
            Output::one(&operator.transfer_workflow(workflow, to).await?)
        }
        WorkflowCommand::Show { workflow_id } => {
            let workflow = operator.workflow(operator.id(&workflow_id).await?).await?;
            Output::text(shown(&workflow), &workflow)
        }
        WorkflowCommand::List(workspace) => {
            let workflows = operator.workflows(workspace.id(operator).await?).await?;
            Output::many(&workflows, COLUMNS)
        }
        WorkflowCommand::Export {
            workflow_id,
            since,
            until,
        } => {
            let workflow = operator.id(&workflow_id).await?;
            export::export(operator, workflow, (since, until), settings.json).await?
        }
        WorkflowCommand::Pause(moved) => moved.to(operator, Move::Pause).await?,
        WorkflowCommand::Activate(moved) => moved.to(operator, Move::Activate).await?,
        WorkflowCommand::Draft(moved) => moved.to(operator, Move::Draft).await?,
        WorkflowCommand::Delete { workflow_id, said } => {
            move_to(operator, workflow_id, Move::Delete, said).await?
        }
    })
}

impl Moved {
    async fn to(self, operator: &Operator, to: Move) -> Result<Output> {
        let workflow = operator.id(&self.workflow_id).await?;
        move_to(operator, workflow, to, self.said).await
    }
}

/// A workflow, and its definition as one can edit it.
fn shown(workflow: &WorkflowDetail) -> String {
    let mut members = json!(workflow);
    let definition = members
        .as_object_mut()
        .and_then(|all| all.remove("definition"));
    let definition = definition.unwrap_or_default();
    format!("{}\n\n{definition:#}", output::members(&members))
}

async fn move_to(
    operator: &Operator,
    workflow: WorkflowId,
    to: Move,
    said: Said,
) -> Result<Output> {
    confirm(operator, Losing::Workflow(workflow), said.yes).await?;
    Ok(Output::one(&operator.move_workflow(workflow, to).await?))
}

async fn deploy(settings: &CliSettings, operator: &Operator, new: Deployment) -> Result<Output> {
    if new.closing != Closing::default() && !new.new_link {
        return Err(Failure::NoNewLink);
    }
    let definition = new.definition.map(|file| file::read_text(&file));
    let definition = definition.transpose()?;
    let workflow = operator.id(&new.workflow_id).await?;
    if new.dry_run {
        let planning = operator.plan_deploy(workflow, definition.as_deref());
        return Ok(Output::one(&planning.await?));
    }
    confirm(operator, Losing::Workflow(workflow), new.said.yes).await?;
    let closing = new.new_link.then_some(new.closing);
    let deploying = operator.deploy_with(workflow, definition.as_deref(), closing);
    let (deployed, link) = deploying.await?;
    let mut shown = json!(deployed);
    if let Some(link) = link {
        shown["form_link"] = form_link::shown(settings, &link);
    }
    Ok(Output::One(shown))
}
