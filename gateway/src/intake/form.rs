//! A public form, read and submitted. The order of the stages is the contract's.
//!
//! What is live is asked of the database for every request; nothing about links or forms is kept
//! here.

use std::time::Duration;

use bytes::Bytes;
use hyper::{Request, body::Incoming, header::HeaderMap};
use jiff::Timestamp;
use letterbox_common::{
    broker::{Envelope, FormSubmission, Receipt, topology},
    form::{FormToken, TokenHash},
    ids::RunId,
    members,
};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use super::{Accepted, Parcel, content_type};
use crate::{
    body,
    claims::SubmissionKey,
    client_address::ClientAddress,
    error::Refusal,
    forms::{Found, KeyHash, Known, LiveForm},
    json,
    rate_limits::{Hit, Limited, Subject},
    server::Gateway,
    trace, validation,
};

/// Pause before asking again what became of a twin.
const TWIN_PAUSE: Duration = Duration::from_millis(25);
const KEY_LENGTHS: std::ops::RangeInclusive<usize> = 1..=120;

/// A validated payload.
pub struct Submission {
    form: LiveForm,
    key_sha256: KeyHash,
    token: TokenHash,
    payload: Bytes,
    receipt: Receipt,
}

impl Parcel for Submission {
    type Key = SubmissionKey;
    const ROUTING_KEY: &'static str = topology::FORMS_KEY;

    fn key(&self) -> SubmissionKey {
        let LiveForm {
            workspace,
            workflow,
            ..
        } = self.form;
        SubmissionKey {
            workspace,
            workflow,
            key_sha256: self.key_sha256,
            token: self.token,
        }
    }

    fn envelope(&self, id: RunId) -> Envelope {
        let LiveForm {
            workspace,
            workflow,
            release,
            ..
        } = self.form;
        let receipt = self.receipt.clone();
        Envelope::FormSubmission(FormSubmission {
            run: id,
            workspace,
            workflow,
            release,
            receipt,
        })
    }

    fn into_body(self) -> Bytes {
        self.payload
    }
}

/// Reads the form behind a token: its definition, as JSON. `token` is what the address holds, if it
/// holds one.
///
/// # Errors
/// The first stage that fails answers.
pub async fn read(
    gateway: &Gateway,
    client: ClientAddress,
    token: Option<FormToken>,
    request: Request<Incoming>,
) -> Result<String, Refusal> {
    // Size.
    let (head, incoming) = request.into_parts();
    body::read(&head.headers, incoming).await?;

    let answering = async {
        // Rate limit of the client.
        let hit = limit(gateway, Subject::Client(client)).await?;

        // Token: malformed, unknown and dead ones are alike.
        let token = token.ok_or_else(Refusal::form_unavailable)?.hash();
        let found = find(gateway, token, None).await?;

        // Rate limit of the token.
        limit_token(gateway, token, hit).await?;
        Ok(found.form.definition)
    };
    in_time(gateway, answering).await
}

/// Takes one submission.
///
/// # Errors
/// The first stage that fails answers.
pub async fn submit(
    gateway: &Gateway,
    client: ClientAddress,
    request: Request<Incoming>,
) -> Result<(), Refusal> {
    let received_at = Timestamp::now();

    // Size.
    let (head, incoming) = request.into_parts();
    let body = body::read(&head.headers, incoming).await?;

    // Everything that needs a server, within the time that a sender will wait.
    in_time(
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
    } = read_body(headers, body)?;

    // Token.
    let mut found = find(gateway, token, Some(key_sha256)).await?;

    // Rate limit of the token.
    limit_token(gateway, token, hit).await?;

    loop {
        // A known key answers as before, whatever the payload says now; a twin's outcome is
        // awaited.
        match found.known {
            Known::Accepted => return Ok(()),
            Known::InProgress => {}
            Known::New => {
                // The payload, against the form as it is.
                let valid = validation::validate(&found.form.parse()?, payload);
                let payload =
                    valid.map_err(|invalid| Refusal::invalid_input(invalid.to_string()))?;

                // Claim, publish, confirm.
                let receipt = Receipt {
                    received_at,
                    traceparent: trace::traceparent(headers),
                };
                let submission = Submission {
                    form: found.form,
                    key_sha256,
                    token,
                    payload,
                    receipt,
                };
                match gateway.submissions.accept(submission).await {
                    Accepted::First | Accepted::Duplicate => return Ok(()),
                    Accepted::Gone => return Err(Refusal::form_unavailable()),
                    Accepted::Unavailable => return Err(Refusal::temporarily_unavailable()),
                    Accepted::InProgress => {}
                }
            }
        }
        tokio::time::sleep(TWIN_PAUSE).await;
        found = find(gateway, token, Some(key_sha256)).await?;
    }
}

async fn in_time<T>(
    gateway: &Gateway,
    answering: impl Future<Output = Result<T, Refusal>>,
) -> Result<T, Refusal> {
    tokio::time::timeout(gateway.answer_deadline, answering)
        .await
        .unwrap_or_else(|_| Err(Refusal::temporarily_unavailable()))
}

/// What a token's limit refuses does not count against its client's.
async fn limit_token(gateway: &Gateway, token: TokenHash, client: Hit) -> Result<(), Refusal> {
    let limited = limit(gateway, Subject::Token(token)).await;
    if limited.is_err() {
        gateway.rate_limits.give_back(client).await;
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

async fn find(gateway: &Gateway, token: TokenHash, key: Option<KeyHash>) -> Result<Found, Refusal> {
    let found = gateway
        .forms
        .find(token, key)
        .await
        .map_err(|_| Refusal::temporarily_unavailable())?;
    found.ok_or_else(Refusal::form_unavailable)
}

/// The members of a submission, each as it has to be.
struct Posted<'a> {
    token: TokenHash,
    key_sha256: KeyHash,
    payload: &'a RawValue,
}

fn read_body<'a>(headers: &HeaderMap, body: &'a [u8]) -> Result<Posted<'a>, Refusal> {
    if !content_type::is_json(headers) {
        return Err(Refusal::invalid_input(
            "The Content-Type has to be application/json",
        ));
    }
    let text = json::check(body).map_err(|error| Refusal::invalid_input(error.to_string()))?;
    let [token, key, payload] = members::find(text, ["token", "idempotencyKey", "payload"])
        .ok_or_else(|| Refusal::invalid_input("The body has to be a JSON object"))?;

    let token = token
        .and_then(string)
        .and_then(|token| FormToken::read(&token));
    let token = token.ok_or_else(|| {
        Refusal::invalid_input("token has to be a string of 20 to 200 characters")
    })?;
    let key = key
        .and_then(string)
        .filter(|key| KEY_LENGTHS.contains(&key.chars().count()));
    let key = key.ok_or_else(|| {
        Refusal::invalid_input("idempotencyKey has to be a string of 1 to 120 characters")
    })?;
    let payload = payload.filter(|payload| payload.get().starts_with('{'));
    let payload = payload.ok_or_else(|| Refusal::invalid_input("payload has to be an object"))?;
    Ok(Posted {
        token: token.hash(),
        key_sha256: Sha256::digest(key.as_bytes()).into(),
        payload,
    })
}

/// A JSON string's text; nothing for other values, and for what is no Unicode text.
fn string(value: &RawValue) -> Option<String> {
    serde_json::from_str(value.get()).ok()
}
