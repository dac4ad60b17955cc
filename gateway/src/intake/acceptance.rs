//! Claim, publish, settle: the part of a request that must not be split.
//!
//! It runs in a task of its own, which a sender that hangs up does not end and a stop of the
//! process waits for. Between any two of its steps the process may die: the claim's lease ends, a
//! retry takes it over with the same id, and the worker takes every id once.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use letterbox_common::broker::{Envelope, Message, Publisher, topology};
use tokio_util::task::TaskTracker;

use crate::claims::{Claim, ClaimKey, Claimed, Claims};

/// A database that was away is given this much time to come back before a settle is given up.
const SETTLE_PAUSES: [Duration; 3] = [
    Duration::from_millis(500),
    Duration::from_secs(2),
    Duration::from_secs(5),
];

/// Something checked, on its way in.
pub trait Parcel: Send + 'static {
    type Key: ClaimKey;
    /// Names the queue that takes it.
    const ROUTING_KEY: &'static str;

    fn key(&self) -> Self::Key;
    fn envelope(&self, id: <Self::Key as ClaimKey>::Id) -> Envelope;
    fn into_body(self) -> Bytes;
}

/// What became of a parcel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accepted {
    /// Recorded, now.
    First,
    /// Recorded before.
    Duplicate,
    /// An identical one is under way.
    InProgress,
    /// The webhook or the form link has died meanwhile.
    Gone,
    /// Not known to be recorded: a server is away, or refuses. A retry is safe.
    Unavailable,
}

/// Accepts parcels of one kind. Cheap to clone.
pub struct Acceptance<P: Parcel> {
    pub claims: Claims<P::Key>,
    pub publisher: Publisher,
    pub tasks: TaskTracker,
    pub app_id: Arc<str>,
}

impl<P: Parcel> Clone for Acceptance<P> {
    fn clone(&self) -> Self {
        let Self {
            claims,
            publisher,
            tasks,
            app_id,
        } = self;
        Self {
            claims: claims.clone(),
            publisher: publisher.clone(),
            tasks: tasks.clone(),
            app_id: app_id.clone(),
        }
    }
}

impl<P: Parcel> Acceptance<P> {
    /// Claims, publishes and settles in a task of its own. Dropping this future leaves that task
    /// alone.
    pub async fn accept(&self, parcel: P) -> Accepted {
        let this = self.clone();
        let task = self
            .tasks
            .spawn(async move { this.claim_and_publish(parcel).await });
        task.await.unwrap_or(Accepted::Unavailable)
    }

    async fn claim_and_publish(&self, parcel: P) -> Accepted {
        match self.claims.claim(parcel.key()).await {
            Ok(Claimed::Held(claim)) => self.publish(claim, parcel).await,
            Ok(Claimed::InProgress) => Accepted::InProgress,
            Ok(Claimed::Duplicate) => Accepted::Duplicate,
            Ok(Claimed::Gone) => Accepted::Gone,
            Err(_) => Accepted::Unavailable,
        }
    }

    async fn publish(&self, claim: Claim<P::Key>, parcel: P) -> Accepted {
        let message = Message {
            exchange: topology::EXCHANGE,
            routing_key: P::ROUTING_KEY.into(),
            properties: parcel.envelope(claim.id).properties(&self.app_id),
            body: parcel.into_body(),
        };
        match self.publisher.publish(message).await {
            Ok(()) => {
                if self.claims.settle(claim).await.is_err() {
                    self.tasks.spawn(settle_later(self.claims.clone(), claim));
                }
                Accepted::First
            }
            Err(error) => {
                tracing::debug!(message_id = %claim.id, %error, "not published");
                metrics::counter!("letterbox_publish_failures_total", "reason" => error.label())
                    .increment(1);
                let _ = self.claims.give_back(claim).await;
                Accepted::Unavailable
            }
        }
    }
}

/// Tries again to note a confirm. Unsettled it is safe all the same: a repeat publishes the same id
/// once more.
async fn settle_later<K: ClaimKey>(claims: Claims<K>, claim: Claim<K>) {
    for pause in SETTLE_PAUSES {
        tokio::time::sleep(pause).await;
        if claims.settle(claim).await.is_ok() {
            return;
        }
    }
}
