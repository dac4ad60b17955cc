//! `POST /webhooks/incoming/<orgId>.<webhookId>`, and what tools ask of such a URL before they
//! send.

use std::net::IpAddr;

use hyper::{
    Request, StatusCode,
    body::Incoming,
    header::{self, HeaderName, HeaderValue},
};
use letterbox_common::webhook::Reply;

use crate::{
    body,
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
    request: Request<Incoming>,
) -> Result<Response, Refusal> {
    let body = match webhook::receive(gateway, peer, token, request).await? {
        Recorded::First => r#"{"received":true}"#,
        Recorded::Duplicate => r#"{"received":true,"deduplicated":true}"#,
        Recorded::Reply(reply) => return Ok(response_of(reply)),
    };
    Ok(response::json(StatusCode::ACCEPTED, body))
}

/// Answers what a tool asks by GET, HEAD or OPTIONS; gives back a request that asks nothing.
pub(crate) async fn ask(
    gateway: &Gateway,
    peer: IpAddr,
    token: &str,
    request: Request<Incoming>,
) -> Result<Response, Request<Incoming>> {
    let (head, incoming) = request.into_parts();
    let answer = webhook::asked(gateway, peer, token, &head).await;
    let request = Request::from_parts(head, incoming);
    let Some(answer) = answer else {
        return Err(request);
    };
    let answer = answer.map_or_else(Response::from, response_of);
    Ok(body::leave(request, answer))
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
