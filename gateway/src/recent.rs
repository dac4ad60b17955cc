//! How often something happened a short time ago.

use std::{
    hash::Hash,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use letterbox_common::cache::Cache;

/// How often something was counted of each key, since the first time.
pub(crate) struct Counts<K>(Cache<K, Arc<AtomicU32>>);

impl<K: Hash + Eq + Clone> Counts<K> {
    /// Counts of at most so many keys, each of which begins anew after a time.
    pub(crate) fn new(max: usize, time: Duration) -> Self {
        Self(Cache::new(max, time))
    }

    /// Counts once more, and returns how often.
    pub(crate) fn add(&self, key: &K) -> u32 {
        let count = self.0.get_or_make(key, Arc::default);
        count.fetch_add(1, Relaxed) + 1
    }

    pub(crate) fn of(&self, key: &K) -> u32 {
        self.0.get(key).map_or(0, |count| count.load(Relaxed))
    }
}
