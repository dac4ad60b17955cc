//! The live form behind a token: its release, and what that says.

use std::sync::Arc;

use letterbox_common::{
    form::{Form, Page},
    ids::{ReleaseId, WorkflowId, WorkspaceId},
};
use letterbox_database::FromRow;

/// The release of a live form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, FromRow)]
pub(crate) struct LiveRelease {
    pub(crate) workspace: WorkspaceId,
    pub(crate) workflow: WorkflowId,
    pub(crate) release: ReleaseId,
}

/// What a release says of its form.
#[derive(Debug, Default)]
pub(crate) struct Definition {
    /// The form, as the JSON text that the public reads.
    pub(crate) json: String,
    /// The form; `None` if the text is none, so it was not deployed through Letterbox.
    pub(crate) form: Option<Form>,
    /// The look of its page; plain if it was not deployed through Letterbox.
    pub(crate) page: Page,
    /// The minimum time to fill it in, in seconds, if its submissions need a proof of work.
    pub(crate) least_seconds: Option<i16>,
}

impl Definition {
    /// Parses the JSON texts of a form and the look of its page.
    pub(crate) fn new(json: String, page: Option<&str>, least_seconds: Option<i16>) -> Self {
        let form = serde_json::from_str(&json).ok();
        let page = page.and_then(|page| serde_json::from_str(page).ok());
        Self {
            form,
            page: page.unwrap_or_default(),
            json,
            least_seconds,
        }
    }
}

/// The form behind a live token.
#[derive(Debug, Clone)]
pub(crate) struct LiveForm {
    pub(crate) release: LiveRelease,
    pub(crate) definition: Arc<Definition>,
}
