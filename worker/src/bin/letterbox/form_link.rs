//! `letterbox form-link …`

use clap::Subcommand;
use letterbox_common::ids::WorkflowId;
use serde_json::json;

use crate::{Failure, Output, Settings};

#[derive(Subcommand)]
pub enum Verb {
    /// Create a form link for a deployed workflow; its token is shown this once, and the link
    /// before is dead
    Create { workflow_id: WorkflowId },
}

pub async fn carry_out(settings: &Settings, verb: Verb) -> Result<Output, Failure> {
    let Verb::Create { workflow_id } = verb;
    let made = settings
        .owner()
        .await?
        .create_form_link(workflow_id)
        .await?;
    let app = settings
        .app_url
        .as_ref()
        .unwrap_or(&settings.base_url)
        .as_str()
        .trim_end_matches('/');
    Ok(Output::one(&json!({
        "form_link_id": made.link,
        "workspace_id": made.workspace,
        "workflow_id": made.workflow,
        "token": made.token.expose(),
        "url": format!("{app}/forms?token={}", made.token.expose()),
    })))
}
