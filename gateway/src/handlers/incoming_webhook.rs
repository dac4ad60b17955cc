//! `POST /webhooks/incoming/<orgId>.<webhookId>`, and what tools ask of such a URL before they
//! send.

use std::net::IpAddr;

use hyper::{
    StatusCode,
    body::Incoming,
    header::{self, HeaderName, HeaderValue},
    http::request::Parts,
};
use letterbox_common::webhook::Reply;

use crate::{
    error::Refusal,
    intake::webhook::{self, Recorded},
    response::{self, Response},
    state::Gateway,
};

/// Answers 202 when the delivery is recorded, now or before, and 200 or 204 to a question.
///
/// # Errors
/// 400, 401, 404, 408, 413, 503 as in the table of answers (`gateway/README.md`).
pub(crate) async fn handle(
    gateway: &Gateway,
    peer: IpAddr,
    token: &str,
    head: &Parts,
    body: Incoming,
) -> Result<Response, Refusal> {
    let told = match webhook::receive(gateway, peer, token, head, body).await? {
        Recorded::First => r#"{"received":true}"#,
        Recorded::Duplicate => r#"{"received":true,"deduplicated":true}"#,
        Recorded::Reply(reply) => return Ok(response_of(reply)),
    };
    Ok(response::json(StatusCode::ACCEPTED, told))
}

/// Answers what a tool asks by GET, HEAD or OPTIONS; `None` to a request that asks nothing.
pub(crate) async fn ask(
    gateway: &Gateway,
    peer: IpAddr,
    token: &str,
    head: &Parts,
) -> Option<Response> {
    let answer = webhook::asked(gateway, peer, token, head).await?;
    Some(answer.map_or_else(Response::from, response_of))
}

fn response_of(reply: Reply) -> Response {
    match reply {
        Reply::Json(text) => response::json(StatusCode::OK, text),
        Reply::Text(text) => response::content("text/plain; charset=utf-8", text),
        Reply::Empty => response::no_content(),
        Reply::Header(name, value) => {
            let mut response = response::content("text/plain; charset=utf-8", "");
            let headers = response.headers_mut();
            if let Ok(value) = HeaderValue::try_from(value) {
                headers.insert(HeaderName::from_static(name), value);
            }
            response::set(headers, header::ALLOW, "POST, OPTIONS");
            response
        }
    }
}
