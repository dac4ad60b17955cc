//! `letterbox form-link …`

use clap::Subcommand;
use letterbox_common::ids::WorkflowId;
use letterbox_operator::{Closing, Losing, Named, NewFormLink};
use serde_json::{Value, json};

use crate::{Output, Result, confirm::confirm, settings::CliSettings};

#[derive(Subcommand)]
pub(crate) enum FormLinkCommand {
    /// Create a form link for a deployed workflow; its token is shown this once, and the link
    /// before is dead
    Create {
        workflow_id: Named<WorkflowId>,
        #[command(flatten)]
        closing: Closing,
        /// Do not ask before the former link ends
        #[arg(long)]
        yes: bool,
    },
    /// End the form link of a workflow, which stays deployed: for a link that has leaked
    End {
        workflow_id: Named<WorkflowId>,
        /// Do not ask for confirmation
        #[arg(long)]
        yes: bool,
    },
}

pub(crate) async fn run(settings: &CliSettings, verb: FormLinkCommand) -> Result<Output> {
    let operator = settings.operator().await?;
    match verb {
        FormLinkCommand::Create {
            workflow_id,
            closing,
            yes,
        } => {
            let workflow = operator.id(&workflow_id).await?;
            confirm(&operator, Losing::Workflow(workflow), yes).await?;
            let creating = operator.create_form_link(workflow, closing);
            Ok(Output::one(&shown(settings, &creating.await?)))
        }
        FormLinkCommand::End { workflow_id, yes } => {
            let workflow = operator.id(&workflow_id).await?;
            confirm(&operator, Losing::Workflow(workflow), yes).await?;
            Ok(Output::one(&operator.end_form_link(workflow).await?))
        }
    }
}

/// A new link, at the only time that its token is shown.
pub(crate) fn shown(settings: &CliSettings, made: &NewFormLink) -> Value {
    json!({
        "form_link_id": made.link,
        "workspace_id": made.workspace,
        "workflow_id": made.workflow,
        "token": made.token.expose(),
        "url": settings.addresses.form_url(made.token.expose()),
    })
}
