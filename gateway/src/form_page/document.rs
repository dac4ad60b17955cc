//! The documents of the form page: with a form, or without one, which says why or asks for it
//! again.
//!
//! A document that says why there is no form may be embedded in any frame, because it has nothing
//! to click by mistake. One with a form may be embedded where its owner allows it.

use std::collections::BTreeMap;

use bytes::Bytes;
use hyper::header::{self, HeaderName, HeaderValue};
use letterbox_common::{
    KeyHash,
    form::{Color, FieldType, Form, Locale, Page},
};
use serde::Serialize;
use serde_json::value::RawValue;
use url::Url;

use super::files::NAME_OF_ALL;
use crate::{admission::LiveForm, error::Refusal, proof::Challenge, response::Response};

const DOCUMENT: &str = include_str!("../../static/form.html");
const HTML: &str = "text/html; charset=utf-8";
const OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");
const PERMISSIONS_POLICY: HeaderName = HeaderName::from_static("permissions-policy");
/// Disables everything that a browser would ask its user to permit.
const NO_PERMISSIONS: HeaderValue = HeaderValue::from_static(
    "camera=(), display-capture=(), geolocation=(), microphone=(), payment=(), usb=()",
);
/// The backgrounds in `static/form.css`, of the card and of the page, in light and dark mode.
const LIGHT: [Color; 2] = [Color::WHITE, Color::new(0xf2, 0xf4, 0xf8)];
const DARK: [Color; 2] = [Color::new(0x16, 0x1d, 0x27), Color::new(0x0d, 0x12, 0x19)];
/// The purpose of the hash by which the page keeps drafts.
const DRAFT_KEY: &[u8] = b"letterbox draft key";
/// The minimum contrast of elements that are not text, by WCAG 2.2, 1.4.11.
const SEEN: f64 = 3.0;

/// Renders the documents of one service.
#[derive(Debug, Clone)]
pub(crate) struct Documents {
    /// The template, with addresses and maximum lengths filled in.
    html: String,
    policy: String,
}

/// The data in a document with a form.
#[derive(Serialize)]
struct PageData<'a> {
    form: &'a RawValue,
    #[serde(flatten)]
    page: &'a Page,
    colors: Option<Colors>,
    challenge: Option<Challenge>,
    /// Of the workflow, the same for all of its links, so that the page offers a draft to no other
    /// form. A hash, which does not tell the id.
    draft_key: KeyHash,
}

/// The owner's color, and the colors derived from it.
#[derive(Serialize)]
struct Colors {
    accent: Color,
    ink: Color,
    strong: Color,
    light_ring: Color,
    dark_ring: Color,
}

impl Colors {
    fn of(accent: Color) -> Self {
        let ink = accent.ink();
        // Away from the ink, so that the contrast of the text on it does not shrink.
        let away = ink.ink();
        Self {
            accent,
            ink,
            strong: accent.mixed(away, 0.15),
            light_ring: accent.toward(Color::BLACK, &LIGHT, SEEN),
            dark_ring: accent.toward(Color::WHITE, &DARK, SEEN),
        }
    }
}

impl Documents {
    /// Creates the documents of the service at `base_url`.
    pub(crate) fn new(base_url: &Url) -> Self {
        let base = base_url.as_str().trim_end_matches('/');
        let policy = format!(
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
             connect-src 'self' {}; base-uri 'none'; form-action 'none'; frame-ancestors ",
            base_url.origin().ascii_serialization()
        );
        let html = DOCUMENT
            .replace("{files}", &NAME_OF_ALL)
            .replace("{base-url}", &escape(base))
            .replace("{locales}", &Locale::WORDS.join(" "))
            .replace("{max-lengths}", &escape(&max_lengths()));
        Self { html, policy }
    }

    /// The document of a live form.
    pub(crate) fn with_form(
        &self,
        live: &LiveForm,
        page: &Page,
        challenge: Option<Challenge>,
    ) -> Result<Response, Refusal> {
        let unavailable = |_| Refusal::temporarily_unavailable();
        let form = live
            .parse()
            .map_err(|_| Refusal::temporarily_unavailable())?;
        let told = PageData {
            form: serde_json::from_str(&live.definition).map_err(unavailable)?,
            page,
            colors: page.color.map(Colors::of),
            challenge,
            draft_key: KeyHash::of_content(live.release.workflow.as_bytes(), DRAFT_KEY),
        };
        let told = serde_json::to_string(&told).map_err(unavailable)?;
        let language = page.locale.unwrap_or(Locale::English);
        let html = self
            .html
            .replace("{language}", language.as_str())
            .replace("{state}", "")
            // From the end to the beginning, so that nothing is replaced in the owner's texts.
            .replacen("{told}", &escape(&told), 1)
            .replacen("{title}", &head(&form, page), 1);
        let ancestors = if page.frame_ancestors.is_empty() {
            "'none'".to_owned()
        } else {
            // Who stores a page by SQL changes no more of the header than this.
            let is_origin = |origin: &&String| !origin.contains([';', ',', ' ']);
            let origins: Vec<&str> = page
                .frame_ancestors
                .iter()
                .filter(is_origin)
                .map(String::as_str)
                .collect();
            origins.join(" ")
        };
        Ok(self.response(html, &ancestors))
    }

    /// The document without data, for a page that knows its token and fetches the form.
    pub(crate) fn without_form(&self) -> Response {
        self.response(self.empty(""), "'none'")
    }

    /// The document that says why there is no form, the same for every token.
    pub(crate) fn refused(&self, refusal: Refusal) -> Response {
        let status = refusal.status();
        let retry = refusal.retry_after();
        let state = format!(
            "data-status=\"{}\" data-retry=\"{}\"",
            status.as_u16(),
            retry.unwrap_or_default()
        );
        let document = self.response(self.empty(&state), "*");
        let mut response = Response::from(refusal);
        response.headers_mut().extend(document.headers().clone());
        *response.body_mut() = document.into_body();
        response
    }

    fn empty(&self, state: &str) -> String {
        self.html
            .replace("{language}", Locale::English.as_str())
            .replace("{state}", state)
            .replace("{title}", "<title>Form</title>")
            .replace("{told}", "")
    }

    fn response(&self, html: String, ancestors: &str) -> Response {
        let mut response = super::own(HTML, Bytes::from(html));
        let headers = response.headers_mut();
        // The owner's origins were checked at the deploy, so the fallback is never needed.
        let policy = HeaderValue::try_from(format!("{}{ancestors}", self.policy));
        let policy = policy.unwrap_or(HeaderValue::from_static("default-src 'none'"));
        headers.insert(header::CONTENT_SECURITY_POLICY, policy);
        headers.insert(OPENER_POLICY, super::SAME_ORIGIN);
        headers.insert(PERMISSIONS_POLICY, NO_PERMISSIONS);
        response
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
