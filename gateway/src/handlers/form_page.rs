//! `GET /forms?token=…`

use std::net::IpAddr;

use hyper::{body::Incoming, header::HeaderMap, http::request::Parts};
use letterbox_common::form::TokenHash;

use super::form_read;
use crate::{body, error::Refusal, form_page, intake::form, response::Response, state::Gateway};

/// Answers with a document: with the form if there is one, otherwise with the status that reading
/// the form would have.
pub(crate) async fn handle(
    gateway: &Gateway,
    peer: IpAddr,
    head: &Parts,
    body: Incoming,
) -> Response {
    let documents = &gateway.documents;
    let token = form_read::token(head.uri.query().unwrap_or_default());
    match token {
        None => body::leave(&head.headers, body, form_page::without_form(documents)),
        Some(token) => page(gateway, peer, token, &head.headers, body)
            .await
            .unwrap_or_else(|refusal| form_page::refused(documents, refusal)),
    }
}

async fn page(
    gateway: &Gateway,
    peer: IpAddr,
    token: TokenHash,
    headers: &HeaderMap,
    body: Incoming,
) -> Result<Response, Refusal> {
    let client = gateway.proxies.client(peer, headers);
    let live = form::read(gateway, client, token, headers, body).await?;
    let challenge = gateway
        .proofs
        .challenge(token, live.definition.least_seconds);
    form_page::with_form(&gateway.documents, &live, challenge)
}
