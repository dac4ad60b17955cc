//! `POST /webhooks/incoming/<orgId>.<webhookId>`

use hyper::{Request, StatusCode, body::Incoming};

use crate::{
    answer::{self, Answer},
    error::Refusal,
    intake::webhook::{self, Recorded},
    server::Gateway,
};

/// Answers 202 when the delivery is recorded, whether now or before.
///
/// # Errors
/// 400, 401, 404, 408, 413, 503 as the contract has them.
pub async fn handle(
    gateway: &Gateway,
    token: &str,
    request: Request<Incoming>,
) -> Result<Answer, Refusal> {
    Ok(match webhook::receive(gateway, token, request).await? {
        Recorded::First => answer::json(StatusCode::ACCEPTED, r#"{"received":true}"#),
        Recorded::Duplicate => answer::json(
            StatusCode::ACCEPTED,
            r#"{"received":true,"deduplicated":true}"#,
        ),
    })
}
