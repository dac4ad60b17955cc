//! Rate limits: a number of requests in any 60 seconds, exact across all gateways.
//!
//! Hits are counted in PostgreSQL, by its clock, in batches. A subject that has been refused is
//! refused here, without asking, until its oldest hit has expired: a flood from one client costs
//! the database nothing. The cache can only shorten the way to a refusal, never let a request
//! through. A hit is refunded when another limit refuses the request.

mod store;

use std::{
    sync::atomic::{AtomicU64, Ordering::SeqCst},
    time::{Duration, Instant},
};

use jiff::Timestamp;
use letterbox_common::form::TokenHash;
use letterbox_database::Database;
use moka::sync::Cache;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub(crate) use self::store::STATEMENTS;
use self::store::{Counted, Hits, Refunds};
use crate::{
    batcher::{Batcher, Limits},
    client_address::ClientAddress,
    metrics,
};

/// Requests a minute with one token.
const MAX_PER_TOKEN: i32 = 20;
/// Requests a minute from one client.
const MAX_PER_CLIENT: i32 = 60;
const WINDOW: Duration = Duration::from_secs(60);
const HITS: Limits = Limits {
    max_queued: 8_192,
    max_batch: 512,
    max_in_flight: 1,
};
const MAX_CACHED: u64 = 100_000;

/// Whose requests are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Subject {
    Client(ClientAddress),
    Token(TokenHash),
}

impl Subject {
    fn limit(self) -> i32 {
        match self {
            Self::Client(_) => MAX_PER_CLIENT,
            Self::Token(_) => MAX_PER_TOKEN,
        }
    }

    fn kind(self) -> &'static str {
        match self {
            Self::Client(_) => "client",
            Self::Token(_) => "token",
        }
    }
}

/// A request that was counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hit {
    subject: Subject,
    at: Timestamp,
}

/// Why a request may not go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limited {
    /// Too many requests. The next one would pass after this time.
    Exceeded { next_in: Duration },
    /// The request can't be counted.
    Unavailable,
}

/// Counts requests.
pub(crate) struct RateLimits {
    hits: Batcher<Hits>,
    refunds: Batcher<Refunds>,
    /// Counts the refunds.
    refunded: AtomicU64,
    /// Who is known to have exhausted a limit, and until when.
    exhausted: Cache<Subject, Instant>,
}

impl RateLimits {
    /// Starts counting as a task of `tasks`, and sweeping as one of `background`, until `stop`.
    #[must_use]
    pub(crate) fn start(
        database: Database,
        tasks: &TaskTracker,
        background: &TaskTracker,
        stop: CancellationToken,
    ) -> Self {
        background.spawn(store::sweep(database.clone(), WINDOW, stop));
        Self {
            hits: Batcher::start(
                "rate_limits",
                HITS,
                Hits {
                    database: database.clone(),
                },
                tasks,
            ),
            refunds: Batcher::start("rate_limit_refunds", HITS, Refunds { database }, tasks),
            refunded: AtomicU64::new(0),
            exhausted: Cache::builder()
                .max_capacity(MAX_CACHED)
                .time_to_live(WINDOW)
                .build(),
        }
    }

    /// Counts one request. A refused request does not count.
    ///
    /// # Errors
    /// See [`Limited`].
    pub(crate) async fn take(&self, subject: Subject) -> Result<Hit, Limited> {
        let refunded = self.refunded.load(SeqCst);
        let cached = self
            .exhausted
            .get(&subject)
            .map(|until| until.saturating_duration_since(Instant::now()));
        let next_in = match cached {
            Some(next_in) if !next_in.is_zero() => next_in,
            _ => match self
                .hits
                .submit(subject)
                .await
                .map_err(|_| Limited::Unavailable)?
            {
                Counted::Granted { at } => return Ok(Hit { subject, at }),
                Counted::Refused { next_in } => {
                    self.exhausted.insert(subject, Instant::now() + next_in);
                    if self.refunded.load(SeqCst) != refunded {
                        // Something was refunded meanwhile, perhaps to this subject.
                        self.exhausted.invalidate(&subject);
                    }
                    next_in
                }
            },
        };
        metrics::RATE_LIMITED.add([subject.kind()], 1);
        Err(Limited::Exceeded { next_in })
    }

    /// Removes a request from the count, because another limit refuses it.
    pub(crate) async fn refund(&self, hit: Hit) {
        // If this fails, the hit expires within a minute.
        let _ = self.refunds.submit(hit).await;
        self.refunded.fetch_add(1, SeqCst);
        self.exhausted.invalidate(&hit.subject);
    }
}
