//! A signed body that passed every check.

use bytes::Bytes;
use letterbox_broker::{Envelope, Receipt, WebhookDelivery};
use letterbox_common::{ids::DeliveryId, webhook::WebhookAddress};
use sha2::{Digest, Sha256};

use super::IntakeItem;
use crate::claims::DeliveryKey;

/// A checked body.
pub(crate) struct Delivery {
    pub(crate) address: WebhookAddress,
    pub(crate) body: Bytes,
    pub(crate) receipt: Receipt,
}

impl IntakeItem for Delivery {
    type Key = DeliveryKey;

    fn key(&self) -> DeliveryKey {
        DeliveryKey {
            address: self.address,
            body_sha256: Sha256::digest(&self.body).into(),
        }
    }

    fn into_message(self, id: DeliveryId) -> (Envelope, Bytes) {
        let WebhookAddress { workspace, webhook } = self.address;
        let receipt = self.receipt;
        let delivery = WebhookDelivery {
            delivery: id,
            workspace,
            webhook,
            receipt,
        };
        (Envelope::WebhookDelivery(delivery), self.body)
    }
}
