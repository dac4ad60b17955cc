//! What is remembered for a while, in bounded room.

use std::{
    hash::Hash,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use moka::sync::Cache;

/// A cache of at most so many values, each of which is forgotten after a time.
pub(crate) fn cache<K, V>(max: u64, time: Duration) -> Cache<K, V>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    Cache::builder()
        .max_capacity(max)
        .time_to_live(time)
        .build()
}

/// How often something was counted of each key, since the first time.
pub(crate) struct Counts<K>(Cache<K, Arc<AtomicU32>>);

impl<K: Hash + Eq + Send + Sync + 'static> Counts<K> {
    /// Counts of at most so many keys, each of which begins anew after a time.
    pub(crate) fn new(max: u64, time: Duration) -> Self {
        Self(cache(max, time))
    }

    /// Counts once more, and returns how often.
    pub(crate) fn add(&self, key: K) -> u32 {
        let count = self.0.get_with(key, Arc::default);
        count.fetch_add(1, Relaxed) + 1
    }

    pub(crate) fn of(&self, key: &K) -> u32 {
        self.0.get(key).map_or(0, |count| count.load(Relaxed))
    }
}
