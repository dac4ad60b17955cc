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

use std::{collections::HashMap, sync::Arc, time::Duration};

use letterbox_database::{Database, DatabaseError, Statement};

pub(crate) use self::key::SubmissionKey;
pub use self::key::{ClaimKey, DeliveryKey};
use self::store::{Known, Wanted};
use crate::open_batches::{BatchId, Settlements};

/// The statements of every kind of claim.
pub(crate) fn statements() -> impl Iterator<Item = &'static Statement> {
    DeliveryKey::STATEMENTS
        .all()
        .into_iter()
        .chain(SubmissionKey::STATEMENTS.all())
        .chain(store::STATEMENTS.iter().copied())
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
    /// The webhook or the form link is gone.
    Gone,
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

    /// Claims keys, each into a batch that opens here if anything is claimed into it; an answer for
    /// each, in their order. No key may stand there twice. The statements themselves check that the
    /// webhook or form link is live. What is known to be recorded is settled on the way.
    ///
    /// # Errors
    /// When the database did not answer. The batches may be open all the same, until their leases
    /// are over.
    pub async fn claim<K: ClaimKey>(
        &self,
        wanted: &[(K, BatchId)],
    ) -> Result<Vec<Claimed<K::Id>>, DatabaseError> {
        let wanted = wanted.iter().map(|(key, batch)| Wanted::new(*key, *batch));
        let wanted: Vec<_> = wanted.collect();
        let claimed = self.claim_new(&wanted).await?;
        let is_rest = |one: &&Wanted<K>| !claimed.contains(&one.id);
        let rest: Vec<_> = wanted.iter().filter(is_rest).collect();
        let mut rest = self.claim_known(&rest).await?.into_iter();
        let answers = wanted.iter().map(|one| {
            if claimed.contains(&one.id) {
                return Claimed::Held(one.id);
            }
            rest.next().unwrap_or(Claimed::Gone)
        });
        Ok(answers.collect())
    }

    /// Says of each why it could not be claimed anew, or takes over what nobody holds any more.
    async fn claim_known<K: ClaimKey>(
        &self,
        rest: &[&Wanted<K>],
    ) -> Result<Vec<Claimed<K::Id>>, DatabaseError> {
        if rest.is_empty() {
            return Ok(Vec::new());
        }
        let known = self
            .find_claims(rest.iter().map(|wanted| &wanted.key))
            .await?;
        let (mut answers, mut free, mut places) = (Vec::new(), Vec::new(), HashMap::new());
        for (place, wanted) in rest.iter().enumerate() {
            answers.push(match known.get(&place) {
                None => Claimed::Gone,
                Some(Some(Known::Settled)) => Claimed::Duplicate,
                Some(Some(Known::Open { id, lease_is_over })) => {
                    if *lease_is_over {
                        free.push(*wanted);
                        places.insert(*id, place);
                    }
                    Claimed::InProgress
                }
                // It was there a moment ago.
                Some(None) => Claimed::InProgress,
            });
        }
        if !free.is_empty() {
            for id in self.take_over(&free).await? {
                if let Some(place) = places.get(&id) {
                    answers[*place] = Claimed::Held(id);
                }
            }
        }
        Ok(answers)
    }

    /// What is known of keys, in their order.
    ///
    /// # Errors
    /// When the database did not answer.
    pub(crate) async fn find<K: ClaimKey>(
        &self,
        keys: &[K],
    ) -> Result<Vec<KeyState>, DatabaseError> {
        // Boxed: few requests come here, and all of them would have room for it.
        let known = Box::pin(self.find_claims(keys.iter())).await?;
        let states = (0..keys.len()).map(|place| match known.get(&place) {
            Some(Some(Known::Settled)) => KeyState::Recorded,
            Some(Some(Known::Open {
                lease_is_over: false,
                ..
            })) => KeyState::InProgress,
            Some(_) => KeyState::New,
            None => KeyState::Gone,
        });
        Ok(states.collect())
    }
}
