//! `GET /public/workflow-forms/forms?token=…`

use std::net::IpAddr;

use hyper::{
    StatusCode,
    body::Incoming,
    header::{HeaderName, HeaderValue},
    http::request::Parts,
};
use letterbox_common::form::TokenHash;
use url::form_urlencoded;

use crate::{
    error::Refusal,
    intake::form,
    response::{self, Response},
    state::Gateway,
};

/// The challenge that a submission must solve, for forms that need a proof of work.
const CHALLENGE_HEADER: HeaderName = HeaderName::from_static("letterbox-challenge");

/// Answers 200 with the form's definition.
///
/// # Errors
/// 404, 413, 429, 503 as in the table of answers (`gateway/README.md`).
pub(crate) async fn handle(
    gateway: &Gateway,
    peer: IpAddr,
    head: &Parts,
    body: Incoming,
) -> Result<Response, Refusal> {
    let client = gateway.proxies.client(peer, &head.headers);
    let given = token(head.uri.query().unwrap_or_default());
    let hash = given.unwrap_or_else(|| TokenHash::of_text(""));
    let form = form::read(gateway, client, hash, &head.headers, body).await?;
    let definition = &form.definition;
    let challenge = gateway.proofs.challenge(hash, definition.least_seconds);
    let mut response = response::json(StatusCode::OK, definition.json.clone());
    if let Some(challenge) = challenge.and_then(|one| HeaderValue::try_from(one.0).ok()) {
        response.headers_mut().insert(CHALLENGE_HEADER, challenge);
    }
    Ok(response)
}

/// The hashed token of a query: `None` if there is none, and the hash of an empty text, which no
/// link has, if there are two.
pub(super) fn token(query: &str) -> Option<TokenHash> {
    let mut given = form_urlencoded::parse(query.as_bytes()).filter(|(name, _)| name == "token");
    match (given.next(), given.next()) {
        (None, _) => None,
        (Some((_, token)), None) => Some(TokenHash::of_text(&token)),
        (Some(_), Some(_)) => Some(TokenHash::of_text("")),
    }
}
