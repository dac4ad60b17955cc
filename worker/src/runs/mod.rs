//! Runs: what submissions start. Each submission becomes exactly one run, started or refused.

mod store;

use jiff::Timestamp;
use letterbox_common::{
    broker::FormSubmission,
    ids::{ReleaseId, RunId, WorkflowId, WorkspaceId},
};

pub use self::store::{STATEMENTS, store};

/// A submission, ready to be recorded as a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Submission {
    pub run: RunId,
    pub workspace: WorkspaceId,
    pub workflow: WorkflowId,
    /// The release that was live when the gateway validated the payload; the run is pinned to it.
    pub release: ReleaseId,
    pub received_at: Timestamp,
    /// The validated payload: JSON text that a stranger wrote.
    pub input: Vec<u8>,
}

/// Reads a message.
#[must_use]
pub fn read(envelope: &FormSubmission, body: &[u8]) -> Submission {
    Submission {
        run: envelope.run,
        workspace: envelope.workspace,
        workflow: envelope.workflow,
        release: envelope.release,
        received_at: envelope.receipt.received_at,
        input: body.to_vec(),
    }
}
