//! Responses, and the headers common to all of them: never sniffed, no referrer, and never cached,
//! unless one says otherwise.

use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    StatusCode,
    header::{self, HeaderMap, HeaderName, HeaderValue},
};

use crate::request_id;

/// A response with its whole body.
pub(crate) type Response = hyper::Response<Full<Bytes>>;

/// Present in every response of the service, and in none that hyper writes by itself.
pub(crate) const MARKER_HEADER: HeaderName = header::X_CONTENT_TYPE_OPTIONS;

/// Headers of most responses: one more would double what is allocated.
const MOST_HEADERS: usize = 6;

/// A response with a JSON body.
pub(crate) fn json(status: StatusCode, body: impl Into<Bytes>) -> Response {
    let mut response = content("application/json", body);
    *response.status_mut() = status;
    response
}

/// A response with a body of any type.
pub(crate) fn content(media_type: &'static str, body: impl Into<Bytes>) -> Response {
    let mut response = empty(body.into());
    set(response.headers_mut(), header::CONTENT_TYPE, media_type);
    response
}

/// A response with a body and these headers.
pub(crate) fn with_headers(headers: HeaderMap, body: Bytes) -> Response {
    let mut response = empty(body);
    response.headers_mut().extend(headers);
    response
}

/// A response without a body.
pub(crate) fn no_content() -> Response {
    let mut response = empty(Bytes::new());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}

/// A response with capacity for its headers, so that they are allocated once.
fn empty(body: Bytes) -> Response {
    let mut response = Response::new(Full::new(body));
    *response.headers_mut() = HeaderMap::with_capacity(MOST_HEADERS);
    response
}

/// Sets a header to a fixed value.
pub(crate) fn set(headers: &mut HeaderMap, name: HeaderName, value: &'static str) {
    headers.insert(name, HeaderValue::from_static(value));
}

/// Announces that the connection ends with this response.
pub(crate) fn announce_close(headers: &mut HeaderMap) {
    set(headers, header::CONNECTION, "close");
}

/// Adds the headers of every response.
pub(crate) fn add_common_headers(headers: &mut HeaderMap, request_id: HeaderValue) {
    headers.insert(request_id::HEADER, request_id);
    set(headers, MARKER_HEADER, "nosniff");
    let cached = headers.entry(header::CACHE_CONTROL);
    cached.or_insert(HeaderValue::from_static("no-store"));
    set(headers, header::REFERRER_POLICY, "no-referrer");
    let varies = headers.entry(header::VARY);
    varies.or_insert(HeaderValue::from_static("Origin"));
}
