//! Submissions whose idempotency key was used before: counted if their payload is another one than
//! the first. Their sender is answered as ever, and before anything is looked up here: not even the
//! time of the answer tells what was sent first.

use letterbox_common::process::vital::vital;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio_util::task::TaskTracker;

use crate::{
    claims::{Claims, SubmissionKey},
    metrics,
};

/// Repeats that may wait to be compared. One more is not.
const MAX_WAITING: usize = 4_096;
/// Repeats that are compared at once.
const MAX_BATCH: usize = 256;

/// Counts repeats with another payload.
pub(crate) struct Repeats(Sender<SubmissionKey>);

impl Repeats {
    /// Starts comparing as a task of `tasks`, which ends when the value is dropped.
    pub(crate) fn start(claims: Claims, tasks: &TaskTracker) -> Self {
        let (repeats, waiting) = mpsc::channel(MAX_WAITING);
        tasks.spawn(vital("repeats", compare(claims, waiting)));
        Self(repeats)
    }

    /// A key was known already. Best effort: what is too much, or comes while the database is away,
    /// is not compared.
    pub(crate) fn note(&self, key: SubmissionKey) {
        if self.0.try_send(key).is_err() {
            tracing::debug!("a repeat is not compared: too many wait");
        }
    }
}

async fn compare(claims: Claims, mut waiting: Receiver<SubmissionKey>) {
    let mut keys = Vec::with_capacity(MAX_BATCH);
    // Who stops does not wait for what is best effort.
    while waiting.recv_many(&mut keys, MAX_BATCH).await > 0 && !waiting.is_closed() {
        match claims.count_changed_repeats(&keys).await {
            Ok(changed) => metrics::CHANGED_REPEATS.increment(changed),
            Err(error) => tracing::debug!(%error, "repeats are not compared"),
        }
        keys.clear();
    }
}
