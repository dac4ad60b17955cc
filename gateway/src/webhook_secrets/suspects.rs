//! Clients whose signatures were wrong often lately. What they ask is looked up apart, so that the
//! flood of one does not hold up the first request of another's webhook. They are answered like
//! all: an address may be shared by many senders.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use moka::sync::Cache;

use letterbox_common::process::client_address::ClientAddress;

/// Wrong signatures of one client in a minute that make it suspect.
const MANY: u32 = 60;
const WINDOW: Duration = Duration::from_secs(60);
const MAX_CACHED: u64 = 100_000;

/// Counts the wrong signatures of each client.
pub(super) struct Suspects(Cache<ClientAddress, Arc<AtomicU32>>);

impl Default for Suspects {
    fn default() -> Self {
        let counts = Cache::builder().max_capacity(MAX_CACHED);
        Self(counts.time_to_live(WINDOW).build())
    }
}

impl Suspects {
    /// Counts a wrong signature.
    pub(super) fn count(&self, client: ClientAddress) {
        let count = self.0.get_with(client, Arc::default);
        count.fetch_add(1, Relaxed);
    }

    /// Whether a client has sent many wrong ones.
    pub(super) fn contains(&self, client: ClientAddress) -> bool {
        let count = self.0.get(&client);
        count.is_some_and(|count| count.load(Relaxed) >= MANY)
    }
}
