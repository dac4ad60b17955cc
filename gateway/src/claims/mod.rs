//! Claims: who may publish a delivery or a submission. A claim is a durable row, made in a batch
//! before anything is published; what becomes of it is what becomes of its batch, by the protocol
//! in `acceptance/README.md`.

mod key;
mod store;

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
    time::Duration,
};

use letterbox_database::{Database, DatabaseError};

pub use self::key::{ClaimKey, DeliveryKey};
use self::store::{Found, Wanted};
pub(crate) use self::{key::SubmissionKey, store::STATEMENTS};
use crate::open_batches::{BatchId, Settlements};

/// What became of something that asks to be recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Recorded, now.
    First,
    /// Recorded before.
    Duplicate,
    /// Being recorded, by somebody else.
    InProgress,
    /// The webhook or the form link is gone.
    Gone,
    /// Not known to be recorded: a server is away, or refuses. A retry is safe.
    Unavailable,
}

impl Outcome {
    /// Every outcome, in the order of their numbers.
    pub(crate) const ALL: [Self; 5] = [
        Self::First,
        Self::Duplicate,
        Self::InProgress,
        Self::Gone,
        Self::Unavailable,
    ];

    /// One word for metrics.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Duplicate => "repeat",
            Self::InProgress => "in_progress",
            Self::Gone => "gone",
            Self::Unavailable => "unavailable",
        }
    }
}

/// The answers to keys: the id that the caller holds and publishes under, the same for every
/// attempt at the key, or why it holds none.
pub type Answers<K> = HashMap<K, Result<<K as ClaimKey>::Id, Outcome>>;

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

    /// Claims keys, each into a batch that opens here if anything is claimed into it, and answers
    /// each. The statements themselves check that the webhook or form link is live. What is known
    /// to be recorded is settled on the way.
    ///
    /// # Errors
    /// When the database did not answer. The batches may be open all the same, until their leases
    /// are over.
    pub async fn claim<K: ClaimKey>(
        &self,
        wanted: &[(K, BatchId)],
    ) -> Result<Answers<K>, DatabaseError> {
        let wanted = wanted.iter().map(|(key, batch)| Wanted::new(*key, *batch));
        let wanted: Vec<_> = wanted.collect();
        let claimed = self.claim_new(&wanted).await?;
        let (claimed, rest): (Vec<_>, Vec<_>) = wanted
            .into_iter()
            .partition(|one| claimed.contains(&one.id));
        let mut answers = self.claim_known(rest).await?;
        answers.extend(claimed.into_iter().map(|one| (one.key, Ok(one.id))));
        Ok(answers)
    }

    /// Says of each why it could not be claimed anew, or takes over what nobody holds any more.
    async fn claim_known<K: ClaimKey>(
        &self,
        wanted: Vec<Wanted<K>>,
    ) -> Result<Answers<K>, DatabaseError> {
        if wanted.is_empty() {
            return Ok(Answers::new());
        }
        let found = self.find_claims(wanted.iter().map(|one| &one.key)).await?;
        let (mut answers, mut free) = (Answers::new(), HashMap::new());
        for one in wanted {
            let found = found.get(&one.key).copied().unwrap_or(Found::Gone);
            if let Found::Open {
                id,
                lease_is_over: true,
            } = found
                // Two webhooks that share their memory can ask for one claim: it goes into the
                // batch of one of them, and the other is answered that it is in progress.
                && let Entry::Vacant(place) = free.entry(id)
            {
                place.insert(one);
                continue;
            }
            let outcome = match found {
                Found::Gone => Outcome::Gone,
                Found::Settled => Outcome::Duplicate,
                // Without a row it had one a moment ago.
                Found::Unclaimed | Found::Open { .. } => Outcome::InProgress,
            };
            answers.insert(one.key, Err(outcome));
        }
        if !free.is_empty() {
            let taken = self.take_over(free.values()).await?;
            answers.extend(free.into_iter().map(|(id, one)| {
                let is_taken = taken.contains(&id);
                (one.key, is_taken.then_some(id).ok_or(Outcome::InProgress))
            }));
        }
        Ok(answers)
    }

    /// What became of keys, without claiming them: [`Outcome::Unavailable`] where nobody has
    /// recorded them or is at it.
    ///
    /// # Errors
    /// When the database did not answer.
    pub(crate) async fn find<K: ClaimKey>(
        &self,
        keys: &[K],
    ) -> Result<HashMap<K, Outcome>, DatabaseError> {
        // Boxed: few requests come here, and all of them would have room for it.
        let found = Box::pin(self.find_claims(keys.iter())).await?;
        let outcomes = keys.iter().map(|key| {
            let outcome = match found.get(key).copied().unwrap_or(Found::Gone) {
                Found::Gone => Outcome::Gone,
                Found::Settled => Outcome::Duplicate,
                Found::Open {
                    lease_is_over: false,
                    ..
                } => Outcome::InProgress,
                Found::Unclaimed | Found::Open { .. } => Outcome::Unavailable,
            };
            (*key, outcome)
        });
        Ok(outcomes.collect())
    }
}
