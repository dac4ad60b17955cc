//! The page behind a form link: three static files, part of the program. The page reads and submits
//! the form through the public endpoints, like anybody else; all that it is told is where they are.

use bytes::Bytes;
use hyper::header::{self, HeaderValue};
use url::Url;

use crate::response::{self, Response};

const PAGE: &str = include_str!("../static/form.html");
const STYLE: &str = include_str!("../static/form.css");
const SCRIPT: &str = include_str!("../static/form.js");
/// Stands in the page where the service's address goes.
const BASE_URL: &str = "{base-url}";

/// The page, ready to be served.
#[derive(Debug, Clone)]
pub struct FormPage {
    html: Bytes,
    policy: HeaderValue,
}

impl FormPage {
    /// A page that calls the service at `base_url`.
    #[must_use]
    pub fn new(base_url: &Url) -> Self {
        let base = base_url
            .as_str()
            .trim_end_matches('/')
            .replace('&', "&amp;")
            .replace('"', "&quot;");
        let policy = format!(
            "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self' {}; \
             base-uri 'none'; \
             form-action 'none'; frame-ancestors 'none'",
            base_url.origin().ascii_serialization()
        );
        // The origin of a web address is plain ASCII.
        let policy =
            HeaderValue::try_from(policy).unwrap_or(HeaderValue::from_static("default-src 'none'"));
        Self {
            html: PAGE.replace(BASE_URL, &base).into(),
            policy,
        }
    }

    /// The same for every token, whether it lives or not.
    pub fn html(&self) -> Response {
        let mut response = response::content("text/html; charset=utf-8", self.html.clone());
        response
            .headers_mut()
            .insert(header::CONTENT_SECURITY_POLICY, self.policy.clone());
        response
    }

    pub fn style() -> Response {
        response::content("text/css; charset=utf-8", STYLE)
    }

    pub fn script() -> Response {
        response::content("text/javascript; charset=utf-8", SCRIPT)
    }
}
