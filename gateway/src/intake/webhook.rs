//! The stages of a signed delivery, from its URL to its answer, in the order of the contract.

use std::{net::IpAddr, pin::pin};

use bytes::Bytes;
use hyper::{Request, StatusCode, body::Incoming, header::HeaderMap};
use jiff::Timestamp;
use letterbox_common::webhook::{DeliveryFault, Scheme, WebhookAddress};
use serde::Deserialize;

use super::content_type;
use crate::{
    acceptance::Delivery,
    body,
    claims::{DeliveryKey, Outcome},
    error::Refusal,
    faults::WebhookFault,
    json, request_id,
    state::Gateway,
    trace,
    webhook_secrets::{Presented, VerifyError},
};

/// How often a delivery is verified by what its webhook is now, if that changes meanwhile.
const MAX_VERSIONS: usize = 3;

/// The answer to an accepted request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Recorded {
    First,
    Duplicate,
    /// Not a delivery: a verified sender asks whether this is the URL of its webhook, and gets its
    /// challenge back.
    Challenge(String),
}

/// Takes one delivery for the webhook that `token`, the last segment of the URL, names.
pub(crate) async fn receive(
    gateway: &Gateway,
    peer: IpAddr,
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
    let body = body::read(&head.headers, incoming).await;
    let body = body.inspect_err(|refusal| {
        // The owner should see this fault although no signature could be checked.
        if refusal.status() == StatusCode::PAYLOAD_TOO_LARGE {
            let fault = WebhookFault {
                reason: DeliveryFault::TooLarge,
                is_found: gateway.secrets.knows(address),
            };
            note(gateway, address, fault, &head.headers);
        }
    })?;
    let from = gateway.proxies.address(peer, &head.headers);

    // Everything that needs a server, within the deadline of the answer.
    let accepting = pin!(async {
        for _ in 0..MAX_VERSIONS {
            let body = body.clone();
            let accepting = accept(gateway, address, from, &head.headers, body, received_at);
            if let Some(recorded) = accepting.await? {
                return Ok(recorded);
            }
        }
        Err(Refusal::temporarily_unavailable())
    });
    tokio::time::timeout(gateway.answer_deadline, accepting)
        .await
        .unwrap_or_else(|_| Err(Refusal::temporarily_unavailable()))
}

/// `None` if the webhook was changed or deleted since it was cached: then it is looked up.
async fn accept(
    gateway: &Gateway,
    address: WebhookAddress,
    from: IpAddr,
    headers: &HeaderMap,
    body: Bytes,
    received_at: Timestamp,
) -> Result<Option<Recorded>, Refusal> {
    // Signature, before anything is parsed.
    let request = Presented {
        headers,
        body: &body,
        from,
    };
    let verified = gateway.secrets.verify(address, request).await;
    let proven = verified.map_err(|error| {
        if let VerifyError::Refused(fault) = error {
            note(gateway, address, fault, headers);
        }
        refuse(error)
    })?;

    // Content type, UTF-8, JSON. Only a webhook that still exists may say what is wrong; the cached
    // one may have been deleted a moment ago.
    if let Err((reason, refusal)) = check_json(headers, &body) {
        gateway.secrets.find(address, from).await.map_err(refuse)?;
        let is_found = true;
        note(gateway, address, WebhookFault { reason, is_found }, headers);
        return Err(refusal);
    }
    if let Some(challenge) = challenge(proven.scheme, &body) {
        gateway.secrets.find(address, from).await.map_err(refuse)?;
        return Ok(Some(Recorded::Challenge(challenge)));
    }

    let receipt = trace::receipt(headers, received_at);
    let delivery = Delivery::new(address, proven, body, receipt);

    // Ceilings. A body that was recorded before needs no room.
    if gateway.ceilings.is_reached(address).await {
        return without_room(gateway, address, delivery.key).await;
    }

    // Claim, publish, confirm.
    let repeat = delivery.repeat();
    match gateway.deliveries.accept(delivery).await {
        Outcome::First => Ok(Some(Recorded::First)),
        Outcome::Duplicate => {
            if let Some(key) = repeat {
                gateway.changed_deliveries.note(key);
            }
            Ok(Some(Recorded::Duplicate))
        }
        Outcome::InProgress => Err(Refusal::delivery_in_progress()),
        Outcome::Unavailable => Err(Refusal::temporarily_unavailable()),
        Outcome::Gone => {
            gateway.secrets.forget(address);
            Ok(None)
        }
    }
}

/// Answers a delivery to a webhook that may store no more today.
async fn without_room(
    gateway: &Gateway,
    address: WebhookAddress,
    key: DeliveryKey,
) -> Result<Option<Recorded>, Refusal> {
    let found = gateway.claims.find(&[key]).await;
    let found = found.map_err(|_| Refusal::temporarily_unavailable())?;
    match found.get(&key) {
        Some(Outcome::Duplicate) => Ok(Some(Recorded::Duplicate)),
        Some(Outcome::InProgress) => Err(Refusal::delivery_in_progress()),
        Some(Outcome::Gone) => {
            gateway.secrets.forget(address);
            Ok(None)
        }
        _ => Err(Refusal::storage_exhausted()),
    }
}

fn refuse(error: VerifyError) -> Refusal {
    match error {
        VerifyError::Refused(_) => Refusal::invalid_signature(),
        VerifyError::Unavailable => Refusal::temporarily_unavailable(),
    }
}

/// Records a fault for the owner of the webhook.
fn note(gateway: &Gateway, address: WebhookAddress, fault: WebhookFault, headers: &HeaderMap) {
    let id = request_id::of(headers);
    gateway.faults.note(address, fault, id);
}

fn check_json(headers: &HeaderMap, body: &[u8]) -> Result<(), (DeliveryFault, Refusal)> {
    let announced = content_type::require_json(headers);
    announced.map_err(|refusal| (DeliveryFault::ContentType, refusal))?;
    let refused = |error: json::NotJson| {
        let refusal = Refusal::invalid_input(error.to_string());
        (DeliveryFault::NotJson, refusal)
    };
    json::check(body).map(drop).map_err(refused)
}

/// The challenge that Slack wants back before it sends events.
fn challenge(scheme: Scheme, body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Verification {
        #[serde(rename = "type")]
        kind: String,
        challenge: String,
    }
    if scheme != Scheme::Slack {
        return None;
    }
    let text = std::str::from_utf8(body).ok()?;
    let asked: Verification = serde_json::from_str(text).ok()?;
    (asked.kind == "url_verification").then_some(asked.challenge)
}
