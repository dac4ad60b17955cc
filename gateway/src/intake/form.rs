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
    claims::{KeyState, SubmissionKey},
    client_address::ClientAddress,
    error::Refusal,
    forms::{LiveForm, LiveRelease},
    json,
    rate_limits::{Limited, Subject},
    state::Gateway,
    trace, validation,
};

/// Pause before a concurrent duplicate is tried again.
const DUPLICATE_PAUSE: Duration = Duration::from_millis(50);
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
        // Rate limit of the client, as far as it is known here.
        check(gateway, client)?;

        // Token: malformed, unknown and dead ones are alike.
        let found = match token.map(|token| token.hash()) {
            Some(token) => find(gateway, token).await?.map(|form| (token, form)),
            None => None,
        };
        let Some((token, form)) = found else {
            return Err(refuse(gateway, client, Refusal::form_unavailable()).await);
        };

        // Rate limits of the client and the token.
        take(gateway, client, Some(token)).await?;
        Ok(form.definition)
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
    // Rate limit of the client, as far as it is known here.
    check(gateway, client)?;

    // Content type, UTF-8, JSON, members.
    let posted = match parse(headers, body) {
        Ok(posted) => posted,
        Err(refusal) => return Err(refuse(gateway, client, refusal).await),
    };

    // Token.
    let Some(form) = find(gateway, posted.token).await? else {
        return Err(refuse(gateway, client, Refusal::form_unavailable()).await);
    };

    // Rate limits of the client and the token.
    take(gateway, client, Some(posted.token)).await?;

    let LiveRelease {
        workspace,
        workflow,
        ..
    } = form.release;
    let key = SubmissionKey::new(workspace, workflow, &posted.key_sha256, posted.token);
    match validated(&form, posted.payload) {
        // Claim, publish, confirm. A known key answers as before: the claim says so.
        Ok(payload) => {
            let submission = Submission {
                release: form.release,
                key,
                payload,
                receipt: Receipt {
                    received_at,
                    traceparent: trace::traceparent(headers),
                },
            };
            record(gateway, submission).await
        }
        // The payload does not fit; a known key answers as before all the same.
        Err(refusal) => match await_outcome(gateway, key).await? {
            KeyState::Recorded => Ok(()),
            _ => Err(refusal),
        },
    }
}

/// Records a submission. While another one under its key is being recorded, its outcome is awaited.
async fn record(gateway: &Gateway, submission: Submission) -> Result<(), Refusal> {
    loop {
        match gateway.submissions.accept(submission.clone()).await {
            Accepted::First | Accepted::Duplicate => return Ok(()),
            Accepted::Gone => return Err(Refusal::form_unavailable()),
            Accepted::Unavailable => return Err(Refusal::temporarily_unavailable()),
            Accepted::InProgress => tokio::time::sleep(DUPLICATE_PAUSE).await,
        }
    }
}

/// Whether a key is known, when its first submission is over.
async fn await_outcome(gateway: &Gateway, key: SubmissionKey) -> Result<KeyState, Refusal> {
    loop {
        let finding = gateway.claims.find(key).await;
        match finding.map_err(|_| Refusal::temporarily_unavailable())? {
            KeyState::InProgress => tokio::time::sleep(DUPLICATE_PAUSE).await,
            known => return Ok(known),
        }
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

/// Refuses a client that is known to have exhausted its limit.
fn check(gateway: &Gateway, client: ClientAddress) -> Result<(), Refusal> {
    let checked = gateway.rate_limits.check(Subject::Client(client));
    checked.map_err(limited)
}

/// Counts a request against its client and its token.
async fn take(
    gateway: &Gateway,
    client: ClientAddress,
    token: Option<TokenHash>,
) -> Result<(), Refusal> {
    let taken = gateway.rate_limits.take(client, token).await;
    taken.map_err(limited)
}

/// The refusal of a request that comes no further, once it is counted against its client; that of
/// the client's limit, if it is exhausted.
async fn refuse(gateway: &Gateway, client: ClientAddress, refusal: Refusal) -> Refusal {
    take(gateway, client, None).await.err().unwrap_or(refusal)
}

fn limited(limited: Limited) -> Refusal {
    match limited {
        Limited::Exceeded { next_in } => Refusal::rate_limited(next_in),
        Limited::Unavailable => Refusal::temporarily_unavailable(),
    }
}

async fn find(gateway: &Gateway, token: TokenHash) -> Result<Option<LiveForm>, Refusal> {
    let found = gateway.forms.find(token).await;
    found.map_err(|_| Refusal::temporarily_unavailable())
}

/// The members of a submission, each of the right type and length.
struct Posted<'a> {
    token: TokenHash,
    key_sha256: [u8; 32],
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
