//! `POST /public/workflow-forms/forms/submit`

use std::net::IpAddr;

use hyper::{StatusCode, body::Incoming, header::HeaderMap};

use crate::{
    error::Refusal,
    intake::form,
    response::{self, Response},
    state::Gateway,
};

/// Answers 200 when the submission is recorded, now or before. The answer does not depend on the
/// fate of its run.
///
/// # Errors
/// 400, 404, 408, 413, 429, 503 as in the table of answers (`gateway/README.md`).
pub(crate) async fn handle(
    gateway: &Gateway,
    peer: IpAddr,
    headers: &HeaderMap,
    body: Incoming,
) -> Result<Response, Refusal> {
    let client = gateway.proxies.client(peer, headers);
    form::submit(gateway, client, headers, body).await?;
    Ok(response::json(StatusCode::OK, r#"{"status":"accepted"}"#))
}
