//! Signals: what deliveries become. Mapping one is pure; storing many is one transaction.

mod amount;
mod proposal;
mod store;

use bytes::Bytes;
use letterbox_broker::{Receipt, WebhookDelivery};
use letterbox_common::{
    KeyHash,
    ids::{DeliveryId, WebhookId, WorkspaceId},
};

use self::proposal::Mapped;
pub(crate) use self::store::{STATEMENTS, store};

/// A delivery, mapped and ready to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Signal {
    pub(crate) id: DeliveryId,
    pub(crate) workspace: WorkspaceId,
    webhook: WebhookId,
    receipt: Receipt,
    mapped: Mapped,
    /// The exact bytes that were signed.
    body: Bytes,
}

impl Signal {
    /// The key that it was claimed under.
    pub(crate) fn key_hash(&self) -> KeyHash {
        KeyHash::of_content(self.webhook.as_bytes(), &self.body)
    }

    /// Maps a delivery. Whatever its body is, there is a signal for it.
    pub(crate) fn of_delivery(envelope: &WebhookDelivery, body: &Bytes) -> Self {
        Self {
            id: envelope.delivery,
            workspace: envelope.workspace,
            webhook: envelope.webhook,
            receipt: envelope.receipt.clone(),
            mapped: proposal::map(body),
            body: body.clone(),
        }
    }
}
