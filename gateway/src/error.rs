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
    status: StatusCode,
    code: &'static str,
    message: Cow<'static, str>,
    retry_after: Option<u64>,
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
    pub(crate) fn closing(self) -> Self {
        Self {
            closes: true,
            ..self
        }
    }

    pub fn not_found() -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", "Not found")
    }

    pub fn method_not_allowed(allow: &'static str) -> Self {
        let message = "Method not allowed";
        Self {
            allow: Some(allow),
            ..Self::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "method_not_allowed",
                message,
            )
        }
    }

    pub fn origin_not_allowed() -> Self {
        Self::new(
            StatusCode::FORBIDDEN,
            "origin_not_allowed",
            "Requests from this origin are not accepted",
        )
    }

    pub fn payload_too_large() -> Self {
        Self::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "payload_too_large",
            "The body is larger than 65536 bytes",
        )
    }

    pub fn request_timeout() -> Self {
        Self::new(
            StatusCode::REQUEST_TIMEOUT,
            "request_timeout",
            "The body did not arrive in time",
        )
    }

    pub fn invalid_input(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_input", message)
    }

    pub fn invalid_signature() -> Self {
        Self::new(
            StatusCode::UNAUTHORIZED,
            "invalid_signature",
            "The signature is missing or wrong",
        )
    }

    pub fn temporarily_unavailable() -> Self {
        let message = "Temporarily unavailable, please retry";
        let status = StatusCode::SERVICE_UNAVAILABLE;
        Self {
            retry_after: Some(RETRY_OUTAGE),
            ..Self::new(status, "temporarily_unavailable", message)
        }
    }

    /// The daily ceiling is reached. The status makes senders try again later.
    pub fn storage_exhausted() -> Self {
        Self {
            retry_after: Some(RETRY_FULL),
            ..Self::temporarily_unavailable()
        }
    }

    /// `next_in` is the time until a request would pass.
    pub fn rate_limited(next_in: Duration) -> Self {
        let seconds = next_in.as_secs() + u64::from(next_in.subsec_nanos() > 0);
        let refusal = Self::new(
            StatusCode::TOO_MANY_REQUESTS,
            "rate_limited",
            "Rate limit exceeded",
        );
        Self {
            retry_after: Some(seconds.max(1)),
            ..refusal
        }
    }

    /// The same refusal for malformed, unknown and dead tokens.
    pub fn form_unavailable() -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "workflow_public_form_unavailable",
            "This form is not available",
        )
    }

    pub fn delivery_in_progress() -> Self {
        let message = "An identical delivery is still being processed, please retry";
        let status = StatusCode::SERVICE_UNAVAILABLE;
        Self {
            retry_after: Some(RETRY_IN_PROGRESS),
            ..Self::new(status, "delivery_in_progress", message)
        }
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

    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    /// Seconds after which the sender should try again.
    pub(crate) fn retry_after(&self) -> Option<u64> {
        self.retry_after
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
            headers.insert(header::ALLOW, HeaderValue::from_static(methods));
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
            format!(
                "{} {}: {}",
                refusal.status.as_u16(),
                text("code"),
                text("message")
            )
        };
        let second = Duration::from_secs(1);
        for (refusal, expected) in [
            (Refusal::not_found(), "404 not_found: Not found"),
            (
                Refusal::method_not_allowed("GET"),
                "405 method_not_allowed: Method not allowed",
            ),
            (
                Refusal::origin_not_allowed(),
                "403 origin_not_allowed: Requests from this origin are not accepted",
            ),
            (
                Refusal::payload_too_large(),
                "413 payload_too_large: The body is larger than 65536 bytes",
            ),
            (
                Refusal::request_timeout(),
                "408 request_timeout: The body did not arrive in time",
            ),
            (
                Refusal::invalid_input("The body must be a JSON object"),
                "400 invalid_input: The body must be a JSON object",
            ),
            (
                Refusal::invalid_signature(),
                "401 invalid_signature: The signature is missing or wrong",
            ),
            (
                Refusal::temporarily_unavailable(),
                "503 temporarily_unavailable: Temporarily unavailable, please retry",
            ),
            (
                Refusal::rate_limited(second),
                "429 rate_limited: Rate limit exceeded",
            ),
            (
                Refusal::form_unavailable(),
                "404 workflow_public_form_unavailable: This form is not available",
            ),
            (
                Refusal::delivery_in_progress(),
                "503 delivery_in_progress: \
                 An identical delivery is still being processed, please retry",
            ),
            (
                Refusal::unreadable(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE),
                "431 headers_too_large: The request's address and headers are too large",
            ),
            (
                Refusal::unreadable(StatusCode::BAD_REQUEST),
                "400 invalid_input: The request is not valid HTTP/1.1",
            ),
        ] {
            assert_eq!(told(refusal), expected);
        }
    }

    #[test]
    fn renders_the_envelope() {
        let text = String::from_utf8(Refusal::invalid_input("a \"b\"").body()).unwrap();
        assert_eq!(
            text,
            r#"{"error":{"code":"invalid_input","message":"a \"b\""}}"#
        );
        let answer = Response::from(Refusal::temporarily_unavailable());
        assert_eq!(answer.status(), 503);
        assert_eq!(answer.headers()[header::RETRY_AFTER], "5");
        assert_eq!(
            Response::from(Refusal::method_not_allowed("POST")).headers()[header::ALLOW],
            "POST"
        );
        for (next_in, seconds) in [
            (0, "1"),
            (1, "1"),
            (1_000, "1"),
            (1_001, "2"),
            (59_999, "60"),
            (60_000, "60"),
        ] {
            let answer = Response::from(Refusal::rate_limited(Duration::from_millis(next_in)));
            assert_eq!(
                (
                    answer.status().as_u16(),
                    &answer.headers()[header::RETRY_AFTER]
                ),
                (429, &HeaderValue::from_static(seconds))
            );
        }
    }
}
