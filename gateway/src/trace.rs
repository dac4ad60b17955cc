//! The trace of a request, and the receipt that carries its id and trace context in messages.
//!
//! A trace begins here. A trace that the sender names is only linked, so that senders can't decide
//! what is sampled or which trace a request belongs to.

use hyper::{
    Method,
    header::{HeaderMap, HeaderValue},
    http::request::Parts,
};
use jiff::Timestamp;
use letterbox_broker::Receipt;
use letterbox_common::webhook::only;
use letterbox_traces::{Span, SpanKind, TRACEPARENT, begin_unsampled, is_on, linked};

use crate::request_id;

/// Begins the trace of a request to a known path. From here on the headers of the request hold its
/// context and no other.
pub(crate) fn begin(head: &mut Parts, path: &'static str) -> Option<Span> {
    if !is_on() {
        return None;
    }
    let headers = &head.headers;
    let caller = only(headers, TRACEPARENT).and_then(|caller| caller.to_str().ok());
    // The name of a span must not hold a method that the sender made up.
    let method = match head.method {
        Method::GET | Method::HEAD | Method::POST | Method::OPTIONS => head.method.as_str(),
        _ => "_OTHER",
    };
    let mut span = linked(SpanKind::Server, format!("{method} {path}"), caller)?;
    span.set("http.request.method", method.to_owned());
    span.set("http.route", path);
    if let Some(id) = request_id::of(headers) {
        span.set("letterbox.request_id", id);
    }
    // Digits and hyphens are always a value.
    if let Ok(context) = HeaderValue::try_from(span.traceparent()) {
        head.headers.insert(TRACEPARENT, context);
    }
    Some(span)
}

/// Ends the trace of a request that is answered.
pub(crate) fn end(span: Option<Span>, status: u16) {
    let Some(mut span) = span else { return };
    span.set("http.response.status_code", i64::from(status));
    if status >= 500 {
        span.fail("");
    }
}

/// The receipt of a request, for its entry.
pub(crate) fn receipt(headers: &HeaderMap, received_at: Timestamp) -> Receipt {
    let context = headers.get(TRACEPARENT).filter(|_| is_on());
    let context = context.and_then(|context| context.to_str().ok());
    Receipt {
        received_at,
        traceparent: context.map_or_else(begin_unsampled, str::to_owned),
        request_id: request_id::of(headers),
    }
}
