//! Claims: the right to publish a delivery or a submission. A claim is a durable row, made in a
//! batch before anything is published; its state is that of its batch, by the protocol in
//! `acceptance/README.md`.

mod key;
mod store;

use std::collections::{HashMap, hash_map::Entry};

use letterbox_common::text_enum;
use letterbox_database::DatabaseError;

pub use self::key::{ClaimKey, DeliveryKey, Door};
pub use self::store::Claims;
use self::store::{Found, WantedKeys};
pub(crate) use self::{key::SubmissionKey, store::STATEMENTS};
use crate::open_batches::BatchId;

text_enum! {
    /// The outcome of an attempt to record a delivery or a submission, as metrics have it.
    pub enum Outcome {
        /// Recorded by this attempt
        First = "first",
        /// Recorded by an earlier attempt
        Duplicate = "repeat",
        /// Being recorded by another attempt
        InProgress = "in_progress",
        /// The webhook or the form link is gone
        Gone = "gone",
        /// Not known to be recorded, because a server is away or refuses; a retry is safe
        Unavailable = "unavailable",
    }
}

impl<Id> Found<Id> {
    /// The outcome for a caller that claims nothing.
    fn outcome(self) -> Outcome {
        match self {
            Self::Gone => Outcome::Gone,
            Self::Settled => Outcome::Duplicate,
            Self::Open {
                lease_is_over: false,
                ..
            } => Outcome::InProgress,
            // Free to be claimed: the sender has to try again.
            Self::Unclaimed | Self::Open { .. } => Outcome::Unavailable,
        }
    }
}

/// The answer for each key: the id to publish under, which is the same for every attempt, or why
/// the caller does not hold the claim.
pub type Answers<D> = HashMap<ClaimKey<D>, Result<<D as Door>::Id, Outcome>>;

impl Claims {
    /// Claims each key into its batch, and answers each. A batch opens if anything is claimed into
    /// it. The statements themselves check that the webhook or form link is live, and close batches
    /// that are known to be confirmed.
    ///
    /// # Errors
    /// When the database did not answer. The batches may be open nevertheless, until their leases
    /// are over.
    pub async fn claim<D: Door>(
        &self,
        wanted: &[(ClaimKey<D>, BatchId)],
    ) -> Result<Answers<D>, DatabaseError> {
        let wanted = wanted.iter().map(|(key, batch)| WantedKeys {
            key: *key,
            batch: *batch,
            id: D::generate_id(),
        });
        let wanted: Vec<_> = wanted.collect();
        // Every id was generated for this attempt, so a returned one is the answer to it.
        let told = self.claim_new(&wanted).await?;
        let (told_now, rest): (Vec<_>, Vec<_>) = wanted
            .into_iter()
            .partition(|one| told.contains_key(&one.id));
        let mut answers = self.claim_known(rest).await?;
        answers.extend(told_now.into_iter().map(|one| {
            let answer = told[&one.id].then_some(one.id);
            (one.key, answer.ok_or(Outcome::Duplicate))
        }));
        Ok(answers)
    }

    /// Handles keys that could not be claimed anew: takes over claims whose lease is over, and
    /// finds out why the others are not to be had.
    async fn claim_known<D: Door>(
        &self,
        wanted: Vec<WantedKeys<D>>,
    ) -> Result<Answers<D>, DatabaseError> {
        // The usual case: everything was new, and one statement is enough.
        if wanted.is_empty() {
            return Ok(Answers::new());
        }
        let found = self.find_claims(wanted.iter().map(|one| &one.key)).await?;
        let mut answers = Answers::new();
        let mut free = HashMap::new();
        for one in wanted {
            // Nothing is returned for a key whose door is gone.
            let found = found.get(&one.key).copied().unwrap_or(Found::Gone);
            if let Found::Open {
                id,
                lease_is_over: true,
                ..
            } = found
                // Two webhooks that share their memory can want the same claim. It must go into one
                // batch only, the one whose message holds its entry.
                && let Entry::Vacant(place) = free.entry(id)
            {
                place.insert(one);
                continue;
            }
            let outcome = match found.outcome() {
                // It could not be claimed a moment ago, so its state is changing.
                Outcome::Unavailable => Outcome::InProgress,
                known => known,
            };
            answers.insert(one.key, Err(outcome));
        }
        if !free.is_empty() {
            let taken = self.take_over(free.values()).await?;
            answers.extend(free.into_iter().map(|(id, one)| {
                // If not, another gateway has taken it over or settled it since.
                let is_taken = taken.contains(&id);
                (one.key, is_taken.then_some(id).ok_or(Outcome::InProgress))
            }));
        }
        Ok(answers)
    }

    /// Whether another attempt has had a key for longer than a gateway takes that lives, and keeps
    /// it for a while: nobody need wait for that.
    pub(crate) async fn is_stalled<D: Door>(
        &self,
        key: ClaimKey<D>,
    ) -> Result<bool, DatabaseError> {
        let found = self.find_claims([&key].into_iter()).await?;
        let found = found.get(&key);
        Ok(matches!(found, Some(Found::Open { is_stalled, .. }) if *is_stalled))
    }

    /// Finds the outcomes of keys without claiming them: [`Outcome::Unavailable`] for a key that is
    /// neither recorded nor being recorded.
    pub(crate) async fn find<D: Door>(
        &self,
        keys: &[ClaimKey<D>],
    ) -> Result<HashMap<ClaimKey<D>, Outcome>, DatabaseError> {
        // Boxed, because few requests come here, and the futures of all would have room for it.
        let found = Box::pin(self.find_claims(keys.iter())).await?;
        let outcomes = keys.iter().map(|key| {
            let found = found.get(key).copied().unwrap_or(Found::Gone);
            (*key, found.outcome())
        });
        Ok(outcomes.collect())
    }
}
