//! How much is stored for whom: counted in memory, noted every few seconds. What a worker has not
//! noted when it dies is not counted, which a ceiling can bear.

mod store;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use letterbox_common::ids::{WebhookId, WorkspaceId};
use letterbox_database::Database;
use tokio_util::sync::CancellationToken;

pub(crate) use self::store::STATEMENTS;

const NOTE_EVERY: Duration = Duration::from_secs(5);
/// Notes between two sweeps of old days.
const SWEEP_EVERY: u64 = 720;

type Counts = BTreeMap<(WorkspaceId, Option<WebhookId>), u64>;

/// Bytes that are not noted yet. Cheap to clone; clones count together.
#[derive(Debug, Clone, Default)]
pub(crate) struct StoredBytes(Arc<Mutex<Counts>>);

impl StoredBytes {
    /// Counts bytes of a workspace and, where they came from one, of its webhook.
    pub(crate) fn add(&self, workspace: WorkspaceId, webhook: Option<WebhookId>, bytes: u64) {
        let both = [None, webhook];
        let keys = both.into_iter().take(1 + usize::from(webhook.is_some()));
        self.count(keys.map(|webhook| ((workspace, webhook), bytes)));
    }

    /// Notes what was counted, every few seconds, and once more when told to stop.
    pub(crate) async fn note(self, database: Database, stop: CancellationToken) {
        for round in 0_u64.. {
            let pause = stop.run_until_cancelled(tokio::time::sleep(NOTE_EVERY));
            let goes_on = pause.await.is_some();
            let counts = self.take();
            // What could not be noted is counted on.
            if !counts.is_empty() && store::note(&database, &counts).await.is_err() {
                self.count(counts);
            }
            if !goes_on {
                return;
            }
            if round.is_multiple_of(SWEEP_EVERY) {
                // A failure is logged where it happens.
                let _ = store::sweep(&database).await;
            }
        }
    }

    fn take(&self) -> Counts {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn count(&self, more: impl IntoIterator<Item = ((WorkspaceId, Option<WebhookId>), u64)>) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (key, bytes) in more {
            *counts.entry(key).or_default() += bytes;
        }
    }
}
