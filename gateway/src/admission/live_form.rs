//! What a live token leads to.

use letterbox_common::{
    form::Form,
    ids::{ReleaseId, WorkflowId, WorkspaceId},
};

/// The release that a live form belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LiveRelease {
    pub(crate) workspace: WorkspaceId,
    pub(crate) workflow: WorkflowId,
    pub(crate) release: ReleaseId,
}

/// The form behind a live token.
#[derive(Debug, Clone)]
pub(crate) struct LiveForm {
    pub(crate) release: LiveRelease,
    /// JSON text, as the public reads it.
    pub(crate) definition: String,
    /// Where its submissions need a proof of work: how many seconds filling it in takes at least.
    pub(crate) least_seconds: Option<i16>,
}

/// The stored definition is not a form: nobody deployed it through Letterbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InvalidDefinition;

impl LiveForm {
    /// The definition, to validate a payload against.
    ///
    /// # Errors
    /// When what is stored is not a form. Logged.
    pub(crate) fn parse(&self) -> Result<Form, InvalidDefinition> {
        serde_json::from_str(&self.definition).map_err(|error| {
            let (workflow_id, release_id) = (self.release.workflow, self.release.release);
            tracing::error!(%workflow_id, %release_id, %error, "a release's form can't be parsed");
            InvalidDefinition
        })
    }
}
