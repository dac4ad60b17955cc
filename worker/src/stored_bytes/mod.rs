//! Bytes stored per workspace and webhook, counted in memory and written to the database every few
//! seconds. A worker that dies loses its unwritten counts, which the daily limit tolerates.

mod store;

use std::{collections::BTreeMap, mem, sync::Arc, time::Duration};

use letterbox_common::ids::{WebhookId, WorkspaceId};
use letterbox_database::Database;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

pub(crate) use self::store::STATEMENTS;

const NOTE_EVERY: Duration = Duration::from_secs(5);
/// What a row is taken for beside its contents, with its claim and its entries in indexes. Runs
/// count theirs in the statement that records them.
pub(crate) const ROW_BYTES: u64 = 512;

type ByteCounts = BTreeMap<(WorkspaceId, Option<WebhookId>), u64>;

/// Counts not yet written. Cheap to clone; clones share their counts.
#[derive(Debug, Clone, Default)]
pub(crate) struct StoredBytes(Arc<Mutex<ByteCounts>>);

impl StoredBytes {
    /// Counts bytes of a workspace and, if given, of its webhook.
    pub(crate) fn add(&self, workspace: WorkspaceId, webhook: Option<WebhookId>, bytes: u64) {
        let both = [None, webhook];
        let keys = both.into_iter().take(1 + usize::from(webhook.is_some()));
        self.count(keys.map(|webhook| ((workspace, webhook), bytes)));
    }

    /// Writes the counts every few seconds, and once more at `stop`.
    pub(crate) async fn note(self, database: Database, stop: CancellationToken) {
        loop {
            let pause = stop.run_until_cancelled(tokio::time::sleep(NOTE_EVERY));
            let goes_on = pause.await.is_some();
            let counts = mem::take(&mut *self.0.lock());
            // Counts that were not written are kept for the next round.
            if !counts.is_empty() && store::note(&database, &counts).await.is_err() {
                self.count(counts);
            }
            if !goes_on {
                return;
            }
        }
    }

    fn count(&self, more: impl IntoIterator<Item = ((WorkspaceId, Option<WebhookId>), u64)>) {
        let mut counts = self.0.lock();
        for (key, bytes) in more {
            *counts.entry(key).or_default() += bytes;
        }
    }
}
