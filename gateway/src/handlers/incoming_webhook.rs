//! `POST /webhooks/incoming/<orgId>.<webhookId>`

use std::net::IpAddr;

use hyper::{Request, StatusCode, body::Incoming};

use crate::{
    error::Refusal,
    intake::webhook::{self, Recorded},
    response::{self, Response},
    state::Gateway,
};

/// Answers 202 when the delivery is recorded, now or before, and 200 to a sender's challenge.
///
/// # Errors
/// 400, 401, 404, 408, 413, 503 as in the table of answers (`gateway/README.md`).
pub(crate) async fn handle(
    gateway: &Gateway,
    peer: IpAddr,
    token: &str,
    request: Request<Incoming>,
) -> Result<Response, Refusal> {
    Ok(
        match webhook::receive(gateway, peer, token, request).await? {
            Recorded::First => response::json(StatusCode::ACCEPTED, r#"{"received":true}"#),
            Recorded::Duplicate => response::json(
                StatusCode::ACCEPTED,
                r#"{"received":true,"deduplicated":true}"#,
            ),
            Recorded::Challenge(challenge) => response::json(
                StatusCode::OK,
                serde_json::json!({ "challenge": challenge }).to_string(),
            ),
        },
    )
}
