//! A GET that the owner of an account tries before a workflow sends it.

use url::Url;

use super::outgoing::{BodyType, Outgoing, Request, join_path};
use crate::template::{References, RenderError, Renderer};

/// A trial: a request without values.
#[derive(Debug)]
pub struct Trial {
    account: String,
    path: String,
}

impl Trial {
    /// Of this account, with a path below its base URL, and perhaps a query behind it.
    pub fn new(account: String, path: String) -> Self {
        Self { account, path }
    }

    /// The request to the account at `base_url`. Fails if the path can't be below that.
    pub fn request(&self, base_url: &Url) -> Result<Request, RenderError> {
        let (path, query) = match self.path.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (&*self.path, None),
        };
        let joined = match path.starts_with('/') && !path.contains(['#', '\\']) {
            true => join_path(base_url, path).ok(),
            false => None,
        };
        let mut url = joined.ok_or_else(|| {
            let why = "write the path as it is sent: it begins with /, has no segments . and .., \
                       and other signs as %20";
            RenderError::new(why)
        })?;
        url.set_query(query);
        Ok(Request {
            method: self.method().to_owned(),
            url: url.into(),
            headers: Vec::new(),
            body: None,
            body_type: BodyType::Json,
        })
    }
}

impl Outgoing for Trial {
    fn account(&self) -> &str {
        &self.account
    }

    fn method(&self) -> &'static str {
        "GET"
    }

    fn references(&self) -> References {
        References::default()
    }

    fn render(&self, base_url: &Url, _: &Renderer<'_>) -> Result<Request, RenderError> {
        self.request(base_url)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_stays_below_its_account() {
        let base = Url::parse("https://api.example/v1/").unwrap();
        let url = |path: &str| {
            let trial = Trial::new("a".to_owned(), path.to_owned());
            trial.request(&base).ok().map(|request| request.url)
        };
        for (path, expected) in [
            ("/", Some("https://api.example/v1/")),
            (
                "/me?x=a b&y=%2f",
                Some("https://api.example/v1/me?x=a%20b&y=%2f"),
            ),
            ("/me?x=../..", Some("https://api.example/v1/me?x=../..")),
            ("me", None),
            ("", None),
            ("/../admin", None),
            ("/%2e%2e/admin", None),
            ("/a\\b", None),
            ("/a#b", None),
            ("?x", None),
        ] {
            assert_eq!(url(path).as_deref(), expected, "{path}");
        }
    }
}
