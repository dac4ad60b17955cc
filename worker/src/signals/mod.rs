//! Signals: what deliveries become. Reading one is pure; storing many is one statement.

mod amount;
pub mod proposal;
mod store;

use jiff::Timestamp;
use letterbox_common::{
    broker::WebhookDelivery,
    ids::{DeliveryId, WebhookId, WorkspaceId},
};

pub use self::{
    amount::Amount,
    proposal::Mapped,
    store::{INSERT_SIGNALS, store},
};

/// A delivery, mapped and ready to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signal {
    pub id: DeliveryId,
    pub workspace: WorkspaceId,
    pub webhook: WebhookId,
    pub received_at: Timestamp,
    pub mapped: Mapped,
    /// The exact bytes that were signed.
    pub body: Vec<u8>,
}

/// Maps a delivery. Whatever its body is, there is a signal for it.
#[must_use]
pub fn read(envelope: &WebhookDelivery, body: &[u8]) -> Signal {
    Signal {
        id: envelope.delivery,
        workspace: envelope.workspace,
        webhook: envelope.webhook,
        received_at: envelope.receipt.received_at,
        mapped: proposal::map(body),
        body: body.to_vec(),
    }
}
