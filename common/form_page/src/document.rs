//! The documents of the form page: with a form, or without one, which says why or asks for it
//! again.
//!
//! A document that says why there is no form may be embedded in any frame, because it has nothing
//! to click by mistake. One with a form may be embedded where its owner allows it; a preview, where
//! it is shown to its owner.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use letterbox_common::{
    KeyHash,
    form::{FieldType, Form, Locale, Page},
    ids::WorkflowId,
};
use serde::Serialize;
use serde_json::value::RawValue;
use url::Url;

use crate::{
    colors::Colors,
    files::{NAME_OF_ALL, RESOURCE_POLICY, SAME_ORIGIN},
};

const DOCUMENT: &str = include_str!("../static/form.html");
const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=utf-8");
const OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");
const PERMISSIONS_POLICY: HeaderName = HeaderName::from_static("permissions-policy");
/// Disables everything that a browser would ask its user to permit.
const NO_PERMISSIONS: HeaderValue = HeaderValue::from_static(
    "camera=(), display-capture=(), geolocation=(), microphone=(), payment=(), usb=()",
);
/// What every document may load.
const SOURCES: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
    img-src 'self' data:; base-uri 'none'; form-action 'none'; ";
/// A preview connects to nothing, and reaches neither the session nor the pages around it.
const PREVIEW: &str = "connect-src 'none'; sandbox allow-scripts allow-forms; frame-ancestors ";
/// The purpose of the hash by which the page keeps drafts.
const DRAFT_KEY: &[u8] = b"letterbox draft key";

/// Renders the documents of one service.
#[derive(Debug, Clone)]
pub struct Documents {
    /// The template, with addresses and maximum lengths filled in.
    html: String,
    /// To which service the page submits.
    connects: String,
}

/// A document, with the headers that are its own.
#[derive(Debug)]
pub struct Document {
    /// Its text.
    pub html: Bytes,
    /// Its media type, and what a browser allows it.
    pub headers: HeaderMap,
}

/// A form on its page.
#[derive(Debug, Clone, Copy)]
pub struct Shown<'f> {
    /// The form, as the JSON text that the public reads.
    pub json: &'f str,
    /// The same form.
    pub form: &'f Form,
    /// The look of its page.
    pub page: &'f Page,
    /// The workflow whose form it is.
    pub workflow: WorkflowId,
}

/// The data in a document with a form.
#[derive(Serialize)]
struct PageData<'a, C> {
    form: &'a RawValue,
    #[serde(flatten)]
    page: &'a Page,
    colors: Option<Colors>,
    challenge: Option<C>,
    /// Of the workflow, the same for all of its links, so that the page offers a draft to no other
    /// form. A hash, which does not tell the id.
    draft_key: KeyHash,
    /// Whether it sends nothing.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    is_preview: bool,
}

impl Documents {
    /// Creates the documents of the service at `base_url`.
    pub fn new(base_url: &Url) -> Self {
        let base = base_url.as_str().trim_end_matches('/');
        let origin = base_url.origin().ascii_serialization();
        let html = DOCUMENT
            .replace("{files}", &NAME_OF_ALL)
            .replace("{base-url}", &escape(base))
            .replace("{locales}", &Locale::WORDS.join(" "))
            .replace("{max-lengths}", &escape(&max_lengths()));
        let connects = format!("connect-src 'self' {origin}; frame-ancestors ");
        Self { html, connects }
    }

    /// The document of a live form, whose submissions need an answer to this challenge.
    ///
    /// # Errors
    /// When the form is no JSON.
    pub fn with_form(
        &self,
        shown: Shown<'_>,
        challenge: Option<impl Serialize>,
    ) -> Result<Document, serde_json::Error> {
        let html = self.filled(shown, challenge, false)?;
        let ancestors = &shown.page.frame_ancestors;
        // Who stores a page by SQL changes no more of the header than this.
        let is_origin = |origin: &&String| !origin.contains([';', ',', ' ']);
        let origins = ancestors.iter().filter(is_origin).map(String::as_str);
        let ancestors = match ancestors.is_empty() {
            true => "'none'".to_owned(),
            false => origins.collect::<Vec<_>>().join(" "),
        };
        Ok(document(html, &self.connects, &ancestors))
    }

    /// The document of a form that may be filled in, but sends nothing.
    ///
    /// # Errors
    /// When the form is no JSON.
    pub fn preview(&self, shown: Shown<'_>) -> Result<Document, serde_json::Error> {
        let html = self.filled(shown, None::<()>, true)?;
        let mut document = document(html, PREVIEW, "'self'");
        // A sandbox has an origin of its own, from which no group of pages can be kept.
        let alone = HeaderValue::from_static("unsafe-none");
        document.headers.insert(OPENER_POLICY, alone);
        Ok(document)
    }

    fn filled(
        &self,
        shown: Shown<'_>,
        challenge: Option<impl Serialize>,
        is_preview: bool,
    ) -> Result<String, serde_json::Error> {
        let Shown { form, page, .. } = shown;
        let told = PageData {
            form: serde_json::from_str(shown.json)?,
            page,
            colors: page.color.map(Colors::of),
            challenge,
            draft_key: KeyHash::of_content(shown.workflow.as_bytes(), DRAFT_KEY),
            is_preview,
        };
        let told = serde_json::to_string(&told)?;
        let language = page.locale.unwrap_or(Locale::English);
        Ok(self
            .html
            .replace("{language}", language.as_str())
            .replace("{state}", "")
            // From the end to the beginning, so that nothing is replaced in the owner's texts.
            .replacen("{told}", &escape(&told), 1)
            .replacen("{title}", &head(form, page), 1))
    }

    /// The document without data, for a page that knows its token and fetches the form.
    pub fn without_form(&self) -> Document {
        document(self.empty(""), &self.connects, "'none'")
    }

    /// The document that says why there is no form, the same for every token: by the status of the
    /// answer, and in how many seconds another try may succeed.
    pub fn refused(&self, status: u16, retry: Option<u64>) -> Document {
        let retry = retry.unwrap_or_default();
        let state = format!("data-status=\"{status}\" data-retry=\"{retry}\"");
        document(self.empty(&state), &self.connects, "*")
    }

    fn empty(&self, state: &str) -> String {
        self.html
            .replace("{language}", Locale::English.as_str())
            .replace("{state}", state)
            .replace("{title}", "<title>Form</title>")
            .replace("{told}", "")
    }
}

fn document(html: String, connects: &str, ancestors: &str) -> Document {
    // The owner's origins were checked at the deploy, so the fallback is never needed.
    let policy = HeaderValue::try_from([SOURCES, connects, ancestors].concat());
    let policy = policy.unwrap_or(HeaderValue::from_static("default-src 'none'"));
    let headers = [
        (header::CONTENT_TYPE, HTML),
        (RESOURCE_POLICY, SAME_ORIGIN),
        (header::CONTENT_SECURITY_POLICY, policy),
        (OPENER_POLICY, SAME_ORIGIN),
        (PERMISSIONS_POLICY, NO_PERMISSIONS),
    ];
    Document {
        html: html.into(),
        headers: headers.into_iter().collect(),
    }
}

/// The title and description of the page, as a tab or a link preview shows them.
fn head(form: &Form, page: &Page) -> String {
    let title = escape(&form.title);
    let mut head = format!(
        "<title>{title}</title>\n  <meta property=\"og:title\" content=\"{title}\">\n  \
         <meta property=\"og:type\" content=\"website\">"
    );
    let more = [
        ("og:description", form.description.as_ref()),
        ("og:site_name", page.organization.as_ref()),
    ];
    for (name, text) in more {
        if let Some(text) = text {
            let text = escape(text);
            head.push_str(&format!(
                "\n  <meta property=\"{name}\" content=\"{text}\">"
            ));
        }
    }
    head
}

/// The maximum length of each type of field that has one, as a JSON object.
fn max_lengths() -> String {
    let lengths: BTreeMap<_, _> = FieldType::ALL
        .iter()
        .filter_map(|kind| Some((kind.as_str(), kind.max_length()?)))
        .collect();
    serde_json::json!(lengths).to_string()
}

/// Escapes text for an element or an attribute in double quotes.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('"', "&quot;")
}
