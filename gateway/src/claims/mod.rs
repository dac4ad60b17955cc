//! Claims: who may publish a delivery or a submission. A claim is a durable row, made in a batch
//! before anything is published; what becomes of it is what becomes of its batch.
//!
//! ```text
//! (no row) ──claim──> claimed in an open batch ──batch closed, or spilled──> settled: a duplicate
//!                      │   ↑
//!                      └───┘ claimed again when the lease is over: same id, into a new batch
//! ```
//! The lease only saves work: two holders at once would publish the same id twice, which the worker
//! takes once.

mod key;
mod store;

use std::{sync::Arc, time::Duration};

use letterbox_database::{Database, DatabaseError, Statement};

pub(crate) use self::key::SubmissionKey;
pub use self::key::{ClaimKey, DeliveryKey, KeyHash};
use crate::open_batches::{BatchId, Settlements};

/// The statements of every kind of claim.
pub(crate) fn statements() -> impl Iterator<Item = &'static Statement> {
    DeliveryKey::STATEMENTS
        .all()
        .into_iter()
        .chain(SubmissionKey::STATEMENTS.all())
}

/// The answer to a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claimed<Id> {
    /// The caller has it: publish under this id, which is the same for every attempt at the key.
    Held(Id),
    /// Somebody else holds it.
    InProgress,
    /// It has been recorded before.
    Duplicate,
    /// The webhook or the form link is gone.
    Gone,
}

/// What is known of a key without claiming it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyState {
    /// Nothing, or what was claimed under it was not recorded.
    New,
    /// It is being recorded.
    InProgress,
    /// It has been recorded.
    Recorded,
}

/// Makes claims in batches. Cheap to clone.
#[derive(Clone)]
pub struct Claims {
    database: Database,
    lease: Duration,
    settlements: Arc<Settlements>,
}

impl Claims {
    /// A claim holds for `lease`, by the database's clock.
    #[must_use]
    pub fn new(database: Database, lease: Duration, settlements: Arc<Settlements>) -> Self {
        Self {
            database,
            lease,
            settlements,
        }
    }

    /// Claims keys, each into a batch that opens here; an answer for each, in their order. No key
    /// may stand there twice. The statement itself checks that the webhook or form link is live.
    /// What is known to be recorded is settled on the way.
    ///
    /// # Errors
    /// When the database did not answer. The batches may be open all the same, until their leases
    /// are over.
    pub async fn claim<K: ClaimKey>(
        &self,
        wanted: &[(K, BatchId)],
    ) -> Result<Vec<Claimed<K::Id>>, DatabaseError> {
        let wanted: Vec<_> = wanted
            .iter()
            .map(|(key, batch)| store::Wanted::new(*key, *batch))
            .collect();
        let mut claimed = self.claim_new(&wanted).await?;
        let rest: Vec<usize> = (0..wanted.len())
            .filter(|index| claimed[*index].is_none())
            .collect();
        if !rest.is_empty() {
            let known = rest.iter().map(|index| &wanted[*index]).collect();
            let answers = self.claim_known(known).await?;
            for (index, answer) in rest.into_iter().zip(answers) {
                claimed[index] = Some(answer);
            }
        }
        Ok(claimed
            .into_iter()
            .map(|answer| answer.unwrap_or(Claimed::Gone))
            .collect())
    }
}
