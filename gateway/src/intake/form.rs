//! The stages of reading and submitting a public form, in the order of the contract.
//!
//! Every request asks the database whether the form is live; nothing about links is cached.

use std::{collections::BTreeMap, ops::RangeInclusive, pin::pin, time::Duration};

use bytes::Bytes;
use hyper::{body::Incoming, header::HeaderMap};
use jiff::Timestamp;
use letterbox_common::{
    form::{FormToken, TokenHash},
    json_object,
    process::client_address::ClientAddress,
};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use super::content_type;
use crate::{
    acceptance::Submission,
    admission::{LiveForm, LiveRelease, NotAdmitted},
    body,
    claims::{Outcome, SubmissionKey},
    error::Refusal,
    json,
    state::Gateway,
    trace, validation,
};

/// Pause before a concurrent duplicate is tried again.
const DUPLICATE_PAUSE: Duration = Duration::from_millis(50);
const KEY_LENGTHS: RangeInclusive<usize> = 1..=120;

/// Reads the form behind a token. A text that is not a token has a hash as well, behind which there
/// is no form.
pub(crate) async fn read(
    gateway: &Gateway,
    client: ClientAddress,
    token: TokenHash,
    headers: &HeaderMap,
    body: Incoming,
) -> Result<LiveForm, Refusal> {
    // Size.
    body::read(headers, body).await?;

    let reading = async {
        // Rate limit of the client, as far as this gateway knows.
        check(gateway, client)?;

        // Token and rate limits. Malformed, unknown and dead tokens are answered alike.
        admit(gateway, client, token, false).await
    };
    with_deadline(gateway, pin!(reading)).await
}

/// Takes one submission.
pub(crate) async fn submit(
    gateway: &Gateway,
    client: ClientAddress,
    headers: &HeaderMap,
    body: Incoming,
) -> Result<(), Refusal> {
    let received_at = Timestamp::now();

    // Size.
    let body = body::read(headers, body).await?;

    // Everything that needs a server, within the deadline of the answer.
    // Boxed: it is three times that of a delivery, and the futures of all requests would have room
    // for it.
    let accepting = Box::pin(accept(gateway, client, headers, &body, received_at));
    with_deadline(gateway, accepting).await
}

async fn accept(
    gateway: &Gateway,
    client: ClientAddress,
    headers: &HeaderMap,
    body: &[u8],
    received_at: Timestamp,
) -> Result<(), Refusal> {
    // Rate limit of the client, as far as this gateway knows.
    check(gateway, client)?;

    // Content type, UTF-8, JSON, members.
    let posted = match parse(headers, body) {
        Ok(posted) => posted,
        Err(refusal) => return Err(refuse(gateway, client, refusal).await),
    };

    // Proof of work, token, rate limits of the client and the token.
    let form = admit_proven(gateway, client, &posted).await?;

    let LiveRelease {
        workspace,
        workflow,
        ..
    } = form.release;
    let said = members(posted.payload);
    let key = SubmissionKey::new(
        workspace,
        workflow,
        Sha256::digest(&posted.key).into(),
        posted.token.hash(),
        &said,
    );
    match validated(&form, posted.payload) {
        // Claim, publish, confirm. A known key answers as before: the claim says so.
        Ok(payload) => {
            let submission = Submission {
                release: form.release,
                key,
                payload,
                receipt: trace::receipt(headers, received_at),
            };
            record(gateway, submission).await
        }
        // The payload does not fit the form, but a key that is known is answered as before.
        Err(refusal) => match await_outcome(gateway, key).await? {
            Outcome::Duplicate => {
                gateway.repeats.note(key);
                Ok(())
            }
            Outcome::Gone => Err(Refusal::form_unavailable()),
            _ => Err(refusal),
        },
    }
}

/// Records a submission. While another one with its key is being recorded, waits for its outcome.
async fn record(gateway: &Gateway, submission: Submission) -> Result<(), Refusal> {
    loop {
        match gateway.submissions.accept(submission.clone()).await {
            Outcome::First => return Ok(()),
            Outcome::Duplicate => {
                gateway.repeats.note(submission.key);
                return Ok(());
            }
            Outcome::Gone => return Err(Refusal::form_unavailable()),
            Outcome::Unavailable => return Err(Refusal::temporarily_unavailable()),
            Outcome::InProgress => await_other(gateway, submission.key).await?,
        }
    }
}

/// Waits a moment for another attempt with a key. If its gateway has died, the sender is told at
/// once to come again: the claim is free when its lease is over.
async fn await_other(gateway: &Gateway, key: SubmissionKey) -> Result<(), Refusal> {
    match gateway.claims.is_stalled(key).await {
        Ok(false) => tokio::time::sleep(DUPLICATE_PAUSE).await,
        Ok(true) | Err(_) => return Err(Refusal::temporarily_unavailable()),
    }
    Ok(())
}

/// The outcome of a key, after the end of any attempt in progress.
async fn await_outcome(gateway: &Gateway, key: SubmissionKey) -> Result<Outcome, Refusal> {
    loop {
        let found = gateway.claims.find(&[key]).await;
        let found = found.map_err(|_| Refusal::temporarily_unavailable())?;
        match found.get(&key) {
            Some(Outcome::InProgress) => await_other(gateway, key).await?,
            found => return Ok(found.copied().unwrap_or(Outcome::Unavailable)),
        }
    }
}

/// The content of a payload, independent of the form and of the order of members: names and values
/// as they were written. Of duplicate names the last wins.
fn members(payload: &RawValue) -> Vec<u8> {
    let members = json_object::all(payload.get()).unwrap_or_default();
    let by_name: BTreeMap<_, _> = members.into_iter().collect();
    let mut said = Vec::new();
    for (name, value) in by_name {
        said.extend_from_slice(name.as_deref().unwrap_or_default().as_bytes());
        said.push(0);
        said.extend_from_slice(value.get().as_bytes());
        said.push(0);
    }
    said
}

/// The payload, if it fits the form.
fn validated(form: &LiveForm, payload: &RawValue) -> Result<Bytes, Refusal> {
    let form = form.definition.form.as_ref();
    let form = form.ok_or_else(Refusal::temporarily_unavailable)?;
    validation::validate(form, payload)
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
    gateway.admission.check(client).map_err(not_admitted)
}

/// Returns the form of a submission after checking its proof and counting the request. A closed
/// form is returned as well, because it still answers repeats of submissions that it took.
async fn admit_proven(
    gateway: &Gateway,
    client: ClientAddress,
    posted: &Posted<'_>,
) -> Result<LiveForm, Refusal> {
    let token = posted.token.hash();
    let prove = || {
        let checked = gateway.proofs.check(token, &posted.key, posted.proof);
        checked.map_err(|unproven| {
            gateway.admission.count_refused(client);
            Refusal::invalid_input(unproven.to_string())
        })
    };
    // If the token itself needs a proof, a submission without one costs the database nothing.
    let is_proven = posted.token.wants_proof();
    if is_proven {
        prove()?;
    }
    let form = admit(gateway, client, token, true).await?;
    // The form decides whether a proof is needed; the token only tells earlier.
    if form.definition.least_seconds.is_some() && !is_proven {
        prove()?;
    }
    Ok(form)
}

/// Counts the request and returns the form behind its token.
async fn admit(
    gateway: &Gateway,
    client: ClientAddress,
    token: TokenHash,
    closed_too: bool,
) -> Result<LiveForm, Refusal> {
    let admitting = gateway.admission.admit(client, Some(token), closed_too);
    let admitted = admitting.await;
    if let Err(NotAdmitted::RateLimited { of_link: true, .. }) = admitted {
        gateway.faults.count_wait(token);
    }
    let form = admitted.map_err(not_admitted)?;
    form.ok_or_else(Refusal::form_unavailable)
}

/// Counts a refused request against its client, and returns its refusal, or that of the client's
/// limit if it is exhausted.
async fn refuse(gateway: &Gateway, client: ClientAddress, refusal: Refusal) -> Refusal {
    match gateway.admission.admit(client, None, false).await {
        Ok(_) => refusal,
        Err(reason) => not_admitted(reason),
    }
}

fn not_admitted(reason: NotAdmitted) -> Refusal {
    match reason {
        NotAdmitted::RateLimited { next_in, .. } => Refusal::rate_limited(next_in),
        NotAdmitted::Unavailable => Refusal::temporarily_unavailable(),
    }
}

/// The members of a submission, with types and lengths checked.
pub(crate) struct Posted<'a> {
    pub(crate) token: FormToken,
    pub(crate) key: String,
    pub(crate) payload: &'a RawValue,
    proof: Option<&'a RawValue>,
}

pub(crate) fn parse<'a>(headers: &HeaderMap, body: &'a [u8]) -> Result<Posted<'a>, Refusal> {
    content_type::require_json(headers)?;
    let text = json::check(body).map_err(|error| Refusal::invalid_input(error.to_string()))?;
    let members = ["token", "idempotencyKey", "payload", "proof"];
    let [token, key, payload, proof] = json_object::find(text, members)
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
    Ok(Posted {
        token,
        key,
        payload,
        proof,
    })
}

/// The text of a JSON string; `None` for other values and for strings that are not Unicode text.
fn string(value: &RawValue) -> Option<String> {
    serde_json::from_str(value.get()).ok()
}
