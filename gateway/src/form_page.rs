//! The page behind a form link: static files, part of the program. The page reads and submits the
//! form through the public endpoints, like anybody else; all that it is told is where they are, and
//! how long values may be.

use std::collections::BTreeMap;

use bytes::Bytes;
use hyper::header::{self, HeaderName, HeaderValue};
use letterbox_common::form::FieldType;
use url::Url;

use crate::response::{self, Response};

const PAGE: &str = include_str!("../static/form.html");
/// What the page loads.
const FILES: [PageFile; 4] = [
    PageFile {
        path: "/forms/form.css",
        media_type: "text/css; charset=utf-8",
        content: include_str!("../static/form.css"),
    },
    script("/forms/form.js", include_str!("../static/form.js")),
    script("/forms/draft.js", include_str!("../static/draft.js")),
    script("/forms/number.js", include_str!("../static/number.js")),
];
const OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");
const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");
const PERMISSIONS_POLICY: HeaderName = HeaderName::from_static("permissions-policy");
const SAME_ORIGIN: HeaderValue = HeaderValue::from_static("same-origin");
/// Everything that a browser would ask its user for.
const NO_PERMISSIONS: HeaderValue = HeaderValue::from_static(
    "camera=(), display-capture=(), geolocation=(), microphone=(), payment=(), usb=()",
);
/// Placeholders of the page.
const BASE_URL: &str = "{base-url}";
const MAX_LENGTHS: &str = "{max-lengths}";

/// A file that the page loads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PageFile {
    path: &'static str,
    media_type: &'static str,
    content: &'static str,
}

const fn script(path: &'static str, content: &'static str) -> PageFile {
    PageFile {
        path,
        media_type: "text/javascript; charset=utf-8",
        content,
    }
}

impl PageFile {
    /// The file at this path.
    pub(crate) fn at(path: &str) -> Option<&'static Self> {
        FILES.iter().find(|file| file.path == path)
    }

    pub(crate) fn response(&self) -> Response {
        own(self.media_type, self.content.into())
    }
}

/// The page, ready to be served.
#[derive(Debug, Clone)]
pub(crate) struct FormPage {
    html: Bytes,
    policy: HeaderValue,
}

impl FormPage {
    /// A page that calls the service at `base_url`.
    #[must_use]
    #[expect(
        clippy::expect_used,
        reason = "the origin of a web address is plain ASCII"
    )]
    pub(crate) fn new(base_url: &Url) -> Self {
        let base = attribute(base_url.as_str().trim_end_matches('/'));
        let policy = format!(
            "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self' {}; \
             base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
            base_url.origin().ascii_serialization()
        );
        let html = PAGE
            .replace(BASE_URL, &base)
            .replace(MAX_LENGTHS, &attribute(&max_lengths()));
        Self {
            html: html.into(),
            policy: HeaderValue::try_from(policy).expect("plain ASCII"),
        }
    }

    /// The same for every token, whether it lives or not.
    pub(crate) fn html(&self) -> Response {
        let mut response = own("text/html; charset=utf-8", self.html.clone());
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_SECURITY_POLICY, self.policy.clone());
        headers.insert(OPENER_POLICY, SAME_ORIGIN);
        headers.insert(PERMISSIONS_POLICY, NO_PERMISSIONS);
        response
    }
}

/// A file for pages of this service only.
fn own(media_type: &'static str, content: Bytes) -> Response {
    let mut response = response::content(media_type, content);
    response.headers_mut().insert(RESOURCE_POLICY, SAME_ORIGIN);
    response
}

/// The maximum length of each type of field that has one, as a JSON object.
fn max_lengths() -> String {
    let lengths: BTreeMap<_, _> = FieldType::ALL
        .iter()
        .filter_map(|kind| Some((kind.as_str(), kind.max_length()?)))
        .collect();
    serde_json::json!(lengths).to_string()
}

/// The text, for an attribute in double quotes.
fn attribute(text: &str) -> String {
    text.replace('&', "&amp;").replace('"', "&quot;")
}
