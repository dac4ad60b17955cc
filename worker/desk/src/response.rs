//! Responses, the headers of each, and what can go wrong.

use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    StatusCode,
    header::{self, HeaderName, HeaderValue},
};
use letterbox_operator::{OperatorError, Reason};

/// A response with its whole body.
pub(crate) type Response = hyper::Response<Full<Bytes>>;

/// No script, nothing from elsewhere, no frame around it; forms go to the desk only.
const POLICY: &str = "default-src 'none'; style-src 'self'; form-action 'self'; \
    base-uri 'none'; frame-ancestors 'none'";

/// Headers of every response.
const HEADERS: [(HeaderName, &str); 7] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "same-origin"),
    (header::CACHE_CONTROL, "no-store"),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
];

/// Why a room has no page to show.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// There is no such thing, or not for this person.
    NotFound,
    /// There is no session.
    SignedOut,
    /// It was not posted from a page of this session.
    Forged,
    /// This party has its share of requests under way.
    Busy,
    /// It is not what a page of the desk posts.
    Unreadable,
    /// A page of the desk may have posted it, but not with this value. Holds why, for the person.
    Unfit(String),
    /// It can't be done, in words for the person.
    Refused(String),
    /// A server failed.
    Failed(OperatorError),
}

impl From<OperatorError> for Trouble {
    fn from(error: OperatorError) -> Self {
        match error {
            OperatorError::Refused(Reason::NotFound(_)) => Self::NotFound,
            OperatorError::Refused(reason) => Self::Refused(words_of(&reason)),
            error => Self::Failed(error),
        }
    }
}

/// Why an order was refused, for the person who gave it.
pub(crate) fn words_of(reason: &Reason) -> String {
    match reason {
        Reason::NotAllowed(_) => "Your role in this workspace does not allow this.".to_owned(),
        reason => sentence(&reason.to_string()),
    }
}

/// Words as a sentence of their own.
fn sentence(words: &str) -> String {
    let mut characters = words.chars();
    match characters.next() {
        Some(first) => format!("{}{}.", first.to_uppercase(), characters.as_str()),
        None => String::new(),
    }
}

/// A response with a body of a type.
pub(crate) fn content(
    status: StatusCode,
    media_type: &'static str,
    body: impl Into<Bytes>,
) -> Response {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// A page that says why something that was sent was refused.
pub(crate) fn refusal(mut page: Response) -> Response {
    *page.status_mut() = StatusCode::UNPROCESSABLE_ENTITY;
    page
}

/// A response that sets a cookie.
pub(crate) trait WithCookie {
    /// Sets it, besides those that are set already.
    fn with_cookie(self, cookie: Option<HeaderValue>) -> Self;
}

impl WithCookie for Response {
    fn with_cookie(mut self, cookie: Option<HeaderValue>) -> Self {
        if let Some(cookie) = cookie {
            self.headers_mut().append(header::SET_COOKIE, cookie);
        }
        self
    }
}

/// Sends the browser to a place of the desk, to read it.
pub(crate) fn see(place: &str) -> Response {
    let mut response = content(StatusCode::SEE_OTHER, "text/plain", Bytes::new());
    if let Ok(place) = HeaderValue::try_from(place) {
        response.headers_mut().insert(header::LOCATION, place);
    }
    response
}
