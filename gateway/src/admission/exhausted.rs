//! Who is known to have exhausted a limit, and until when. It can only shorten the way to a
//! refusal, never let a request through.

use std::time::{Duration, Instant};

use moka::sync::Cache;

use super::subject::Subject;

const WINDOW: Duration = Duration::from_secs(60);
const MAX_CACHED: u64 = 100_000;

/// Subjects that have been refused.
pub(super) struct Exhausted(Cache<Subject, Instant>);

impl Default for Exhausted {
    fn default() -> Self {
        let cache = Cache::builder().max_capacity(MAX_CACHED);
        Self(cache.time_to_live(WINDOW).build())
    }
}

impl Exhausted {
    /// After this time, one more request would pass.
    pub(super) fn insert(&self, subject: Subject, next_in: Duration) {
        self.0.insert(subject, Instant::now() + next_in);
    }

    /// When a subject would pass, if it is known that it would not pass now.
    pub(super) fn next_in(&self, subject: Subject) -> Option<Duration> {
        let next_in = self.0.get(&subject)?.checked_duration_since(Instant::now());
        next_in.filter(|next_in| !next_in.is_zero())
    }
}
