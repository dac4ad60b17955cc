//! A signed delivery, from its URL to its answer. The order of the stages is the contract's.

use std::pin::pin;

use bytes::Bytes;
use hyper::{
    Request,
    body::Incoming,
    header::{HeaderMap, HeaderName},
};
use jiff::Timestamp;
use letterbox_broker::Receipt;
use letterbox_common::webhook::{SIGNATURE_HEADER, Signature, WebhookAddress};

use super::content_type;
use crate::{
    acceptance::{Accepted, Delivery},
    body,
    claims::{DeliveryKey, KeyState},
    error::Refusal,
    json, request_id,
    state::Gateway,
    trace,
    webhook_secrets::VerifyError,
};

const SIGNATURE: HeaderName = HeaderName::from_static(SIGNATURE_HEADER);

/// An accepted delivery, as its sender is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Recorded {
    First,
    Duplicate,
}

/// Takes one delivery for the webhook that `token`, the last segment of the URL, names.
///
/// # Errors
/// The first stage that fails answers.
pub(crate) async fn receive(
    gateway: &Gateway,
    token: &str,
    request: Request<Incoming>,
) -> Result<Recorded, Refusal> {
    let received_at = Timestamp::now();

    // The shape of the URL.
    let (head, incoming) = request.into_parts();
    let Ok(address) = token.parse() else {
        return Err(body::refuse(&head.headers, incoming, Refusal::not_found()));
    };

    // Size.
    let body = body::read(&head.headers, incoming).await?;

    // Everything that needs a server, within the time that a sender waits.
    let accepting = pin!(accept(gateway, address, &head.headers, body, received_at));
    tokio::time::timeout(gateway.answer_deadline, accepting)
        .await
        .unwrap_or_else(|_| Err(Refusal::temporarily_unavailable()))
}

async fn accept(
    gateway: &Gateway,
    address: WebhookAddress,
    headers: &HeaderMap,
    body: Bytes,
    received_at: Timestamp,
) -> Result<Recorded, Refusal> {
    // Signature, before anything is parsed.
    let verifying = gateway.secrets.verify(address, &body, signature(headers));
    verifying.await.map_err(refuse)?;

    // Content type, UTF-8, JSON. A webhook that was deleted a moment ago refuses whatever it gets.
    if let Err(refusal) = check_json(headers, &body) {
        gateway.secrets.find(address).await.map_err(refuse)?;
        return Err(refusal);
    }

    // Room. What was recorded before needs none.
    if gateway.ceilings.is_reached(address).await {
        return without_room(gateway, address, &body).await;
    }

    // Claim, publish, confirm.
    let receipt = Receipt {
        received_at,
        traceparent: trace::traceparent(headers),
        request_id: request_id::of(headers),
    };
    match gateway
        .deliveries
        .accept(Delivery::new(address, body, receipt))
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

/// Answers a delivery of a webhook that may store no more today.
async fn without_room(
    gateway: &Gateway,
    address: WebhookAddress,
    body: &[u8],
) -> Result<Recorded, Refusal> {
    let found = gateway
        .claims
        .find(&[DeliveryKey::new(address, body)])
        .await;
    let found = found.map_err(|_| Refusal::temporarily_unavailable())?;
    match found.first() {
        Some(KeyState::Recorded) => Ok(Recorded::Duplicate),
        Some(KeyState::InProgress) => Err(Refusal::delivery_in_progress()),
        Some(KeyState::Gone) => {
            gateway.secrets.forget(address);
            Err(Refusal::invalid_signature())
        }
        Some(KeyState::New) | None => Err(Refusal::storage_exhausted()),
    }
}

fn refuse(error: VerifyError) -> Refusal {
    match error {
        VerifyError::Refused => Refusal::invalid_signature(),
        VerifyError::Unavailable => Refusal::temporarily_unavailable(),
    }
}

fn check_json(headers: &HeaderMap, body: &[u8]) -> Result<(), Refusal> {
    content_type::require_json(headers)?;
    let checked = json::check(body);
    let refused = |error: json::NotJson| Refusal::invalid_input(error.to_string());
    checked.map(drop).map_err(refused)
}

/// The signature of a request. A missing, a repeated and a malformed one are alike.
fn signature(headers: &HeaderMap) -> Option<Signature> {
    let mut given = headers.get_all(SIGNATURE).iter();
    match (given.next(), given.next()) {
        (Some(value), None) => Signature::parse(value.as_bytes()).ok(),
        _ => None,
    }
}
