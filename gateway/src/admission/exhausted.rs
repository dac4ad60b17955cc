//! The subjects that are known to have exhausted a limit, and until when. This can only speed up a
//! refusal, never let a request through. What is refused before the database is asked counts here,
//! on this gateway alone.

use std::time::{Duration, Instant};

use letterbox_common::cache::Cache;

use super::subject::Subject;
use crate::recent::Counts;

const WINDOW: Duration = Duration::from_secs(60);
const MAX_CACHED: usize = 100_000;

/// The subjects that have been refused.
pub(super) struct Exhausted {
    until: Cache<Subject, Instant>,
    refused: Counts<Subject>,
}

impl Default for Exhausted {
    fn default() -> Self {
        Self {
            until: Cache::new(MAX_CACHED, WINDOW),
            refused: Counts::new(MAX_CACHED, WINDOW),
        }
    }
}

impl Exhausted {
    /// Notes that a subject is exhausted, and after which time its next request would pass.
    pub(super) fn insert(&self, subject: Subject, next_in: Duration) {
        self.until.insert(subject, Instant::now() + next_in);
    }

    /// Counts what was refused without a query. As many as the limit in 60 seconds exhaust it for
    /// as long.
    pub(super) fn count_refused(&self, subject: Subject) {
        if self.refused.add(&subject) >= subject.limit().unsigned_abs() {
            self.insert(subject, WINDOW);
        }
    }

    /// After which time a request of a subject would pass; `None` unless it is known to be
    /// exhausted.
    pub(super) fn next_in(&self, subject: Subject) -> Option<Duration> {
        let until = self.until.get(&subject)?;
        let next_in = until.checked_duration_since(Instant::now());
        next_in.filter(|next_in| !next_in.is_zero())
    }
}
