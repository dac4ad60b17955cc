//! Signals: deliveries, mapped and stored. Mapping is pure; a batch is stored in one transaction.

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
pub(crate) use self::store::STATEMENTS;

/// A delivery, mapped and ready to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Signal {
    pub(crate) id: DeliveryId,
    pub(crate) workspace: WorkspaceId,
    pub(crate) webhook: WebhookId,
    /// The webhook under whose id its body is remembered, if that is another one.
    pub(crate) memory: Option<WebhookId>,
    /// The key under which it was claimed.
    pub(crate) key: KeyHash,
    /// What was kept of the headers, as JSON text.
    headers: Option<String>,
    /// What its tool calls the event.
    event_type: Option<String>,
    receipt: Receipt,
    mapped: Mapped,
    /// The exact bytes that were signed.
    body: Bytes,
}

impl Signal {
    /// Maps a delivery. Every body becomes a signal.
    pub(crate) fn of_delivery(envelope: &WebhookDelivery, body: &Bytes) -> Self {
        Self {
            id: envelope.delivery,
            workspace: envelope.workspace,
            webhook: envelope.webhook,
            memory: envelope.memory,
            key: envelope.key_hash(body),
            headers: envelope.headers.to_json(),
            event_type: envelope.event_type.clone(),
            receipt: envelope.receipt.clone(),
            mapped: proposal::map(body),
            body: body.clone(),
        }
    }
}
