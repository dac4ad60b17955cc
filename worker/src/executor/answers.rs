//! What accounts have answered: sealed where it is kept, opened where it is used.

use letterbox_common::sealing::{Place, Seal};

use super::{Executor, record::Turn, run_in_progress::RunInProgress};
use crate::stored_bytes::ROW_BYTES;

/// How much of an answer is kept that made an action fail, in bytes.
const MAX_EXCERPT: usize = 2 * 1024;

impl Executor {
    /// Seals what an action was answered. None where that can't be done: then it is not kept.
    pub(super) fn seal_answer(
        &self,
        run: &RunInProgress<'_>,
        action: &str,
        answer: &[u8],
    ) -> Option<Vec<u8>> {
        let sealed = self.keys.seal(place(run.turn, action), answer);
        self.count(run, answer.len());
        let logged = sealed.inspect_err(|error| {
            tracing::error!(%error, "an answer can't be sealed");
        });
        logged.ok()
    }

    /// Counts bytes that a run stores, in a row or with one.
    pub(super) fn count(&self, run: &RunInProgress<'_>, bytes: usize) {
        run.count(bytes);
        let (workspace, bytes) = (run.turn.workspace, bytes as u64 + ROW_BYTES);
        self.stored_bytes.add(workspace, None, bytes);
    }

    /// Opens what an action was answered; or says why that can't be done.
    pub(super) fn open_answer(
        &self,
        turn: Turn,
        action: &str,
        sealed: &[u8],
    ) -> Result<Vec<u8>, String> {
        let opened = self.keys.open(place(turn, action), sealed);
        opened
            .map(|answer| answer.expose().to_vec())
            .map_err(|error| {
                tracing::error!(%error, "an answer does not open");
                format!("the answer of {action} does not open: {error}")
            })
    }
}

fn place(turn: Turn, action: &str) -> Place<'_> {
    Place::ActionAnswer {
        workspace: turn.workspace,
        run: turn.run,
        action,
    }
}

/// The beginning of an answer that made an action fail.
pub(super) fn excerpt(mut answer: Vec<u8>) -> Vec<u8> {
    answer.truncate(MAX_EXCERPT);
    answer
}
