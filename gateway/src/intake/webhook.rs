//! A signed delivery, from its URL to its answer. The order of the stages is the contract's.

use bytes::Bytes;
use hyper::{
    Request,
    body::Incoming,
    header::{HeaderMap, HeaderName},
};
use jiff::Timestamp;
use letterbox_common::{
    broker::{Envelope, Receipt, WebhookDelivery, topology},
    ids::DeliveryId,
    webhook::{SIGNATURE_HEADER, Signature, WebhookAddress},
};
use sha2::{Digest, Sha256};

use super::{Accepted, Parcel, content_type};
use crate::{
    body, claims::DeliveryKey, error::Refusal, json, server::Gateway, trace,
    webhook_secrets::VerifyError,
};

/// A checked body.
pub struct Delivery {
    address: WebhookAddress,
    body: Bytes,
    receipt: Receipt,
}

impl Parcel for Delivery {
    type Key = DeliveryKey;
    const ROUTING_KEY: &'static str = topology::WEBHOOKS_KEY;

    fn key(&self) -> DeliveryKey {
        DeliveryKey {
            address: self.address,
            body_sha256: Sha256::digest(&self.body).into(),
        }
    }

    fn envelope(&self, id: DeliveryId) -> Envelope {
        let WebhookAddress { workspace, webhook } = self.address;
        Envelope::WebhookDelivery(WebhookDelivery {
            delivery: id,
            workspace,
            webhook,
            receipt: self.receipt.clone(),
        })
    }

    fn into_body(self) -> Bytes {
        self.body
    }
}

/// What the sender hears about an accepted delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recorded {
    First,
    Duplicate,
}

/// Takes one delivery for the webhook that `token`, the last segment of the URL, names.
///
/// # Errors
/// The first stage that fails answers.
pub async fn receive(
    gateway: &Gateway,
    token: &str,
    request: Request<Incoming>,
) -> Result<Recorded, Refusal> {
    let received_at = Timestamp::now();

    // The shape of the URL.
    let (head, incoming) = request.into_parts();
    let Ok(address) = token.parse() else {
        body::discard(&head.headers, incoming);
        return Err(Refusal::not_found());
    };

    // Size.
    let body = body::read(&head.headers, incoming).await?;

    // Everything that needs a server, within the time that a sender will wait.
    let answering = answer(gateway, address, &head.headers, body, received_at);
    tokio::time::timeout(gateway.answer_deadline, answering)
        .await
        .unwrap_or_else(|_| Err(Refusal::temporarily_unavailable()))
}

async fn answer(
    gateway: &Gateway,
    address: WebhookAddress,
    headers: &HeaderMap,
    body: Bytes,
    received_at: Timestamp,
) -> Result<Recorded, Refusal> {
    // Signature, before anything is parsed.
    gateway
        .secrets
        .verify(address, &body, signature(headers))
        .await
        .map_err(|error| match error {
            VerifyError::Refused => Refusal::invalid_signature(),
            VerifyError::Unavailable => Refusal::temporarily_unavailable(),
        })?;

    // Content type, UTF-8, JSON.
    if !content_type::is_json(headers) {
        return Err(Refusal::invalid_input(
            "The Content-Type has to be application/json",
        ));
    }
    json::check(&body).map_err(|error| Refusal::invalid_input(error.to_string()))?;

    // Claim, publish, confirm.
    let receipt = Receipt {
        received_at,
        traceparent: trace::traceparent(headers),
    };
    match gateway
        .deliveries
        .accept(Delivery {
            address,
            body,
            receipt,
        })
        .await
    {
        Accepted::First => Ok(Recorded::First),
        Accepted::Duplicate => Ok(Recorded::Duplicate),
        Accepted::InProgress => Err(Refusal::delivery_in_progress()),
        Accepted::Unavailable => Err(Refusal::temporarily_unavailable()),
        Accepted::Gone => {
            gateway.secrets.forget(address);
            Err(Refusal::invalid_signature())
        }
    }
}

/// The one signature of a request; missing, repeated and malformed are alike.
fn signature(headers: &HeaderMap) -> Option<Signature> {
    let mut given = headers
        .get_all(HeaderName::from_static(SIGNATURE_HEADER))
        .iter();
    match (given.next(), given.next()) {
        (Some(value), None) => Signature::parse(value.as_bytes()).ok(),
        _ => None,
    }
}
