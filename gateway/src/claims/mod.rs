//! Claims: who may publish a delivery or a submission. A claim is a durable row with a lease, made
//! before anything is published.
//!
//! ```text
//! (no row) ──claim──> claimed ──confirmed──> settled: every repeat is a duplicate
//!                      │   ↑
//!                      │   └─ claimed again, when the lease is over: same message id, next attempt
//!                      └─ not published: the lease ends at once
//! ```
//! The lease only saves work: two holders at once would publish the same id twice, which the worker
//! takes once. Attempts are counted so that a holder whose lease was taken over can't settle or
//! free what is no longer its own.

mod key;
mod store;

use std::time::Duration;

use letterbox_database::{Database, DatabaseError, Statement};
use tokio_util::task::TaskTracker;

use self::store::{Claiming, Settling};
use crate::batcher::{BatchError, Batcher, Limits};

pub(crate) use self::key::SubmissionKey;
pub use self::key::{ClaimKey, DeliveryKey};

/// The statements of every kind of claim.
pub(crate) fn statements() -> impl Iterator<Item = &'static Statement> {
    DeliveryKey::STATEMENTS
        .all()
        .into_iter()
        .chain(SubmissionKey::STATEMENTS.all())
}

const CLAIMS: Limits = Limits {
    max_queued: 8_192,
    max_batch: 512,
    max_in_flight: 2,
};
const SETTLES: Limits = Limits {
    max_queued: 8_192,
    max_batch: 512,
    max_in_flight: 1,
};

/// A claim that is held. Its holder settles it or frees it; otherwise it ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim<K: ClaimKey> {
    pub(crate) key: K,
    /// Id of the message to publish: the same for every attempt at this key.
    pub id: K::Id,
    attempt: i32,
}

/// The answer to a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claimed<K: ClaimKey> {
    /// The caller has it: publish.
    Held(Claim<K>),
    /// Somebody else holds it.
    InProgress,
    /// It has been published before.
    Duplicate,
    /// The webhook or the form link is gone.
    Gone,
}

/// How a claim ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Confirmed,
    NotPublished,
}

/// Makes and ends claims of one kind, in batches.
#[derive(Clone)]
pub struct Claims<K: ClaimKey> {
    claiming: Batcher<Claiming<K>>,
    settling: Batcher<Settling<K>>,
}

impl<K: ClaimKey> Claims<K> {
    /// Starts the batchers as tasks of `tasks`. A claim holds for `lease`, by the database's clock.
    #[must_use]
    pub fn start(database: Database, lease: Duration, tasks: &TaskTracker) -> Self {
        let (claims, settles) = K::BATCHERS;
        Self {
            claiming: Batcher::start(
                claims,
                CLAIMS,
                Claiming::new(database.clone(), lease),
                tasks,
            ),
            settling: Batcher::start(settles, SETTLES, Settling::new(database), tasks),
        }
    }

    /// Claims a key. The statement itself checks that the webhook or form link is live.
    ///
    /// # Errors
    /// When the database did not answer: the claim may stand all the same, until its lease is over.
    pub async fn claim(&self, key: K) -> Result<Claimed<K>, BatchError<DatabaseError>> {
        self.claiming.submit((key, K::generate_id())).await
    }

    /// Records that the broker has confirmed. From then on every repeat is a duplicate.
    ///
    /// # Errors
    /// When the database did not answer: a repeat will publish the same id again.
    pub async fn settle(&self, claim: Claim<K>) -> Result<(), BatchError<DatabaseError>> {
        self.settling.submit((claim, End::Confirmed)).await
    }

    /// Ends the lease at once, because nothing was published: the next try is a first again, with
    /// the same id.
    ///
    /// # Errors
    /// When the database did not answer: the lease ends by itself.
    pub(crate) async fn free(&self, claim: Claim<K>) -> Result<(), BatchError<DatabaseError>> {
        self.settling.submit((claim, End::NotPublished)).await
    }
}
