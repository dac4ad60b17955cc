//! What every action that sends a request has in common: the request, and what its answer means.

use std::fmt;

use serde::{Deserialize, Serialize};
use url::Url;

use super::Branch;
use crate::{
    diagnostics::Diagnostics,
    template::{References, RenderError, Renderer, Variables},
};

/// An action that sends a request to a connected account. One implementation for each kind.
#[expect(
    private_interfaces,
    reason = "only this crate implements it, and only it checks"
)]
pub trait Outgoing: fmt::Debug + Send + Sync {
    /// Name of the account that it calls.
    fn account(&self) -> &str;

    /// The method of its request, in capital letters.
    fn method(&self) -> &str;

    /// What gets into the request.
    fn references(&self) -> References;

    /// Whether the definition sets this header.
    fn sets_header(&self, _name: &str) -> bool {
        false
    }

    /// Checks its templates, for a definition that is about to be deployed.
    fn check(&self, diagnostics: &mut Diagnostics, path: &str, variables: &Variables);

    /// The request for the values of a run, to an account at `base_url`.
    ///
    /// # Errors
    /// When a value can't be inserted where it would be.
    fn render(&self, base_url: &Url, renderer: &Renderer<'_>) -> Result<Request, RenderError>;

    /// What is recorded and shown of its request, where that is not the request itself; none where
    /// it is, and later attempts send what was recorded.
    fn shown(&self, _request: &Request) -> Option<Request> {
        None
    }

    /// What a successful answer (2xx) means. `body` is what arrived of it, `is_complete` whether
    /// that is all of it.
    fn conclude(&self, _body: &[u8], _is_complete: bool) -> Conclusion {
        Conclusion::Done
    }
}

/// What a successful answer means for its action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Conclusion {
    /// The action is done.
    Done,
    /// The action is done and has chosen this branch.
    Chose(Branch),
    /// The action has failed, and would fail again.
    Failed(String),
    /// The answer did not arrive as a whole: another attempt may succeed.
    Incomplete,
}

/// A request as it is sent, but for the credential: what is recorded, shown to whoever approves it,
/// and sent by every attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// In capital letters.
    pub method: String,
    /// The whole URL: the account's base URL, the path and the query.
    pub url: String,
    /// Names and values; sending adds the content type, the idempotency key and the credential.
    pub headers: Vec<(String, String)>,
    /// JSON text.
    pub body: Option<String>,
}

impl Request {
    /// Whether it goes to an account with this base URL: same origin, and a path below it.
    #[must_use]
    pub fn is_below(&self, base_url: &Url) -> bool {
        let Ok(url) = Url::parse(&self.url) else {
            return false;
        };
        let below = url
            .path()
            .strip_prefix(base_url.path().trim_end_matches('/'));
        url.origin() == base_url.origin()
            && url.username().is_empty()
            && url.password().is_none()
            && below.is_some_and(|path| path.is_empty() || path.starts_with('/'))
    }
}

/// The URL of `path` below an account's base URL.
///
/// # Errors
/// When the URL would not have this path, because `.` and `..` are segments of it.
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
    }
}
