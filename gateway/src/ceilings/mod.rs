//! Ceilings: the bytes that a workspace and a webhook may have stored in a day. Checked only for
//! deliveries with a valid signature, so that others can't measure anything.

mod store;

use std::time::Duration;

use letterbox_common::{
    batcher::{BatchLimits, Batcher, LookUps},
    cache::Cache,
    webhook::WebhookAddress,
};
use letterbox_database::Database;
use tokio_util::task::TaskTracker;

use self::store::FullWebhooks;
pub(crate) use self::store::{DailyBytes, STATEMENTS};

const MAX_CACHED: usize = 10_000;
/// How long an answer is cached. Deliveries are taken meanwhile, even beyond the ceiling.
const CACHE_TTL: Duration = Duration::from_secs(30);

/// Knows which webhooks have reached their ceiling.
pub(crate) struct Ceilings {
    lookup: Batcher<LookUps<FullWebhooks>>,
    cache: Cache<WebhookAddress, bool>,
}

impl Ceilings {
    /// Starts the look-ups as tasks of `tasks`.
    pub(crate) fn start(database: Database, most: DailyBytes, tasks: &TaskTracker) -> Self {
        let lookup = LookUps(FullWebhooks { database, most });
        Self {
            lookup: Batcher::start("ceilings", BatchLimits::SMALL_ITEMS, lookup, tasks),
            cache: Cache::new(MAX_CACHED, CACHE_TTL),
        }
    }

    /// Whether a webhook or its workspace may store no more today. `false` if that is unknown: the
    /// ceilings are generous, and a database that does not answer takes no delivery anyway.
    pub(crate) async fn is_reached(&self, address: WebhookAddress) -> bool {
        if let Some(is_full) = self.cache.get(&address) {
            return is_full;
        }
        let is_full = self.lookup.ask(address).await.unwrap_or(false);
        self.cache.insert(address, is_full);
        is_full
    }
}
