//! The live form behind a token.

use std::sync::Arc;

use letterbox_common::ids::{ReleaseId, WorkflowId, WorkspaceId};
use letterbox_database::FromRow;

use super::store::definitions::Definition;

/// The release of a live form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromRow)]
pub(crate) struct LiveRelease {
    pub(crate) workspace: WorkspaceId,
    pub(crate) workflow: WorkflowId,
    pub(crate) release: ReleaseId,
}

/// The form behind a live token.
#[derive(Debug, Clone)]
pub(crate) struct LiveForm {
    pub(crate) release: LiveRelease,
    pub(crate) definition: Arc<Definition>,
}
