//! The subjects that are known to have exhausted a limit, and until when. This can only speed up a
//! refusal, never let a request through.

use std::time::{Duration, Instant};

use moka::sync::Cache;

use super::subject::Subject;

const WINDOW: Duration = Duration::from_secs(60);
const MAX_CACHED: u64 = 100_000;

/// The subjects that have been refused.
pub(super) struct Exhausted(Cache<Subject, Instant>);

impl Default for Exhausted {
    fn default() -> Self {
        let cache = Cache::builder().max_capacity(MAX_CACHED);
        Self(cache.time_to_live(WINDOW).build())
    }
}

impl Exhausted {
    /// Notes that a subject is exhausted, and after which time its next request would pass.
    pub(super) fn insert(&self, subject: Subject, next_in: Duration) {
        self.0.insert(subject, Instant::now() + next_in);
    }

    /// After which time a request of a subject would pass; `None` unless it is known to be
    /// exhausted.
    pub(super) fn next_in(&self, subject: Subject) -> Option<Duration> {
        let next_in = self.0.get(&subject)?.checked_duration_since(Instant::now());
        next_in.filter(|next_in| !next_in.is_zero())
    }
}
