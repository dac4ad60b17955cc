//! The common interface of actions that send a request: the request, and the meaning of its answer.

use std::{fmt, ops::Range, time::Duration};

use letterbox_common::text_enum;
use serde::{Deserialize, Serialize};
use url::Url;

use super::{Branch, Reading};
use crate::{
    diagnostics::Diagnostics,
    template::{References, RenderError, Renderer, Variables},
};

/// How long an exchange takes at most, from the first byte sent to the last one read, unless its
/// action gives it longer.
pub const TIMEOUT: Duration = Duration::from_secs(20);
/// How long an action may give it. Models may think for so long.
pub const MAX_TIMEOUT: Duration = Duration::from_secs(120);
/// The statuses of success.
pub(super) const SUCCESS: Range<u16> = 200..300;

/// An action that sends a request to a connected account.
#[expect(
    private_interfaces,
    reason = "only this crate implements it, and only it checks"
)]
pub trait Outgoing: fmt::Debug + Send + Sync {
    /// The name of the account that it calls.
    fn account(&self) -> &str;

    /// The method of its request, in capital letters. An e-mail has one, too: a policy's rule about
    /// what writes is about it.
    fn method(&self) -> &str {
        "POST"
    }

    /// Whether it is an e-mail, and its account a mail server.
    fn is_mail(&self) -> bool {
        false
    }

    /// The values that the request uses.
    fn references(&self) -> References;

    /// Those of them that say who receives it, where the account doesn't.
    fn recipients(&self) -> References {
        References::default()
    }

    /// Whether the definition sets this header.
    fn sets_header(&self, _name: &str) -> bool {
        false
    }

    /// Checks its templates when a definition is deployed.
    fn check(&self, _: &mut Diagnostics, _path: &str, _: &Variables) {}

    /// Renders the request with the values of a run, to an account at `base_url`. Fails if a value
    /// can't be inserted in its place.
    fn render(&self, base_url: &Url, renderer: &Renderer<'_>) -> Result<Request, RenderError>;

    /// The redacted request to record and show. `None` if the request itself is recorded, which
    /// later attempts then send.
    fn shown(&self, _request: &Request) -> Option<Request> {
        None
    }

    /// How long its exchange takes at most.
    fn timeout(&self) -> Duration {
        TIMEOUT
    }

    /// What of its answer is read, and kept for later actions.
    fn reading(&self) -> Reading {
        Reading::default()
    }

    /// Whether this status is an answer that it concludes from, and not a failure.
    fn is_answer(&self, status: u16) -> bool {
        SUCCESS.contains(&status)
    }

    /// Concludes from an answer. `is_complete` is `false` if only a part of the
    /// body arrived.
    fn conclude(&self, _body: &[u8], _is_complete: bool) -> Conclusion {
        Conclusion::Done
    }
}

/// The conclusion from an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Conclusion {
    /// The action is done.
    Done,
    /// The action is done and has chosen this branch.
    Chose(Branch),
    /// The action has failed, and another attempt would fail as well.
    Failed(String),
    /// The answer did not arrive completely: another attempt may succeed.
    Incomplete,
}

/// A request as it is recorded, shown for approval, and sent by every attempt, without the
/// credential.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// In capital letters.
    pub method: String,
    /// The whole URL: the account's base URL, the path and the query.
    pub url: String,
    /// Names and values; sending adds the content type, the idempotency key and the credential.
    pub headers: Vec<(String, String)>,
    /// Text of the type `body_type`.
    pub body: Option<String>,
    /// The type of the body.
    #[serde(default, skip_serializing_if = "BodyType::is_json")]
    pub body_type: BodyType,
}

impl Request {
    /// How many bytes its parts have.
    pub(crate) fn length(&self) -> usize {
        let headers = self.headers.iter();
        let headers: usize = headers.map(|(name, value)| name.len() + value.len()).sum();
        headers + self.url.len() + self.body.as_ref().map_or(0, String::len)
    }
}

text_enum! {
    /// The type of a body, the value of the header `Content-Type`.
    #[derive(Default)]
    pub enum BodyType {
        /// JSON
        #[default]
        Json = "application/json",
        /// Names and values of an HTML form
        Form = "application/x-www-form-urlencoded",
        /// The parts of an e-mail by their types: an object of texts
        Mail = "multipart/alternative",
    }
}

impl BodyType {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it")]
    fn is_json(&self) -> bool {
        *self == Self::Json
    }
}

impl Request {
    /// Whether it goes to an account with this base URL: same server, and a path below it.
    pub fn is_below(&self, base_url: &Url) -> bool {
        let Ok(url) = Url::parse(&self.url) else {
            return false;
        };
        let below = url
            .path()
            .strip_prefix(base_url.path().trim_end_matches('/'));
        is_same_server(&url, base_url)
            && url.username().is_empty()
            && url.password().is_none()
            && below.is_some_and(|path| path.is_empty() || path.starts_with('/'))
    }
}

/// Whether two URLs have scheme, host and port in common. Unlike their origins, also of schemes
/// that browsers don't know.
fn is_same_server(one: &Url, other: &Url) -> bool {
    one.scheme() == other.scheme()
        && one.host() == other.host()
        && one.port_or_known_default() == other.port_or_known_default()
}

/// Returns the URL of `path` below an account's base URL. Fails if the URL would have another path,
/// because `path` has `.` or `..` segments.
pub(super) fn join_path(base_url: &Url, path: &str) -> Result<Url, RenderError> {
    let whole = format!("{}{path}", base_url.path().trim_end_matches('/'));
    let mut url = base_url.clone();
    url.set_path(&whole);
    if url.path() != whole || url.origin() != base_url.origin() {
        return Err(RenderError::new(
            "a value would change the structure of the path",
        ));
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_goes_where_its_account_is() {
        let is_below = |url: &str, base: &str| {
            let request = Request {
                method: "GET".to_owned(),
                url: url.to_owned(),
                headers: Vec::new(),
                body: None,
                body_type: BodyType::Json,
            };
            request.is_below(&base.parse().unwrap())
        };
        for url in ["https://a.example/v1", "https://a.example/v1/x?y=1"] {
            assert!(is_below(url, "https://a.example/v1"), "{url}");
            assert!(is_below(url, "https://a.example/v1/"), "{url}");
            assert!(is_below(url, "https://a.example"), "{url}");
        }
        for url in [
            "",
            "https://a.example/v10",
            "https://a.example/",
            "https://a.example/v1/../v2",
            "http://a.example/v1",
            "https://b.example/v1",
            "https://a.example.com/v1",
            "https://a.example:444/v1",
            "https://u@a.example/v1",
        ] {
            assert!(!is_below(url, "https://a.example/v1"), "{url}");
        }
        let mail = "smtps://mail.example:465";
        for (url, expected) in [
            (mail, true),
            ("smtps://mail.example", false),
            ("smtp://mail.example:465", false),
            ("smtps://other.example:465", false),
        ] {
            assert_eq!(is_below(url, mail), expected, "{url}");
        }
    }
}
