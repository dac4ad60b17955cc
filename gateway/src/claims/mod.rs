//! Claims: who may publish a delivery or a submission. A claim is a durable row with a lease, made
//! before anything is published.
//!
//! ```text
//! (no row) ──claim──> claimed ──confirmed──> settled: every repeat is a duplicate
//!                      │   ↑
//!                      │   └─ claim again, when the lease is over: same message id, next attempt
//!                      └─ not published: the lease ends at once
//! ```
//!
//! The lease is only economy: two holders at once would publish the same id twice, which the worker
//! takes once. Attempts are counted so that a holder whose lease was taken over can't settle or
//! give back what is not its own any more.

mod key;
mod store;

use std::time::Duration;

use deadpool_postgres::Pool;
use letterbox_common::database::DatabaseError;
use tokio_util::task::TaskTracker;

use self::store::{Claiming, Settling};
use crate::batcher::{BatchError, Batcher, Limits};

pub use self::{
    key::{ClaimKey, DeliveryKey, SubmissionKey},
    store::Statements,
};

const CLAIMS: Limits = Limits {
    queue: 8_192,
    batch: 512,
    lanes: 2,
};
const SETTLES: Limits = Limits {
    queue: 8_192,
    batch: 512,
    lanes: 1,
};

/// A claim that is held. Whoever holds it settles it or gives it back; forgotten, it ends by
/// itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim<K: ClaimKey> {
    pub key: K,
    /// Id of the message to publish: the same for every attempt at this key.
    pub id: K::Id,
    attempt: i32,
}

/// The answer to a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claimed<K: ClaimKey> {
    /// Nobody has it: publish.
    Held(Claim<K>),
    /// Somebody else holds it.
    InProgress,
    /// It has been published before.
    Duplicate,
    /// The webhook or the form link does not live any more.
    Gone,
}

/// How a claim ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
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
    pub fn start(pool: Pool, lease: Duration, tasks: &TaskTracker) -> Self {
        let (claims, settles) = K::BATCHERS;
        Self {
            claiming: Batcher::start(claims, CLAIMS, Claiming::new(pool.clone(), lease), tasks),
            settling: Batcher::start(settles, SETTLES, Settling::new(pool), tasks),
        }
    }

    /// Claims a key. The statement itself checks that its webhook or form link lives.
    ///
    /// # Errors
    /// When the database did not answer: the claim may stand all the same, until its lease is over.
    pub async fn claim(&self, key: K) -> Result<Claimed<K>, BatchError<DatabaseError>> {
        self.claiming.submit((key, K::generate_id())).await
    }

    /// Notes that the broker has confirmed. From then on every repeat is a duplicate.
    ///
    /// # Errors
    /// When the database did not answer: a repeat will publish the same id again.
    pub async fn settle(&self, claim: Claim<K>) -> Result<(), BatchError<DatabaseError>> {
        self.settling.submit((claim, End::Confirmed)).await
    }

    /// Ends the lease at once: the next try is a first again, with the same id.
    ///
    /// # Errors
    /// When the database did not answer: the lease ends by itself.
    pub async fn give_back(&self, claim: Claim<K>) -> Result<(), BatchError<DatabaseError>> {
        self.settling.submit((claim, End::NotPublished)).await
    }
}
