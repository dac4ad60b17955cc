//! What is remembered for a while, in bounded room. A flood of new keys displaces others of its
//! kind before what is asked for again and again.

use std::{
    collections::hash_map::RandomState,
    convert::Infallible,
    hash::Hash,
    sync::Arc,
    time::{Duration, Instant},
};

use quick_cache::{OptionsBuilder, Weighter, sync};

/// Values by their keys, which others may choose. Cheap to clone.
pub struct Cache<K, V> {
    kept: Arc<sync::Cache<K, Kept<V>, ByWeight, RandomState>>,
    time: Duration,
}

#[derive(Clone)]
struct Kept<V> {
    value: V,
    weight: u64,
    since: Instant,
}

#[derive(Clone)]
struct ByWeight;

impl<K, V> Weighter<K, Kept<V>> for ByWeight {
    fn weight(&self, _: &K, kept: &Kept<V>) -> u64 {
        kept.weight
    }
}

impl<K: Hash + Eq + Clone, V: Clone> Cache<K, V> {
    /// At most so many values, each of which is forgotten after a time, with `MAX` only for others.
    #[must_use]
    pub fn new(most: usize, time: Duration) -> Self {
        let mut options = OptionsBuilder::new();
        options.weight_capacity(most as u64);
        Self::with(options.estimated_items_capacity(most), time)
    }

    /// Values of so many bytes together, each of which is forgotten after a time.
    #[must_use]
    pub fn of_bytes(most: u64, time: Duration) -> Self {
        let mut options = OptionsBuilder::new();
        // One shard: the greatest value may take nearly all.
        options.weight_capacity(most).shards(1);
        Self::with(options.estimated_items_capacity(1_000), time)
    }

    #[expect(clippy::expect_used, reason = "both capacities are set")]
    fn with(options: &OptionsBuilder, time: Duration) -> Self {
        let options = options.build().expect("both capacities are set");
        let hasher = RandomState::new();
        let lifecycle = sync::DefaultLifecycle::default();
        let kept = sync::Cache::with_options(options, ByWeight, hasher, lifecycle);
        Self {
            kept: Arc::new(kept),
            time,
        }
    }

    /// What is remembered of a key.
    #[must_use]
    pub fn get(&self, key: &K) -> Option<V> {
        let kept = self.kept.get(key)?;
        if self.is_over(&kept) {
            self.kept.remove_if(key, |kept| self.is_over(kept));
            return None;
        }
        Some(kept.value)
    }

    /// What is remembered of a key; made if that is nothing. Who asks meanwhile waits for it.
    pub fn get_or_make(&self, key: K, make: impl FnOnce() -> V) -> V {
        if let Some(known) = self.get(&key) {
            return known;
        }
        let make = || Ok::<_, Infallible>(self.kept(make(), 1));
        let Ok(kept) = self.kept.get_or_insert_with(&key, make);
        kept.value
    }

    /// Remembers a value of a key.
    pub fn insert(&self, key: K, value: V) {
        self.insert_bytes(key, value, 1);
    }

    /// Remembers a value that takes so many bytes.
    pub fn insert_bytes(&self, key: K, value: V, bytes: usize) {
        self.kept.insert(key, self.kept(value, bytes as u64));
    }

    /// Forgets a key.
    pub fn remove(&self, key: &K) {
        self.kept.remove(key);
    }

    fn kept(&self, value: V, weight: u64) -> Kept<V> {
        Kept {
            value,
            weight,
            since: Instant::now(),
        }
    }

    fn is_over(&self, kept: &Kept<V>) -> bool {
        kept.since.elapsed() >= self.time
    }
}

impl<K, V> Clone for Cache<K, V> {
    fn clone(&self) -> Self {
        Self {
            kept: self.kept.clone(),
            time: self.time,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    #[test]
    fn what_is_over_is_made_anew() {
        let cache = Cache::new(10, Duration::ZERO);
        cache.insert(1, "old");
        assert_eq!(cache.get(&1), None);
        assert_eq!(cache.get_or_make(1, || "new"), "new");
        let cache = Cache::new(10, LONG);
        cache.insert(1, "old");
        assert_eq!(cache.get_or_make(1, || "new"), "old");
        cache.remove(&1);
        assert_eq!(cache.get(&1), None);
    }

    #[test]
    fn a_flood_finds_bounded_room_and_leaves_what_is_in_use() {
        let cache = Cache::new(1_000, LONG);
        cache.insert(u64::MAX, ());
        for key in 0..100_000 {
            cache.insert(key, ());
            assert!(cache.get(&u64::MAX).is_some());
        }
        let kept = (0..100_000).filter(|key| cache.get(key).is_some()).count();
        assert!((500..1_100).contains(&kept), "{kept}");
    }

    #[test]
    fn bytes_are_bounded_and_one_value_may_take_nearly_all() {
        let cache = Cache::of_bytes(1_000, LONG);
        cache.insert_bytes(0, (), 900);
        assert!(cache.get(&0).is_some());
        cache.insert_bytes(1, (), 2_000);
        assert!(cache.get(&1).is_none());
        for key in 2..100 {
            cache.insert_bytes(key, (), 300);
        }
        let kept = (0..100).filter(|key| cache.get(key).is_some()).count();
        assert!((1..=3).contains(&kept), "{kept}");
    }
}
