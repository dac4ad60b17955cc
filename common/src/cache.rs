//! What is remembered for a while, in bounded room. A flood of new keys displaces others of its
//! kind before what is asked for again and again. What is over is let go of in passing, when others
//! are added.

use std::{
    collections::hash_map::RandomState,
    convert::Infallible,
    hash::Hash,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use quick_cache::{Lifecycle, OptionsBuilder, Weighter, sync};

/// What a value takes beside its own bytes, about.
const OVERHEAD: u64 = 1 << 10;

/// Values by their keys, which others may choose. Cheap to clone.
pub struct Cache<K, V>(Arc<Inner<K, V>>);

struct Inner<K, V> {
    kept: sync::Cache<K, Kept<V>, ByWeight, RandomState, DropUnlocked>,
    time: Duration,
    /// When what was over was last let go of.
    swept: Mutex<Instant>,
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

/// Frees what is displaced when the lock is given back: it may be much.
#[derive(Clone)]
struct DropUnlocked;

impl<K, V> Lifecycle<K, V> for DropUnlocked {
    type RequestState = Vec<(K, V)>;

    fn on_evict(&self, displaced: &mut Vec<(K, V)>, key: K, value: V) {
        displaced.push((key, value));
    }
}

impl<K: Hash + Eq + Clone, V: Clone> Cache<K, V> {
    /// At most so many values, each of which is forgotten after a time, with `MAX` only for others.
    pub fn new(most: usize, time: Duration) -> Self {
        let mut options = OptionsBuilder::new();
        options.weight_capacity(most as u64);
        Self::with(options.estimated_items_capacity(most), time)
    }

    /// Values of so many bytes together, each of which is forgotten after a time.
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
        Self(Arc::new(Inner {
            kept: sync::Cache::with_options(options, ByWeight, hasher, DropUnlocked),
            time,
            swept: Mutex::new(Instant::now()),
        }))
    }

    /// What is remembered of a key.
    pub fn get(&self, key: &K) -> Option<V> {
        let kept = self.0.kept.get(key)?;
        if self.is_over(&kept) {
            self.0.kept.remove_if(key, |kept| self.is_over(kept));
            return None;
        }
        Some(kept.value)
    }

    /// What is remembered of a key; made if that is nothing, at once: whoever asks meanwhile
    /// blocks.
    pub fn get_or_make(&self, key: &K, make: impl FnOnce() -> V) -> V {
        if let Some(known) = self.get(key) {
            return known;
        }
        self.sweep();
        let make = || Ok::<_, Infallible>(kept(make(), 1));
        let Ok(kept) = self.0.kept.get_or_insert_with(key, make);
        kept.value
    }

    /// Remembers a value of a key.
    pub fn insert(&self, key: K, value: V) {
        self.sweep();
        self.0.kept.insert(key, kept(value, 1));
    }

    /// Remembers a value that takes so many bytes.
    pub fn insert_bytes(&self, key: K, value: V, bytes: usize) {
        self.sweep();
        self.0
            .kept
            .insert(key, kept(value, OVERHEAD + bytes as u64));
    }

    /// Forgets a key.
    pub fn remove(&self, key: &K) {
        self.0.kept.remove(key);
    }

    fn is_over(&self, kept: &Kept<V>) -> bool {
        kept.since.elapsed() >= self.0.time
    }

    /// Lets go of what is over, once in its time.
    fn sweep(&self) {
        let Some(mut swept) = self.0.swept.try_lock() else {
            return;
        };
        if swept.elapsed() >= self.0.time {
            self.0.kept.retain(|_, kept| !self.is_over(kept));
            *swept = Instant::now();
        }
    }
}

fn kept<V>(value: V, weight: u64) -> Kept<V> {
    Kept {
        value,
        weight,
        since: Instant::now(),
    }
}

impl<K, V> Clone for Cache<K, V> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
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
        assert_eq!(cache.get_or_make(&1, || "new"), "new");
        let cache = Cache::new(10, LONG);
        cache.insert(1, "old");
        assert_eq!(cache.get_or_make(&1, || "new"), "old");
        cache.remove(&1);
        assert_eq!(cache.get(&1), None);
    }

    #[test]
    fn what_is_over_is_let_go_of() {
        let cache = Cache::new(10, Duration::from_millis(1));
        let value = Arc::new(());
        cache.insert(1, value.clone());
        std::thread::sleep(Duration::from_millis(2));
        cache.insert(2, Arc::default());
        assert_eq!(Arc::strong_count(&value), 1);
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
        let cache = Cache::of_bytes(100_000, LONG);
        cache.insert_bytes(0, (), 90_000);
        assert!(cache.get(&0).is_some());
        cache.insert_bytes(1, (), 200_000);
        assert!(cache.get(&1).is_none());
        for key in 2..100 {
            cache.insert_bytes(key, (), 30_000);
        }
        let kept = (0..100).filter(|key| cache.get(key).is_some()).count();
        assert!((1..=3).contains(&kept), "{kept}");
    }
}
