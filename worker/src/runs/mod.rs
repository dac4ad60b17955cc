//! Records runs: each submission becomes exactly one run, queued or refused. `executor` executes
//! the queued ones.

mod store;

use bytes::Bytes;
use letterbox_broker::{FormSubmission, Receipt};
use letterbox_common::ids::{ReleaseId, RunId, WorkflowId, WorkspaceId};

pub(crate) use self::store::STATEMENTS;

/// A submission, ready to be recorded as a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NewRun {
    pub(crate) run: RunId,
    pub(crate) workspace: WorkspaceId,
    workflow: WorkflowId,
    /// The release that the gateway validated the payload against; the run is pinned to it.
    pub(crate) release: ReleaseId,
    receipt: Receipt,
    /// The validated payload: untrusted JSON text.
    input: Bytes,
}

impl NewRun {
    /// The run that a submission starts.
    pub(crate) fn of_submission(envelope: &FormSubmission, body: &Bytes) -> Self {
        Self {
            run: envelope.run,
            workspace: envelope.workspace,
            workflow: envelope.workflow,
            release: envelope.release,
            receipt: envelope.receipt.clone(),
            input: body.clone(),
        }
    }
}
