//! Deliveries: signed bodies that passed every check.

use bytes::Bytes;
use letterbox_broker::{Receipt, WebhookDelivery};
use letterbox_common::{
    ids::{DeliveryId, WebhookId},
    webhook::WebhookAddress,
};

use super::item::IntakeItem;
use crate::{claims::DeliveryKey, webhook_secrets::Proven};

/// A checked delivery.
pub(crate) struct Delivery {
    address: WebhookAddress,
    proven: Proven,
    pub(crate) key: DeliveryKey,
    body: Bytes,
    receipt: Receipt,
}

impl Delivery {
    /// Creates a delivery.
    pub(crate) fn new(
        address: WebhookAddress,
        proven: Proven,
        body: Bytes,
        receipt: Receipt,
    ) -> Self {
        let same_by = proven.same_by.as_deref();
        Self {
            key: DeliveryKey::new(address, proven.memory, same_by, &body)
                .of_version(proven.version),
            address,
            proven,
            body,
            receipt,
        }
    }

    /// Its key, if another delivery could have that with another body.
    pub(crate) fn repeat(&self) -> Option<DeliveryKey> {
        self.proven.same_by.is_some().then_some(self.key)
    }
}

impl IntakeItem for Delivery {
    type Door = WebhookId;
    type Entry = WebhookDelivery;

    fn key(&self) -> DeliveryKey {
        self.key
    }

    fn receipt(&self) -> &Receipt {
        &self.receipt
    }

    fn length(&self) -> usize {
        let texts = [&self.proven.same_by, &self.proven.event_type];
        let texts: usize = texts.into_iter().flatten().map(String::len).sum();
        self.body.len() + self.proven.headers.length() + texts
    }

    fn into_entry(self, id: DeliveryId) -> (WebhookDelivery, Bytes) {
        let WebhookAddress { workspace, webhook } = self.address;
        let Proven {
            memory,
            headers,
            same_by,
            event_type,
            ..
        } = self.proven;
        let entry = WebhookDelivery {
            delivery: id,
            workspace,
            webhook,
            memory: (memory != webhook).then_some(memory),
            same_by,
            event_type,
            headers,
            receipt: self.receipt,
        };
        (entry, self.body)
    }
}
