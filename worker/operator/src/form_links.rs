//! Orders about form links.

use letterbox_common::{
    form::FormToken,
    ids::{FormLinkId, WorkflowId, WorkspaceId},
};

use crate::{Operator, OperatorError, Reason, store};

/// A form link and its token, at the only time that it is shown.
#[derive(Debug, Clone)]
pub struct NewFormLink {
    /// The workspace of the workflow.
    pub workspace: WorkspaceId,
    /// The workflow that its form starts.
    pub workflow: WorkflowId,
    /// Names the link without being its token.
    pub link: FormLinkId,
    /// The only credential of the link.
    pub token: FormToken,
}

impl Operator {
    /// Creates a form link. The one before is dead from the same moment.
    ///
    /// # Errors
    /// When the workflow is not deployed, or its owner may not run it.
    pub async fn create_form_link(
        &self,
        workflow: WorkflowId,
    ) -> Result<NewFormLink, OperatorError> {
        let token = FormToken::generate()?;
        let (link, hash) = (FormLinkId::generate(), token.hash());
        let creating = store::create_form_link(&self.database, workflow, link, hash.as_bytes());
        let workspace = creating
            .await
            .map_err(|error| match error.constraint.as_deref() {
                Some("owner_may_run") => Reason::OwnerCannotRun.into(),
                Some("workflow_is_deployed") => Reason::NotDeployed.into(),
                _ => OperatorError::from(error),
            })?;
        let workspace = workspace.ok_or(Reason::NotFound("workflow"))?;
        Ok(NewFormLink {
            workspace,
            workflow,
            link,
            token,
        })
    }
}
