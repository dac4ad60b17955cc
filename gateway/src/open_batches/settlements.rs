//! What is known of batches and not yet written to the database. It is written with the next claim,
//! or at once where no claim is coming, and tried again for as long as the process lives.
//!
//! Until it is written, every claim of this gateway is told which batches are confirmed, so that a
//! repeat of something that was answered is a duplicate although the database does not know yet.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use letterbox_broker::retry_delays;
use letterbox_database::{Database, DatabaseError};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{BatchId, store};

/// Batches that one statement closes.
const MAX_CLOSED: usize = 1_000;
/// Batches whose leases wait to be ended. The leases of more end by themselves.
const MAX_FAILED: usize = 10_000;
const FIRST_PAUSE: std::time::Duration = std::time::Duration::from_millis(100);

/// Batches whose outcome is known here.
#[derive(Debug, Default)]
pub struct Settlements {
    known: Mutex<Known>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Known {
    /// Confirmed, and nobody is writing it.
    confirmed: BTreeSet<BatchId>,
    /// Confirmed, and somebody is writing it.
    closing: BTreeSet<BatchId>,
    /// Not published: the lease must end.
    failed: BTreeSet<BatchId>,
}

impl Known {
    fn remember_failed(&mut self, batches: impl IntoIterator<Item = BatchId>) {
        let room = MAX_FAILED.saturating_sub(self.failed.len());
        self.failed.extend(batches.into_iter().take(room));
    }
}

impl Settlements {
    /// The broker has confirmed a batch, or nothing of it was held. Written with the next claim.
    pub fn confirm(&self, batch: BatchId) {
        self.lock().confirmed.insert(batch);
    }

    /// Nothing of these batches is known to be published: a retry may take them over at once.
    pub(crate) fn fail(&self, batches: impl IntoIterator<Item = BatchId>) {
        self.lock().remember_failed(batches);
        self.changed.notify_one();
    }

    /// No claim is coming that would take along what is known.
    pub fn write_now(&self) {
        self.changed.notify_one();
    }

    /// Every batch that is known to be confirmed and may still have a row.
    pub(crate) fn confirmed(&self) -> Vec<BatchId> {
        let known = self.lock();
        known.confirmed.union(&known.closing).copied().collect()
    }

    /// Confirmed batches for the caller to close. Those that are not reported as closed are given
    /// again.
    pub(crate) fn take_confirmed(self: &Arc<Self>) -> Closing {
        let mut known = self.lock();
        let batches: Vec<_> = known.confirmed.iter().copied().take(MAX_CLOSED).collect();
        for batch in &batches {
            known.confirmed.remove(batch);
            known.closing.insert(*batch);
        }
        Closing {
            batches,
            closed: false,
            settlements: self.clone(),
        }
    }

    fn take_failed(&self) -> BTreeSet<BatchId> {
        std::mem::take(&mut self.lock().failed)
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes what is known whenever nobody else will, until `stop`; and then what is left, once.
    pub async fn run(self: Arc<Self>, database: Database, stop: CancellationToken) {
        let mut pauses = retry_delays(FIRST_PAUSE);
        loop {
            let stopped = stop.run_until_cancelled(self.changed.notified()).await;
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
        let failed = self.take_failed();
        if !failed.is_empty() {
            let ending = store::end_leases(database, &failed).await;
            ending.inspect_err(|_| self.lock().remember_failed(failed))?;
        }
        loop {
            let closing = self.take_confirmed();
            if closing.batches.is_empty() {
                return Ok(());
            }
            store::close(database, closing.ids()).await?;
            closing.are_closed();
        }
    }
}

/// Confirmed batches that somebody is closing.
pub(crate) struct Closing {
    batches: Vec<BatchId>,
    closed: bool,
    settlements: Arc<Settlements>,
}

impl Closing {
    pub(crate) fn ids(&self) -> &[BatchId] {
        &self.batches
    }

    /// Their rows are gone.
    pub(crate) fn are_closed(mut self) {
        self.closed = true;
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        let mut known = self.settlements.lock();
        for batch in &self.batches {
            known.closing.remove(batch);
        }
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
        assert_eq!(
            settlements.confirmed(),
            [batch],
            "known while it is written"
        );
        assert!(
            settlements.take_confirmed().ids().is_empty(),
            "by one at a time"
        );
        drop(first);
        let second = settlements.take_confirmed();
        assert_eq!(second.ids(), [batch]);
        second.are_closed();
        assert!(settlements.confirmed().is_empty());
        assert!(settlements.take_confirmed().ids().is_empty());
    }
}
