//! Claim, publish, settle: the part of a request that must not be split.
//!
//! It runs in a task of its own, which a sender that hangs up does not end and a stop of the process waits for. Between
//! any two of its steps the process may die: the claim's lease ends, a retry takes it over with the same id, and the worker
//! takes every id once.

use jiff::Timestamp;
use letterbox_common::{
    broker::{Envelope, Message, Publisher, WebhookDelivery, topology},
    ids::DeliveryId,
    webhook::WebhookAddress,
};
use sha2::{Digest, Sha256};
use tokio_util::task::TaskTracker;

use crate::claims::{Claim, Claimed, Claims, DeliveryKey};

/// A checked body, on its way in.
#[derive(Debug, Clone)]
pub struct Delivery {
    pub address: WebhookAddress,
    pub body: bytes::Bytes,
    pub received_at: Timestamp,
    pub traceparent: String,
}

/// What became of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accepted {
    /// Recorded, now.
    First,
    /// Recorded before.
    Duplicate,
    /// An identical one is under way.
    InProgress,
    /// The webhook was deleted meanwhile.
    Gone,
    /// Not known to be recorded: a server is away, or refuses. A retry is safe.
    Unavailable,
}

/// Accepts deliveries. Cheap to clone.
#[derive(Clone)]
pub struct Acceptance {
    pub claims: Claims,
    pub publisher: Publisher,
    pub tasks: TaskTracker,
    pub app_id: std::sync::Arc<str>,
}

impl Acceptance {
    /// Claims, publishes and settles in a task of its own. Dropping this future leaves that task alone.
    pub async fn accept(&self, delivery: Delivery) -> Accepted {
        let this = self.clone();
        let task = self.tasks.spawn(async move { this.claim_and_publish(delivery).await });
        task.await.unwrap_or(Accepted::Unavailable)
    }

    async fn claim_and_publish(&self, delivery: Delivery) -> Accepted {
        let key = DeliveryKey { address: delivery.address, body_sha256: Sha256::digest(&delivery.body).into() };
        match self.claims.claim(key).await {
            Ok(Claimed::Held(claim)) => self.publish(claim, delivery).await,
            Ok(Claimed::InProgress) => Accepted::InProgress,
            Ok(Claimed::Duplicate) => Accepted::Duplicate,
            Ok(Claimed::Gone) => Accepted::Gone,
            Err(_) => Accepted::Unavailable,
        }
    }

    async fn publish(&self, claim: Claim, delivery: Delivery) -> Accepted {
        match self.publisher.publish(self.message(claim.delivery, delivery)).await {
            Ok(()) => {
                // Unsettled it is safe all the same: a repeat publishes the same id once more.
                let _ = self.claims.settle(claim).await;
                Accepted::First
            }
            Err(error) => {
                tracing::debug!(delivery_id = %claim.delivery, %error, "not published");
                metrics::counter!("letterbox_publish_failures_total", "reason" => error.label()).increment(1);
                let _ = self.claims.give_back(claim).await;
                Accepted::Unavailable
            }
        }
    }

    fn message(&self, id: DeliveryId, delivery: Delivery) -> Message {
        let envelope = Envelope::WebhookDelivery(WebhookDelivery {
            delivery: id,
            workspace: delivery.address.workspace,
            webhook: delivery.address.webhook,
            received_at: delivery.received_at,
            traceparent: delivery.traceparent,
        });
        Message {
            exchange: topology::EXCHANGE,
            routing_key: topology::WEBHOOKS_KEY.into(),
            properties: envelope.properties(&self.app_id),
            body: delivery.body,
        }
    }
}
