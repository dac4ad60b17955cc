//! The outcomes of batches that are not yet written to the database. They are written with the next
//! claim, or at once if no claim is coming, and retried as long as the process lives.
//!
//! Until then, every query of this gateway for claims names the batches that are confirmed, so that
//! the repeat of an answered item is a duplicate although the database does not know yet.

use std::{collections::BTreeSet, mem, sync::Arc};

use letterbox_broker::retry_delays;
use letterbox_database::{Database, DatabaseError};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{BatchId, store};

/// Maximum batches that one statement closes.
const MAX_CLOSED: usize = 1_000;
/// Maximum batches whose leases wait to be ended. Further leases end by themselves.
const MAX_FAILED: usize = 10_000;
const FIRST_PAUSE: std::time::Duration = std::time::Duration::from_millis(100);

/// The batches whose outcome this gateway knows.
#[derive(Debug, Default)]
pub struct Settlements {
    known: Mutex<Known>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Known {
    /// Confirmed, and to be closed.
    confirmed: BTreeSet<BatchId>,
    /// Confirmed, and being closed by a statement.
    closing: BTreeSet<BatchId>,
    /// Not published: the lease must be ended.
    failed: BTreeSet<BatchId>,
}

impl Known {
    fn remember_failed(&mut self, batches: impl IntoIterator<Item = BatchId>) {
        let room = MAX_FAILED.saturating_sub(self.failed.len());
        self.failed.extend(batches.into_iter().take(room));
    }
}

impl Settlements {
    /// Notes that the broker has confirmed a batch. The next claim closes it.
    pub fn confirm(&self, batch: BatchId) {
        self.known.lock().confirmed.insert(batch);
    }

    /// Notes that batches are not known to be published: a retry may take them over at once.
    pub(crate) fn fail(&self, batches: impl IntoIterator<Item = BatchId>) {
        self.known.lock().remember_failed(batches);
        self.changed.notify_one();
    }

    /// Writes the known outcomes now, because no claim is coming that would.
    pub fn write_now(&self) {
        self.changed.notify_one();
    }

    /// The batches that are known to be confirmed and may still have a row.
    pub(crate) fn confirmed(&self) -> Vec<BatchId> {
        let known = self.known.lock();
        known.confirmed.union(&known.closing).copied().collect()
    }

    /// Takes confirmed batches for the caller to close. Unless the caller reports them as closed,
    /// they are given out again.
    pub(crate) fn take_confirmed(self: &Arc<Self>) -> ClosingBatches {
        let mut known = self.known.lock();
        let batches: Vec<_> = known.confirmed.iter().copied().take(MAX_CLOSED).collect();
        for batch in &batches {
            known.confirmed.remove(batch);
            known.closing.insert(*batch);
        }
        ClosingBatches {
            batches,
            closed: false,
            settlements: self.clone(),
        }
    }

    /// Writes outcomes whenever no claim will, until `stop`; then the remaining ones, once.
    pub async fn run(self: Arc<Self>, database: Database, stop: CancellationToken) {
        let mut pauses = retry_delays(FIRST_PAUSE);
        loop {
            let stopped = stop.run_until_cancelled(self.changed.notified()).await;
            // After `stop` there is one attempt: leases end by themselves, and rows that stay open
            // are taken over.
            while self.write(&database).await.is_err() && !stop.is_cancelled() {
                let pause = tokio::time::sleep(pauses.next().unwrap_or(FIRST_PAUSE));
                stop.run_until_cancelled(pause).await;
            }
            pauses = retry_delays(FIRST_PAUSE);
            if stopped.is_none() {
                return;
            }
        }
    }

    async fn write(self: &Arc<Self>, database: &Database) -> Result<(), DatabaseError> {
        let failed = mem::take(&mut self.known.lock().failed);
        if !failed.is_empty() {
            // First, because senders may be retrying already.
            let batches = Vec::from_iter(failed.iter().copied());
            let ending = store::end_leases(database, &batches).await;
            ending.inspect_err(|_| self.known.lock().remember_failed(failed))?;
        }
        loop {
            let closing = self.take_confirmed();
            if closing.batches.is_empty() {
                return Ok(());
            }
            store::close_batches(database, closing.ids()).await?;
            closing.are_closed();
        }
    }
}

/// Confirmed batches that a statement is closing.
pub(crate) struct ClosingBatches {
    batches: Vec<BatchId>,
    closed: bool,
    settlements: Arc<Settlements>,
}

impl ClosingBatches {
    pub(crate) fn ids(&self) -> &[BatchId] {
        &self.batches
    }

    /// Reports that their rows are deleted.
    pub(crate) fn are_closed(mut self) {
        self.closed = true;
    }
}

impl Drop for ClosingBatches {
    fn drop(&mut self) {
        let mut known = self.settlements.known.lock();
        for batch in &self.batches {
            known.closing.remove(batch);
        }
        // The statement failed, or its future was dropped: the outcome of the delete is unknown.
        if !self.closed {
            known.confirmed.extend(&self.batches);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_written_is_known_and_given_again() {
        let settlements = Arc::new(Settlements::default());
        let batch = BatchId::generate();
        settlements.confirm(batch);
        let first = settlements.take_confirmed();
        assert_eq!(first.ids(), [batch]);
        // Known while it is written, and by one at a time.
        assert_eq!(settlements.confirmed(), [batch]);
        assert!(settlements.take_confirmed().ids().is_empty());
        drop(first);
        let second = settlements.take_confirmed();
        assert_eq!(second.ids(), [batch]);
        second.are_closed();
        assert!(settlements.confirmed().is_empty());
        assert!(settlements.take_confirmed().ids().is_empty());
    }
}
