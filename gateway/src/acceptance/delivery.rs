//! Deliveries: signed bodies that passed every check.

use bytes::Bytes;
use letterbox_broker::{Receipt, WebhookDelivery};
use letterbox_common::{
    ids::{DeliveryId, WebhookId, WorkspaceId},
    webhook::WebhookAddress,
};

use super::item::IntakeItem;
use crate::claims::DeliveryKey;

/// A checked delivery.
pub(crate) struct Delivery {
    address: WebhookAddress,
    memory: WebhookId,
    key: DeliveryKey,
    body: Bytes,
    receipt: Receipt,
}

impl Delivery {
    /// Creates a delivery. `memory` is the webhook under whose id its bodies are remembered.
    pub(crate) fn new(
        address: WebhookAddress,
        memory: WebhookId,
        body: Bytes,
        receipt: Receipt,
    ) -> Self {
        Self {
            address,
            memory,
            key: DeliveryKey::new(address, memory, &body),
            body,
            receipt,
        }
    }
}

impl IntakeItem for Delivery {
    type Key = DeliveryKey;
    type Entry = WebhookDelivery;

    const NAME: &'static str = "deliveries";

    fn key(&self) -> DeliveryKey {
        self.key
    }

    fn workspace(&self) -> WorkspaceId {
        self.address.workspace
    }

    fn receipt(&self) -> &Receipt {
        &self.receipt
    }

    fn length(&self) -> usize {
        self.body.len()
    }

    fn into_entry(self, id: DeliveryId) -> (WebhookDelivery, Bytes) {
        let WebhookAddress { workspace, webhook } = self.address;
        let entry = WebhookDelivery {
            delivery: id,
            workspace,
            webhook,
            memory: (self.memory != webhook).then_some(self.memory),
            receipt: self.receipt,
        };
        (entry, self.body)
    }
}
