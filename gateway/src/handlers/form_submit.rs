//! `POST /public/workflow-forms/forms/submit`

use std::net::IpAddr;

use hyper::{Request, StatusCode, body::Incoming};

use crate::{
    answer::{self, Answer},
    error::Refusal,
    intake::form,
    server::Gateway,
};

/// Answers 200 when the submission is recorded, whether now or before. What becomes of it, nobody
/// is told.
///
/// # Errors
/// 400, 404, 408, 413, 429, 503 as the contract has them.
pub async fn handle(
    gateway: &Gateway,
    peer: IpAddr,
    request: Request<Incoming>,
) -> Result<Answer, Refusal> {
    let client = gateway.proxies.client(peer, request.headers());
    form::submit(gateway, client, request).await?;
    Ok(answer::json(StatusCode::OK, r#"{"status":"accepted"}"#))
}
