//! Rate limits: a number of requests in any 60 seconds, exact across all gateways.
//!
//! Hits are counted in PostgreSQL, by its clock, in batches. A request that has a client and a
//! token counts against both or against neither, so nothing is ever given back. A subject that has
//! been refused is refused here, without asking, until its oldest hit has expired: a flood from one
//! client costs the database nothing. The cache can only shorten the way to a refusal, never let a
//! request through.

mod store;

use std::time::{Duration, Instant};

use letterbox_common::form::TokenHash;
use letterbox_database::Database;
use moka::sync::Cache;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub(crate) use self::store::STATEMENTS;
use self::store::{Counted, Requests};
use crate::{
    batcher::{Batcher, Limits, LookUps},
    client_address::ClientAddress,
    metrics,
};

/// Requests a minute with one token.
const MAX_PER_TOKEN: i32 = 20;
/// Requests a minute from one client.
const MAX_PER_CLIENT: i32 = 60;
const WINDOW: Duration = Duration::from_secs(60);
const REQUESTS: Limits = Limits {
    max_queued: 8_192,
    max_bytes: 1 << 20,
    max_batch: 512,
    max_batch_bytes: 1 << 20,
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
    requests: Batcher<LookUps<Requests>>,
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
        let requests = LookUps(Requests { database });
        Self {
            requests: Batcher::start("rate_limits", REQUESTS, requests, tasks),
            exhausted: Cache::builder()
                .max_capacity(MAX_CACHED)
                .time_to_live(WINDOW)
                .build(),
        }
    }

    /// Whether a subject is known to have exhausted its limit. Asks nobody and counts nothing.
    ///
    /// # Errors
    /// [`Limited::Exceeded`].
    pub(crate) fn check(&self, subject: Subject) -> Result<(), Limited> {
        let Some(until) = self.exhausted.get(&subject) else {
            return Ok(());
        };
        match until.saturating_duration_since(Instant::now()) {
            Duration::ZERO => Ok(()),
            next_in => Err(refuse(subject, next_in)),
        }
    }

    /// Counts one request against its client and, where it has one, its token: against both or
    /// neither. A refused request does not count.
    ///
    /// # Errors
    /// See [`Limited`].
    pub(crate) async fn take(
        &self,
        client: ClientAddress,
        token: Option<TokenHash>,
    ) -> Result<(), Limited> {
        self.check(Subject::Client(client))?;
        if let Some(token) = token {
            self.check(Subject::Token(token))?;
        }
        let counted = self.requests.look_up((client, token)).await;
        match counted.map_err(|_| Limited::Unavailable)? {
            Counted::Granted => Ok(()),
            Counted::Refused { by, next_in } => {
                self.exhausted.insert(by, Instant::now() + next_in);
                Err(refuse(by, next_in))
            }
        }
    }
}

fn refuse(subject: Subject, next_in: Duration) -> Limited {
    metrics::RATE_LIMITED.add([subject.kind()], 1);
    Limited::Exceeded { next_in }
}
