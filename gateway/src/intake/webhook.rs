//! The stages of a signed delivery, from its URL to its answer, in the order of the contract.

use std::{net::IpAddr, pin::pin};

use bytes::Bytes;
use hyper::{
    Method, StatusCode,
    body::Incoming,
    header::{self, HeaderMap},
    http::request::Parts,
};
use jiff::Timestamp;
use letterbox_common::{
    json_object,
    webhook::{DeliveryFault, Reply, SameBy, WebhookAddress, WebhookRequest, echo, is_asked},
};

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
    webhook_secrets::{Presented, Proven, VerifyError},
};

/// How often a delivery is verified by what its webhook is now, if that changes meanwhile.
const MAX_VERSIONS: usize = 3;

/// The answer to an accepted request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Recorded {
    First,
    Duplicate,
    /// Not a delivery: a tool asks something before it sends events.
    Reply(Reply),
}

/// Maximum characters that are told of a header.
const MAX_TOLD: usize = 80;
/// Maximum characters of what a tool calls an event.
const MAX_EVENT_TYPE: usize = 100;

/// Takes one delivery for the webhook that `token`, the last segment of the URL, names.
pub(crate) async fn receive(
    gateway: &Gateway,
    peer: IpAddr,
    token: &str,
    head: &Parts,
    body: Incoming,
) -> Result<Recorded, Refusal> {
    let received_at = Timestamp::now();

    // The shape of the URL.
    let Ok(address) = token.parse() else {
        return Err(body::refuse(&head.headers, body, Refusal::not_found()));
    };

    // Size.
    let body = body::read(&head.headers, body).await;
    let body = body.inspect_err(|refusal| {
        // The owner should see this fault although no signature could be checked.
        if refusal.status == StatusCode::PAYLOAD_TOO_LARGE {
            let length = head.headers.get(header::CONTENT_LENGTH);
            let fault = WebhookFault {
                reason: DeliveryFault::TooLarge,
                is_found: gateway.secrets.knows(address),
                detail: length.map(|length| format!("{} bytes", told(length.as_bytes()))),
                second_look: None,
            };
            note(gateway, address, fault, &head.headers);
        }
    })?;
    let presented = Presented {
        request: webhook_request(gateway, head, &body),
        from: gateway.proxies.address(peer, &head.headers),
    };
    if let Some(reply) = echo(&presented.request) {
        return Ok(Recorded::Reply(reply));
    }

    // Everything that needs a server, within the deadline of the answer.
    let accepting = pin!(async {
        for _ in 0..MAX_VERSIONS {
            let body = body.clone();
            let accepting = accept(gateway, address, presented, body, received_at);
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

/// Answers what a tool asks of a URL without sending an event; `None` if it asks nothing.
pub(crate) async fn asked(
    gateway: &Gateway,
    peer: IpAddr,
    token: &str,
    head: &Parts,
) -> Option<Result<Reply, Refusal>> {
    let address = token.parse::<WebhookAddress>().ok()?;
    let request = webhook_request(
        gateway,
        head,
        head.uri.query().unwrap_or_default().as_bytes(),
    );
    if head.method == Method::HEAD {
        return Some(Ok(Reply::Text(String::new())));
    }
    if let Some(reply) = echo(&request) {
        return Some(Ok(reply));
    }
    if head.method != Method::GET || !is_asked(head.uri.query()?) {
        return None;
    }
    let presented = Presented {
        request,
        from: gateway.proxies.address(peer, &head.headers),
    };
    let answering = gateway.secrets.answer(address, presented);
    let answer = tokio::time::timeout(gateway.answer_deadline, answering).await;
    let answer = answer.unwrap_or(Err(VerifyError::Unavailable));
    Some(answer.map_err(|error| refused(gateway, address, error, &head.headers)))
}

fn webhook_request<'a>(
    gateway: &'a Gateway,
    head: &'a Parts,
    body: &'a [u8],
) -> WebhookRequest<'a> {
    WebhookRequest {
        method: head.method.as_str(),
        base: &gateway.base_url,
        target: head
            .uri
            .path_and_query()
            .map_or("", |target| target.as_str()),
        headers: &head.headers,
        body,
    }
}

/// `None` if the webhook was changed or deleted since it was cached: then it is looked up.
async fn accept(
    gateway: &Gateway,
    address: WebhookAddress,
    presented: Presented<'_>,
    body: Bytes,
    received_at: Timestamp,
) -> Result<Option<Recorded>, Refusal> {
    let headers = presented.request.headers;
    // Signature, before anything is parsed.
    let verified = gateway.secrets.verify(address, presented).await;
    let mut proven = verified.map_err(|error| refused(gateway, address, error, headers))?;

    let asked = check_event(gateway, address, presented, &mut proven).await?;
    if let Some(reply) = asked {
        return Ok(Some(Recorded::Reply(reply)));
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
            gateway.faults.count_repeat(address);
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

/// Content type, UTF-8, JSON. Gives the answer if it is a question. Only the webhook as it is now
/// may answer, or say what is wrong: the cached one may have been deleted or changed a moment ago.
async fn check_event(
    gateway: &Gateway,
    address: WebhookAddress,
    presented: Presented<'_>,
    proven: &mut Proven,
) -> Result<Option<Reply>, Refusal> {
    let headers = presented.request.headers;
    let checked = check_json(headers, presented.request.body);
    let reply = proven.reply.take();
    if checked.is_err() || reply.is_some() {
        let finding = gateway
            .secrets
            .find(address, presented.from, proven.version);
        finding.await.map_err(|error| refuse(&error))?;
    }
    match checked {
        Ok(text) => {
            look_into(proven, text);
            Ok(reply)
        }
        Err((reason, detail, refusal)) => {
            let fault = WebhookFault {
                reason,
                is_found: true,
                detail: Some(detail),
                second_look: None,
            };
            note(gateway, address, fault, headers);
            Err(refusal)
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

fn refuse(error: &VerifyError) -> Refusal {
    match error {
        VerifyError::Refused(_) => Refusal::invalid_signature(),
        VerifyError::Unavailable => Refusal::temporarily_unavailable(),
    }
}

/// The refusal of who has not proven to be the tool, which is noted for the owner.
fn refused(
    gateway: &Gateway,
    address: WebhookAddress,
    error: VerifyError,
    headers: &HeaderMap,
) -> Refusal {
    let refusal = refuse(&error);
    if let VerifyError::Refused(fault) = error {
        note(gateway, address, fault, headers);
    }
    refusal
}

/// Records a fault for the owner of the webhook.
fn note(gateway: &Gateway, address: WebhookAddress, fault: WebhookFault, headers: &HeaderMap) {
    let id = request_id::of(headers);
    gateway.faults.note(address, fault, id);
}

/// Checks that a signed body is JSON, and returns it as text; or says what it is instead.
fn check_json<'b>(
    headers: &HeaderMap,
    body: &'b [u8],
) -> Result<&'b str, (DeliveryFault, String, Refusal)> {
    content_type::require_json_of_any_kind(headers).map_err(|refusal| {
        let given = headers.get(header::CONTENT_TYPE);
        let given = given.map_or_else(|| "none".to_owned(), |given| told(given.as_bytes()));
        let reason = match given.starts_with("application/x-www-form-urlencoded") {
            true => DeliveryFault::FormEncoded,
            false => DeliveryFault::ContentType,
        };
        (reason, given, refusal)
    })?;
    json::check(body).map_err(|error| {
        let coding = headers.get(header::CONTENT_ENCODING);
        let (reason, detail) = match coding.map(|coding| told(coding.as_bytes())) {
            Some(coding) if coding != "identity" => (DeliveryFault::Compressed, coding),
            _ => (DeliveryFault::NotJson, error.to_string()),
        };
        let refusal = Refusal::invalid_input(error.to_string());
        (reason, detail, refusal)
    })
}

/// The beginning of a header, as far as it is visible ASCII.
fn told(header: &[u8]) -> String {
    let shown = header.iter().copied().take(MAX_TOLD);
    let shown = shown.filter(|byte| byte.is_ascii_graphic() || *byte == b' ');
    shown.map(char::from).collect()
}

/// Reads what the body itself says of its event: its id and its type, if they are there.
fn look_into(proven: &mut Proven, text: &str) {
    if let Some(pointer) = &proven.same_by_member {
        proven.same_by = SameBy::member(pointer, text);
    }
    let member = proven.event_type_member;
    if let Some(found) = member.and_then(|pointer| json_object::at(text, pointer)) {
        proven.event_type = serde_json::from_str(found).ok();
    }
    let is_plain = |name: &String| {
        let length = name.chars().count();
        (1..=MAX_EVENT_TYPE).contains(&length) && !name.contains(char::is_control)
    };
    proven.event_type.take_if(|name| !is_plain(name));
}
