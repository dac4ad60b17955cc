//! Refusals: the one type that renders the error envelope `{"error":{"code","message"}}`.
//!
//! A refusal holds only what the sender may know. Causes are logged where they occur.

use std::{borrow::Cow, time::Duration};

use hyper::{
    StatusCode,
    header::{self, HeaderValue},
};
use serde::Serialize;

use crate::response::{self, Response};

/// `Retry-After` while a server is away, in seconds.
const RETRY_OUTAGE: u64 = 5;
/// `Retry-After` when the daily ceiling is reached, in seconds.
const RETRY_FULL: u64 = 600;
/// `Retry-After` while an identical delivery is being recorded, in seconds.
const RETRY_IN_PROGRESS: u64 = 1;

/// A refusal, with everything that the sender sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub(crate) status: StatusCode,
    code: &'static str,
    message: Cow<'static, str>,
    /// Seconds after which the sender should try again.
    pub(crate) retry_after: Option<u64>,
    allow: Option<&'static str>,
    /// Whether the connection ends with it.
    closes: bool,
}

#[derive(Serialize)]
struct ErrorEnvelope<'a> {
    error: ErrorBody<'a>,
}

#[derive(Serialize)]
struct ErrorBody<'a> {
    code: &'a str,
    message: &'a str,
}

impl Refusal {
    fn new(status: StatusCode, code: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            status,
            code,
            message: message.into(),
            retry_after: None,
            allow: None,
            closes: false,
        }
    }

    /// The same refusal, which also ends the connection.
    #[must_use]
    pub(crate) fn closing(mut self) -> Self {
        self.closes = true;
        self
    }

    /// The same refusal, which also asks the sender to try again after these seconds.
    fn retry_after_seconds(mut self, seconds: u64) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    pub fn not_found() -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", "Not found")
    }

    pub fn method_not_allowed(allow: &'static str) -> Self {
        let message = "Method not allowed";
        let status = StatusCode::METHOD_NOT_ALLOWED;
        Self {
            allow: Some(allow),
            ..Self::new(status, "method_not_allowed", message)
        }
    }

    pub fn origin_not_allowed() -> Self {
        let message = "Requests from this origin are not accepted";
        Self::new(StatusCode::FORBIDDEN, "origin_not_allowed", message)
    }

    pub fn payload_too_large() -> Self {
        let message = "The body is larger than 65536 bytes";
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "payload_too_large", message)
    }

    pub fn request_timeout() -> Self {
        let message = "The body did not arrive in time";
        Self::new(StatusCode::REQUEST_TIMEOUT, "request_timeout", message)
    }

    pub fn invalid_input(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_input", message)
    }

    pub fn invalid_signature() -> Self {
        let message = "The signature is missing or wrong";
        Self::new(StatusCode::UNAUTHORIZED, "invalid_signature", message)
    }

    pub fn temporarily_unavailable() -> Self {
        let message = "Temporarily unavailable, please retry";
        let status = StatusCode::SERVICE_UNAVAILABLE;
        let refusal = Self::new(status, "temporarily_unavailable", message);
        refusal.retry_after_seconds(RETRY_OUTAGE)
    }

    /// The daily ceiling is reached. The status makes senders try again later.
    pub fn storage_exhausted() -> Self {
        Self::temporarily_unavailable().retry_after_seconds(RETRY_FULL)
    }

    /// `next_in` is the time until a request would pass.
    pub fn rate_limited(next_in: Duration) -> Self {
        let seconds = next_in.as_secs() + u64::from(next_in.subsec_nanos() > 0);
        let status = StatusCode::TOO_MANY_REQUESTS;
        let refusal = Self::new(status, "rate_limited", "Rate limit exceeded");
        refusal.retry_after_seconds(seconds.max(1))
    }

    /// The same refusal for malformed, unknown and dead tokens.
    pub fn form_unavailable() -> Self {
        let code = "workflow_public_form_unavailable";
        Self::new(StatusCode::NOT_FOUND, code, "This form is not available")
    }

    pub fn delivery_in_progress() -> Self {
        let message = "An identical delivery is still being processed, please retry";
        let status = StatusCode::SERVICE_UNAVAILABLE;
        let refusal = Self::new(status, "delivery_in_progress", message);
        refusal.retry_after_seconds(RETRY_IN_PROGRESS)
    }

    /// The request is not HTTP/1.1, or its head is too large. `status` is hyper's.
    pub fn unreadable(status: StatusCode) -> Self {
        let (code, message) = match status {
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => (
                "headers_too_large",
                "The request's address and headers are too large",
            ),
            _ => ("invalid_input", "The request is not valid HTTP/1.1"),
        };
        Self::new(status, code, message)
    }

    /// The envelope as JSON text.
    #[expect(clippy::expect_used, reason = "two strings always serialize")]
    pub(crate) fn body(&self) -> Vec<u8> {
        let error = ErrorBody {
            code: self.code,
            message: &self.message,
        };
        serde_json::to_vec(&ErrorEnvelope { error }).expect("two strings always serialize")
    }
}

impl From<Refusal> for Response {
    fn from(refusal: Refusal) -> Self {
        let mut response = response::json(refusal.status, refusal.body());
        let headers = response.headers_mut();
        if let Some(seconds) = refusal.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if let Some(methods) = refusal.allow {
            response::set(headers, header::ALLOW, methods);
        }
        if refusal.closes {
            response::announce_close(headers);
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every refusal that senders may see, with its status, code and message.
    #[test]
    fn every_refusal_says_this() {
        let told = |refusal: Refusal| {
            let body = String::from_utf8(refusal.body()).unwrap();
            let body: serde_json::Value = serde_json::from_str(&body).unwrap();
            let text = |name: &str| body["error"][name].as_str().unwrap().to_owned();
            let status = refusal.status.as_u16();
            format!("{status} {}: {}", text("code"), text("message"))
        };
        let refusals = [
            Refusal::not_found(),
            Refusal::method_not_allowed("GET"),
            Refusal::origin_not_allowed(),
            Refusal::payload_too_large(),
            Refusal::request_timeout(),
            Refusal::invalid_input("The body must be a JSON object"),
            Refusal::invalid_signature(),
            Refusal::temporarily_unavailable(),
            Refusal::rate_limited(Duration::from_secs(1)),
            Refusal::form_unavailable(),
            Refusal::delivery_in_progress(),
            Refusal::unreadable(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE),
            Refusal::unreadable(StatusCode::BAD_REQUEST),
        ];
        let expected = "\
404 not_found: Not found
405 method_not_allowed: Method not allowed
403 origin_not_allowed: Requests from this origin are not accepted
413 payload_too_large: The body is larger than 65536 bytes
408 request_timeout: The body did not arrive in time
400 invalid_input: The body must be a JSON object
401 invalid_signature: The signature is missing or wrong
503 temporarily_unavailable: Temporarily unavailable, please retry
429 rate_limited: Rate limit exceeded
404 workflow_public_form_unavailable: This form is not available
503 delivery_in_progress: An identical delivery is still being processed, please retry
431 headers_too_large: The request's address and headers are too large
400 invalid_input: The request is not valid HTTP/1.1";
        assert_eq!(refusals.map(told).join("\n"), expected);
    }

    #[test]
    fn renders_the_envelope() {
        let text = String::from_utf8(Refusal::invalid_input("a \"b\"").body()).unwrap();
        let envelope = r#"{"error":{"code":"invalid_input","message":"a \"b\""}}"#;
        assert_eq!(text, envelope);
        let answer = Response::from(Refusal::temporarily_unavailable());
        assert_eq!(answer.status(), 503);
        assert_eq!(answer.headers()[header::RETRY_AFTER], "5");
        let answer = Response::from(Refusal::method_not_allowed("POST"));
        assert_eq!(answer.headers()[header::ALLOW], "POST");
        let told = [0, 1, 1_000, 1_001, 59_999, 60_000].map(|next_in| {
            let answer = Response::from(Refusal::rate_limited(Duration::from_millis(next_in)));
            assert_eq!(answer.status(), 429);
            answer.headers()[header::RETRY_AFTER].clone()
        });
        assert_eq!(told, ["1", "1", "1", "2", "60", "60"]);
    }
}
