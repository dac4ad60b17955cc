//! `GET /public/workflow-forms/forms?token=…`

use std::net::IpAddr;

use hyper::{Request, StatusCode, body::Incoming};
use letterbox_common::form::FormToken;
use url::form_urlencoded;

use crate::{
    answer::{self, Answer},
    error::Refusal,
    intake::form,
    server::Gateway,
};

/// Answers 200 with the form's definition.
///
/// # Errors
/// 404, 413, 429, 503 as the contract has them.
pub async fn handle(
    gateway: &Gateway,
    peer: IpAddr,
    request: Request<Incoming>,
) -> Result<Answer, Refusal> {
    let client = gateway.proxies.client(peer, request.headers());
    let token = token(request.uri().query().unwrap_or_default());
    let definition = form::read(gateway, client, token, request).await?;
    Ok(answer::json(StatusCode::OK, definition))
}

/// The one token of a query; none where there are two.
fn token(query: &str) -> Option<FormToken> {
    let mut given = form_urlencoded::parse(query.as_bytes()).filter(|(name, _)| name == "token");
    match (given.next(), given.next()) {
        (Some((_, token)), None) => FormToken::read(&token),
        _ => None,
    }
}
