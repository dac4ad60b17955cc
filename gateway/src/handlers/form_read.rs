//! `GET /public/workflow-forms/forms?token=…`

use std::net::IpAddr;

use hyper::{Request, StatusCode, body::Incoming};
use letterbox_common::form::TokenHash;
use url::form_urlencoded;

use crate::{
    error::Refusal,
    intake::form,
    response::{self, Response},
    state::Gateway,
};

/// Answers 200 with the form's definition.
///
/// # Errors
/// 404, 413, 429, 503 as in the table of answers (`gateway/README.md`).
pub(crate) async fn handle(
    gateway: &Gateway,
    peer: IpAddr,
    request: Request<Incoming>,
) -> Result<Response, Refusal> {
    let client = gateway.proxies.client(peer, request.headers());
    let token = token(request.uri().query().unwrap_or_default());
    let definition = form::read(gateway, client, token, request).await?;
    Ok(response::json(StatusCode::OK, definition))
}

/// The token of a query, hashed; that of an empty text where there are none or two.
fn token(query: &str) -> TokenHash {
    let mut given = form_urlencoded::parse(query.as_bytes()).filter(|(name, _)| name == "token");
    match (given.next(), given.next()) {
        (Some((_, token)), None) => TokenHash::of_text(&token),
        _ => TokenHash::of_text(""),
    }
}
