//! Repeats: entries whose key was used before, an idempotency key or a sender's id, counted if what
//! came with it differs from the first. The sender gets the usual answer before that is compared,
//! so that not even its time reveals anything about the first.

use letterbox_common::process::vital::vital;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio_util::task::TaskTracker;

use crate::{
    claims::{ClaimKey, Claims, Door},
    metrics,
};

/// Maximum repeats that wait to be compared. More are not compared.
const MAX_WAITING: usize = 4_096;
/// Maximum repeats compared at once.
const MAX_BATCH: usize = 256;

/// Counts repeats with another payload.
pub(crate) struct Repeats<D>(Sender<ClaimKey<D>>);

impl<D: Door> Repeats<D> {
    /// Starts the comparison as a task of `tasks`, which ends when the value is dropped.
    pub(crate) fn start(claims: Claims, tasks: &TaskTracker) -> Self {
        let (repeats, waiting) = mpsc::channel(MAX_WAITING);
        tasks.spawn(vital("repeats", compare(claims, waiting)));
        Self(repeats)
    }

    /// Notes a repeat. Best effort: it is not compared if too many wait or the database is away.
    pub(crate) fn note(&self, key: ClaimKey<D>) {
        if self.0.try_send(key).is_err() {
            tracing::debug!("a repeat is not compared: too many wait");
        }
    }
}

async fn compare<D: Door>(claims: Claims, mut waiting: Receiver<ClaimKey<D>>) {
    let mut keys = Vec::with_capacity(MAX_BATCH);
    // Best effort: a gateway that stops does not compare the rest.
    while waiting.recv_many(&mut keys, MAX_BATCH).await > 0 && !waiting.is_closed() {
        match claims.count_changed_repeats(&keys).await {
            Ok(changed) => metrics::CHANGED_REPEATS.increment(changed),
            Err(error) => tracing::debug!(%error, "repeats are not compared"),
        }
        keys.clear();
    }
}
