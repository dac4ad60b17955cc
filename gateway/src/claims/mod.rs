//! Claims: who may publish a delivery. A claim is a durable row with a lease, made before anything is published.
//!
//! ```text
//! (no row) ──claim──> claimed ──confirmed──> settled: every repeat is a duplicate
//!                      │   ↑
//!                      │   └─ claim again, when the lease is over: same delivery id, next attempt
//!                      └─ not published: the lease ends at once
//! ```
//!
//! The lease is only economy: two holders at once would publish the same id twice, which the worker takes once. Attempts
//! are counted so that a holder whose lease was taken over can't settle or give back what is not its own any more.

mod store;

use std::time::Duration;

use deadpool_postgres::Pool;
use letterbox_common::{database::DatabaseError, ids::DeliveryId, webhook::WebhookAddress};
use tokio_util::task::TaskTracker;

use self::store::{Claiming, Settling};
use crate::batcher::{BatchError, Batcher, Limits};

pub use self::store::STATEMENTS;

const CLAIMS: Limits = Limits { queue: 8_192, batch: 512, lanes: 2 };
const SETTLES: Limits = Limits { queue: 8_192, batch: 512, lanes: 1 };

/// What is claimed: one distinct body of one webhook. Ordered as the table's key is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeliveryKey {
    pub address: WebhookAddress,
    /// SHA-256 of the exact body.
    pub body_sha256: [u8; 32],
}

/// A claim that is held. Whoever holds it settles it or gives it back; forgotten, it ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    pub key: DeliveryKey,
    /// The same for every attempt at this key.
    pub delivery: DeliveryId,
    attempt: i32,
}

/// The answer to a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claimed {
    /// Nobody has it: publish.
    Held(Claim),
    /// Somebody else holds it.
    InProgress,
    /// It has been published before.
    Duplicate,
    /// The webhook does not exist any more.
    Gone,
}

/// How a claim ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Confirmed,
    NotPublished,
}

/// Makes and ends claims, in batches.
#[derive(Clone)]
pub struct Claims {
    claiming: Batcher<Claiming>,
    settling: Batcher<Settling>,
}

impl Claims {
    /// Starts the batchers as tasks of `tasks`. A claim holds for `lease`, by the database's clock.
    #[must_use]
    pub fn start(pool: Pool, lease: Duration, tasks: &TaskTracker) -> Self {
        let claiming = Claiming { pool: pool.clone(), lease };
        Self {
            claiming: Batcher::start("claims", CLAIMS, claiming, tasks),
            settling: Batcher::start("settles", SETTLES, Settling { pool }, tasks),
        }
    }

    /// Claims a delivery. The statement itself checks that the webhook lives.
    ///
    /// # Errors
    /// When the database did not answer: the claim may stand all the same, until its lease is over.
    pub async fn claim(&self, key: DeliveryKey) -> Result<Claimed, BatchError<DatabaseError>> {
        self.claiming.submit((key, DeliveryId::generate())).await
    }

    /// Notes that the broker has confirmed. From then on every repeat is a duplicate.
    ///
    /// # Errors
    /// When the database did not answer: a repeat will publish the same id again.
    pub async fn settle(&self, claim: Claim) -> Result<(), BatchError<DatabaseError>> {
        self.settling.submit((claim, End::Confirmed)).await
    }

    /// Ends the lease at once: the next try is a first again, with the same id.
    ///
    /// # Errors
    /// When the database did not answer: the lease ends by itself.
    pub async fn give_back(&self, claim: Claim) -> Result<(), BatchError<DatabaseError>> {
        self.settling.submit((claim, End::NotPublished)).await
    }
}
