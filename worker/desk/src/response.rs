//! The headers of every response, and what can go wrong.

use axum::{
    http::header::{self, HeaderName},
    response::{IntoResponse, Redirect, Response},
};
use axum_extra::extract::cookie::CookieJar;
use letterbox_operator::{OperatorError, Reason};

/// No script, nothing from elsewhere, no frame around it; forms go to the desk only, and a frame
/// shows a preview.
const POLICY: &str = "default-src 'none'; style-src 'self'; frame-src 'self'; form-action 'self'; \
    base-uri 'none'; frame-ancestors 'none'";

pub(crate) const RESOURCE_POLICY: HeaderName =
    HeaderName::from_static("cross-origin-resource-policy");

/// Headers of every response, unless it says otherwise.
pub(crate) const HEADERS: [(HeaderName, &str); 7] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "same-origin"),
    (header::CACHE_CONTROL, "no-store"),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    ),
    (RESOURCE_POLICY, "same-origin"),
];

/// The answer of a room.
pub(crate) type Answered = Result<Response, Trouble>;

/// Why a room has no page to show.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// There is no such thing, or not for this person.
    NotFound,
    /// There is no session. Holds the cookie that brings the person back here, once they are.
    SignedOut(CookieJar),
    /// It was not posted from a page of the desk.
    Forged,
    /// It was posted from a page of another session, or of one that is over: where, what, and what
    /// sends it in this session, if there is one.
    Held(String, Vec<(String, String)>, Option<String>),
    /// This party has its share of requests under way.
    Busy,
    /// It is not what a page of the desk posts.
    Unreadable,
    /// A page of the desk may have posted it, but not with this value. Holds why, for the person.
    Unfit(String),
    /// It can't be done, in words for the person.
    Refused(String),
    /// The database does not answer, or not in time.
    Unavailable,
}

impl From<OperatorError> for Trouble {
    fn from(error: OperatorError) -> Self {
        match error {
            OperatorError::Refused(Reason::NotFound(_)) => Self::NotFound,
            OperatorError::Refused(reason) => Self::Refused(words_of(&reason)),
            error => {
                tracing::error!(%error, "a page failed");
                Self::Unavailable
            }
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

/// Sends the browser to a place, to read it.
pub(crate) fn see(place: &str) -> Response {
    Redirect::to(place).into_response()
}
