//! What every answer has in common: never cached, never sniffed, and no trace of where the sender
//! came from.

use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    Response, StatusCode,
    header::{self, HeaderMap, HeaderName, HeaderValue},
};

pub type Answer = Response<Full<Bytes>>;

/// Stands on every answer of the service, and so tells them from the ones that hyper writes by
/// itself.
pub const HALLMARK: HeaderName = header::X_CONTENT_TYPE_OPTIONS;

/// An answer with a JSON body.
pub fn json(status: StatusCode, body: impl Into<Bytes>) -> Answer {
    let mut answer = content("application/json", body);
    *answer.status_mut() = status;
    answer
}

/// An answer with a body of any type.
pub fn content(media_type: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    answer
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    answer
}

/// An answer that needs no body.
pub fn no_content() -> Answer {
    let mut answer = Response::new(Full::default());
    *answer.status_mut() = StatusCode::NO_CONTENT;
    answer
}

/// Adds the headers that stand on every answer.
pub fn add_common_headers(headers: &mut HeaderMap) {
    headers.insert(HALLMARK, HeaderValue::from_static("nosniff"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(
        header::REFERRER_POLICY,
        HeaderValue::from_static("no-referrer"),
    );
    headers.insert(header::VARY, HeaderValue::from_static("Origin"));
}
