//! A public form, read and submitted. The order of the stages is the contract's.
//!
//! What is live is asked of the database for every request; nothing about links or forms is cached
//! here.

use std::{ops::RangeInclusive, time::Duration};

use bytes::Bytes;
use hyper::{Request, body::Incoming, header::HeaderMap};
use jiff::Timestamp;
use letterbox_broker::Receipt;
use letterbox_common::{
    form::{FormToken, TokenHash},
    json_object,
};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use super::content_type;
use crate::{
    acceptance::{Accepted, Submission},
    body,
    client_address::ClientAddress,
    error::Refusal,
    forms::{FormLookup, KeyHash, KeyState, LiveForm},
    json,
    rate_limits::{Hit, Limited, Subject},
    state::Gateway,
    trace, validation,
};

/// Pause before looking again at a concurrent duplicate.
const DUPLICATE_PAUSE: Duration = Duration::from_millis(25);
const KEY_LENGTHS: RangeInclusive<usize> = 1..=120;

/// Reads the form behind a token: its definition, as JSON. `token` is what the URL contains, if it
/// contains one.
///
/// # Errors
/// The first stage that fails answers.
pub(crate) async fn read(
    gateway: &Gateway,
    client: ClientAddress,
    token: Option<FormToken>,
    request: Request<Incoming>,
) -> Result<String, Refusal> {
    // Size.
    let (head, incoming) = request.into_parts();
    body::read(&head.headers, incoming).await?;

    let reading = async {
        // Rate limit of the client.
        let hit = limit(gateway, Subject::Client(client)).await?;

        // Token: malformed, unknown and dead ones are alike.
        let token = token.ok_or_else(Refusal::form_unavailable)?.hash();
        let found = find(gateway, token, None).await?;

        // Rate limit of the token.
        limit_token(gateway, token, hit).await?;
        Ok(found.form.definition)
    };
    with_deadline(gateway, reading).await
}

/// Takes one submission.
///
/// # Errors
/// The first stage that fails answers.
pub(crate) async fn submit(
    gateway: &Gateway,
    client: ClientAddress,
    request: Request<Incoming>,
) -> Result<(), Refusal> {
    let received_at = Timestamp::now();

    // Size.
    let (head, incoming) = request.into_parts();
    let body = body::read(&head.headers, incoming).await?;

    // Everything that needs a server, within the time that a sender waits.
    with_deadline(
        gateway,
        accept(gateway, client, &head.headers, &body, received_at),
    )
    .await
}

async fn accept(
    gateway: &Gateway,
    client: ClientAddress,
    headers: &HeaderMap,
    body: &[u8],
    received_at: Timestamp,
) -> Result<(), Refusal> {
    // Rate limit of the client.
    let hit = limit(gateway, Subject::Client(client)).await?;

    // Content type, UTF-8, JSON, members.
    let Posted {
        token,
        key_sha256,
        payload,
    } = parse(headers, body)?;

    // Token.
    let mut found = find(gateway, token, Some(key_sha256)).await?;

    // Rate limit of the token.
    limit_token(gateway, token, hit).await?;

    loop {
        // A known key answers as before, whatever the payload says now. While its first submission
        // is being recorded, its outcome is awaited.
        match found.key {
            KeyState::Accepted => return Ok(()),
            KeyState::InProgress => {}
            KeyState::New => {
                // The payload, against the form as it is now.
                let payload = validated(&found.form, payload)?;

                // Claim, publish, confirm.
                let submission = Submission {
                    form: found.form,
                    key_sha256,
                    token,
                    payload,
                    receipt: Receipt {
                        received_at,
                        traceparent: trace::traceparent(headers),
                    },
                };
                match gateway.submissions.accept(submission).await {
                    Accepted::First | Accepted::Duplicate => return Ok(()),
                    Accepted::Gone => return Err(Refusal::form_unavailable()),
                    Accepted::Unavailable => return Err(Refusal::temporarily_unavailable()),
                    Accepted::InProgress => {}
                }
            }
        }
        tokio::time::sleep(DUPLICATE_PAUSE).await;
        found = find(gateway, token, Some(key_sha256)).await?;
    }
}

/// The payload, if it fits the form.
fn validated(form: &LiveForm, payload: &RawValue) -> Result<Bytes, Refusal> {
    let form = form
        .parse()
        .map_err(|_| Refusal::temporarily_unavailable())?;
    validation::validate(&form, payload)
        .map_err(|invalid| Refusal::invalid_input(invalid.to_string()))
}

async fn with_deadline<T>(
    gateway: &Gateway,
    answering: impl Future<Output = Result<T, Refusal>>,
) -> Result<T, Refusal> {
    tokio::time::timeout(gateway.answer_deadline, answering)
        .await
        .unwrap_or_else(|_| Err(Refusal::temporarily_unavailable()))
}

/// A request that a token's limit refuses does not count against its client's.
async fn limit_token(gateway: &Gateway, token: TokenHash, client: Hit) -> Result<(), Refusal> {
    let limited = limit(gateway, Subject::Token(token)).await;
    if limited.is_err() {
        gateway.rate_limits.refund(client).await;
    }
    limited.map(drop)
}

async fn limit(gateway: &Gateway, subject: Subject) -> Result<Hit, Refusal> {
    gateway
        .rate_limits
        .take(subject)
        .await
        .map_err(|limited| match limited {
            Limited::Exceeded { next_in } => Refusal::rate_limited(next_in),
            Limited::Unavailable => Refusal::temporarily_unavailable(),
        })
}

async fn find(
    gateway: &Gateway,
    token: TokenHash,
    key: Option<KeyHash>,
) -> Result<FormLookup, Refusal> {
    let finding = gateway.forms.find(token, key);
    let found = finding
        .await
        .map_err(|_| Refusal::temporarily_unavailable())?;
    found.ok_or_else(Refusal::form_unavailable)
}

/// The members of a submission, each of the right type and length.
struct Posted<'a> {
    token: TokenHash,
    key_sha256: KeyHash,
    payload: &'a RawValue,
}

fn parse<'a>(headers: &HeaderMap, body: &'a [u8]) -> Result<Posted<'a>, Refusal> {
    content_type::require_json(headers)?;
    let text = json::check(body).map_err(|error| Refusal::invalid_input(error.to_string()))?;
    let [token, key, payload] = json_object::find(text, ["token", "idempotencyKey", "payload"])
        .ok_or_else(|| Refusal::invalid_input("The body must be a JSON object"))?;

    let token = token
        .and_then(string)
        .and_then(|token| FormToken::parse(&token));
    let token = token
        .ok_or_else(|| Refusal::invalid_input("token must be a string of 20 to 200 characters"))?;
    let key = key
        .and_then(string)
        .filter(|key| KEY_LENGTHS.contains(&key.chars().count()));
    let key = key.ok_or_else(|| {
        Refusal::invalid_input("idempotencyKey must be a string of 1 to 120 characters")
    })?;
    let payload = payload.filter(|payload| payload.get().starts_with('{'));
    let payload = payload.ok_or_else(|| Refusal::invalid_input("payload must be an object"))?;
    let key_sha256 = Sha256::digest(key.as_bytes()).into();
    Ok(Posted {
        token: token.hash(),
        key_sha256,
        payload,
    })
}

/// The text of a JSON string; none for other values, and for what is not Unicode text.
fn string(value: &RawValue) -> Option<String> {
    serde_json::from_str(value.get()).ok()
}
