//! The live form behind a token.

use letterbox_common::{
    form::Form,
    ids::{ReleaseId, WorkflowId, WorkspaceId},
};
use letterbox_database::FromRow;

/// The release of a live form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromRow)]
pub(crate) struct LiveRelease {
    pub(crate) workspace: WorkspaceId,
    pub(crate) workflow: WorkflowId,
    pub(crate) release: ReleaseId,
}

/// The form behind a live token.
#[derive(Debug, Clone, FromRow)]
pub(crate) struct LiveForm {
    #[row(flatten)]
    pub(crate) release: LiveRelease,
    /// The definition, as the JSON text that the public reads.
    pub(crate) definition: String,
    /// The minimum time to fill it in, if its submissions need a proof of work.
    pub(crate) least_seconds: Option<i16>,
}

/// The stored definition is not a form, so it was not deployed through Letterbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InvalidDefinition;

impl LiveForm {
    /// Parses the definition, for the validation of payloads.
    pub(crate) fn parse(&self) -> Result<Form, InvalidDefinition> {
        serde_json::from_str(&self.definition).map_err(|error| {
            let workflow_id = self.release.workflow;
            let release_id = self.release.release;
            tracing::error!(%workflow_id, %release_id, %error, "a release's form can't be parsed");
            InvalidDefinition
        })
    }
}
