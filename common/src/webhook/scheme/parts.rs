//! A request to a webhook, and the parts of it that are signed.

use http::header::{AsHeaderName, HeaderValue};

/// The headers of a request.
pub type Headers = http::HeaderMap;

/// The value of a header that occurs exactly once.
pub fn only(headers: &Headers, name: impl AsHeaderName) -> Option<&HeaderValue> {
    let mut values = headers.get_all(name).iter();
    values.next().filter(|_| values.next().is_none())
}

/// A request to a webhook, as far as signatures depend on it.
#[derive(Debug, Clone, Copy)]
pub struct WebhookRequest<'a> {
    /// The HTTP method, in upper case.
    pub method: &'a str,
    /// The public address of the gateway, without a slash at its end.
    pub base: &'a str,
    /// The path, and the query with its question mark.
    pub target: &'a str,
    /// The headers.
    pub headers: &'a Headers,
    /// The body, byte for byte.
    pub body: &'a [u8],
}

/// What a request says beside its signature; empty where it says nothing.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Parts<'h> {
    pub(super) timestamp: &'h str,
    pub(super) id: &'h str,
}
