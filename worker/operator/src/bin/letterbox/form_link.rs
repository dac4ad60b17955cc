//! `letterbox form-link …`

use clap::Subcommand;
use letterbox_common::ids::WorkflowId;
use letterbox_operator::Named;
use serde_json::json;

use crate::{Failure, Output, settings::CliSettings};

#[derive(Subcommand)]
pub(crate) enum FormLinkCommand {
    /// Create a form link for a deployed workflow; its token is shown this once, and the link
    /// before is dead
    Create { workflow_id: Named<WorkflowId> },
}

pub(crate) async fn run(settings: &CliSettings, verb: FormLinkCommand) -> Result<Output, Failure> {
    let FormLinkCommand::Create { workflow_id } = verb;
    let operator = settings.operator().await?;
    let workflow = operator.id(&workflow_id).await?;
    let made = operator.create_form_link(workflow).await?;
    Ok(Output::one(&json!({
        "form_link_id": made.link,
        "workspace_id": made.workspace,
        "workflow_id": made.workflow,
        "token": made.token.expose(),
        "url": settings.form_url(made.token.expose()),
    })))
}
