//! Rate limits: so many requests in any 60 seconds, exact across all gateways.
//!
//! The hits are counted in PostgreSQL, by its clock, in batches. A subject that has been refused is
//! refused here, without asking, until its oldest hit has gone: a flood from one client costs the
//! database nothing. What is kept here can only shorten the way to a refusal, never let a request
//! through. A hit is given back when another limit refuses the request.

mod store;

use std::{
    sync::atomic::{AtomicU64, Ordering::SeqCst},
    time::{Duration, Instant},
};

use deadpool_postgres::Pool;
use jiff::Timestamp;
use letterbox_common::form::TokenHash;
use moka::sync::Cache;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::store::{Hits, Returns, Taken};
use crate::{
    batcher::{Batcher, Limits},
    client_address::ClientAddress,
};

pub use self::store::{GIVE_BACK, SWEEP, TAKE_HITS};

/// Requests a minute with one token.
const PER_TOKEN: i32 = 20;
/// Requests a minute from one client.
const PER_CLIENT: i32 = 60;
const WINDOW: Duration = Duration::from_secs(60);
const HITS: Limits = Limits {
    queue: 8_192,
    batch: 512,
    lanes: 1,
};
const KEPT_SUBJECTS: u64 = 100_000;

/// Whose requests are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Subject {
    Client(ClientAddress),
    Token(TokenHash),
}

impl Subject {
    fn most(self) -> i32 {
        match self {
            Self::Client(_) => PER_CLIENT,
            Self::Token(_) => PER_TOKEN,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Client(_) => "client",
            Self::Token(_) => "token",
        }
    }
}

/// A request that was counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hit {
    subject: Subject,
    at: Timestamp,
}

/// Why a request may not go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limited {
    /// Too many; the next one would pass after this time.
    Exceeded { next_in: Duration },
    /// It can't be counted.
    Unavailable,
}

/// Counts requests.
pub struct RateLimits {
    hits: Batcher<Hits>,
    returns: Batcher<Returns>,
    /// Counts what was given back.
    returned: AtomicU64,
    /// Who is known to have used up a limit, and until when.
    exhausted: Cache<Subject, Instant>,
}

impl RateLimits {
    /// Starts counting as a task of `tasks`, and sweeping as one of `background`, until `stop`.
    #[must_use]
    pub fn start(
        pool: Pool,
        tasks: &TaskTracker,
        background: &TaskTracker,
        stop: CancellationToken,
    ) -> Self {
        background.spawn(store::sweep(pool.clone(), WINDOW, stop));
        Self {
            hits: Batcher::start("rate_limits", HITS, Hits { pool: pool.clone() }, tasks),
            returns: Batcher::start("rate_limit_returns", HITS, Returns { pool }, tasks),
            returned: AtomicU64::new(0),
            exhausted: Cache::builder()
                .max_capacity(KEPT_SUBJECTS)
                .time_to_live(WINDOW)
                .build(),
        }
    }

    /// Counts one request. A refused one does not count.
    ///
    /// # Errors
    /// See [`Limited`].
    pub async fn take(&self, subject: Subject) -> Result<Hit, Limited> {
        let returned = self.returned.load(SeqCst);
        let known = self
            .exhausted
            .get(&subject)
            .map(|until| until.saturating_duration_since(Instant::now()));
        let next_in = match known {
            Some(next_in) if !next_in.is_zero() => next_in,
            _ => match self
                .hits
                .submit(subject)
                .await
                .map_err(|_| Limited::Unavailable)?
            {
                Taken::Granted { at } => return Ok(Hit { subject, at }),
                Taken::Refused { next_in } => {
                    self.exhausted.insert(subject, Instant::now() + next_in);
                    if self.returned.load(SeqCst) != returned {
                        // Something was given back meanwhile, perhaps what was refused here.
                        self.exhausted.invalidate(&subject);
                    }
                    next_in
                }
            },
        };
        metrics::counter!("letterbox_rate_limited_total", "subject" => subject.name()).increment(1);
        Err(Limited::Exceeded { next_in })
    }

    /// Takes a request out of the count again, because another limit refuses it.
    pub async fn give_back(&self, hit: Hit) {
        // What can't be given back is over in a minute.
        let _ = self.returns.submit(hit).await;
        self.returned.fetch_add(1, SeqCst);
        self.exhausted.invalidate(&hit.subject);
    }
}
