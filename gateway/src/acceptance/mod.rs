//! Claim, publish, settle: the part of a request that must not be split.
//!
//! It runs in a task of its own, which a sender that hangs up does not end and a shutdown waits
//! for. Between any two of its steps the process may die: the claim's lease ends, a retry takes it
//! over with the same id, and the worker takes every id once.

mod delivery;
mod submission;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use letterbox_broker::{Envelope, Publisher};
use tokio_util::task::TaskTracker;

pub(crate) use self::{delivery::Delivery, submission::Submission};
use crate::{
    claims::{Claim, ClaimKey, Claimed, Claims},
    metrics,
};

/// Pauses between tries to settle while the database is away. Then settling is given up.
const SETTLE_PAUSES: [Duration; 3] = [
    Duration::from_millis(500),
    Duration::from_secs(2),
    Duration::from_secs(5),
];

/// Something that passed every check and is about to be accepted.
pub(crate) trait IntakeItem: Send + 'static {
    type Key: ClaimKey;

    /// What is claimed for it.
    fn key(&self) -> Self::Key;

    /// The message that carries it, under the id that its claim has.
    fn into_message(self, id: <Self::Key as ClaimKey>::Id) -> (Envelope, Bytes);
}

/// What became of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Accepted {
    /// Recorded, now.
    First,
    /// Recorded before.
    Duplicate,
    /// An identical one is being recorded.
    InProgress,
    /// The webhook or the form link is gone.
    Gone,
    /// Not known to be recorded: a server is away, or refuses. A retry is safe.
    Unavailable,
}

/// Accepts items of one kind. Cheap to clone.
pub(crate) struct Acceptance<I: IntakeItem> {
    pub(crate) claims: Claims<I::Key>,
    pub(crate) publisher: Publisher,
    pub(crate) tasks: TaskTracker,
    pub(crate) app_id: Arc<str>,
}

impl<I: IntakeItem> Clone for Acceptance<I> {
    fn clone(&self) -> Self {
        Self {
            claims: self.claims.clone(),
            publisher: self.publisher.clone(),
            tasks: self.tasks.clone(),
            app_id: self.app_id.clone(),
        }
    }
}

impl<I: IntakeItem> Acceptance<I> {
    /// Claims, publishes and settles in a task of its own. Dropping this future does not stop it.
    pub(crate) async fn accept(&self, item: I) -> Accepted {
        let this = self.clone();
        let task = self
            .tasks
            .spawn(async move { this.claim_and_publish(item).await });
        task.await.unwrap_or(Accepted::Unavailable)
    }

    async fn claim_and_publish(&self, item: I) -> Accepted {
        match self.claims.claim(item.key()).await {
            Ok(Claimed::Held(claim)) => self.publish(claim, item).await,
            Ok(Claimed::InProgress) => Accepted::InProgress,
            Ok(Claimed::Duplicate) => Accepted::Duplicate,
            Ok(Claimed::Gone) => Accepted::Gone,
            Err(_) => Accepted::Unavailable,
        }
    }

    async fn publish(&self, claim: Claim<I::Key>, item: I) -> Accepted {
        let (envelope, body) = item.into_message(claim.id);
        match self
            .publisher
            .publish(envelope.into_message(&self.app_id, body))
            .await
        {
            Ok(()) => {
                if self.claims.settle(claim).await.is_err() {
                    self.tasks.spawn(settle_later(self.claims.clone(), claim));
                }
                Accepted::First
            }
            Err(error) => {
                tracing::debug!(message_id = %claim.id, %error, "not published");
                metrics::PUBLISH_FAILURES.add([error.label()], 1);
                // If this fails, the lease ends by itself.
                let _ = self.claims.free(claim).await;
                Accepted::Unavailable
            }
        }
    }
}

/// Tries again to record a confirm. Unsettled it is safe, too: a repeat publishes the same id once
/// more.
async fn settle_later<K: ClaimKey>(claims: Claims<K>, claim: Claim<K>) {
    for pause in SETTLE_PAUSES {
        tokio::time::sleep(pause).await;
        if claims.settle(claim).await.is_ok() {
            return;
        }
    }
}
