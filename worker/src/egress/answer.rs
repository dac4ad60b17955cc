//! Answers as they come: up to a limit, as UTF-8 whatever charset they came in, with what their
//! headers ask for; and why there is none.

use std::time::{Duration, SystemTime};

use encoding_rs::{Encoding, UTF_8, UTF_16BE, UTF_16LE};
use mime::Mime;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION, RETRY_AFTER};
use url::Url;

/// What is told of an exchange that took too long.
pub(super) const LATE: &str = "no answer in time";

/// How many bytes are kept of an answer that is a failure, and characters of its type.
const MAX_BEGINNING: usize = 2 * 1024;
const MAX_TYPE: usize = 200;
/// The fewest bytes that are recognized as a secret, or as the beginning of one.
pub(super) const MIN_SECRET: usize = 8;

/// The answer to a request.
#[derive(Debug, Clone)]
pub(crate) struct HttpResponse {
    pub(crate) status: u16,
    /// How long the answer asks to wait before another attempt.
    pub(crate) retry_after: Option<Duration>,
    /// The server to which it redirects.
    pub(crate) location: Option<String>,
    /// The media type that it names, or the beginning of it.
    pub(crate) media_type: Option<String>,
    /// The body, or as many bytes of it as were asked for.
    pub(crate) body: Vec<u8>,
    /// False when the connection broke before the end of the body.
    pub(crate) is_complete: bool,
}

/// Why there is no answer. Never contains a credential.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EgressError {
    /// Nothing was sent, and another attempt would end the same way.
    #[error("{0}")]
    Refused(String),
    /// Nothing was sent, but another attempt may be.
    #[error("{0}")]
    NotSent(String),
    /// The network or the other side failed. Whether the request arrived is unknown.
    #[error("{0}")]
    Failed(String),
}

/// Reads at most so many bytes of an answer. A truncated body is not an error: the status has
/// arrived.
pub(super) async fn receive(mut response: reqwest::Response, most: usize) -> HttpResponse {
    let status = response.status().as_u16();
    let retry_after = retry_after(response.headers(), SystemTime::now());
    let location = response.headers().get(LOCATION).map(origin);
    let media_type = media_type(response.headers());
    let charset = charset(response.headers());
    let mut body = Vec::new();
    let mut is_complete = true;
    while body.len() < most {
        match response.chunk().await {
            Ok(Some(chunk)) => {
                let room = most - body.len();
                body.extend_from_slice(&chunk[..chunk.len().min(room)]);
            }
            Ok(None) => break,
            Err(error) => {
                // The URL has submitted text.
                let error = error.without_url();
                tracing::debug!(%error, "could not read all of the answer");
                is_complete = false;
                break;
            }
        }
    }
    // Many servers name another charset by default, although JSON is UTF-8.
    let is_wide = [UTF_16BE, UTF_16LE].contains(&charset);
    if charset != UTF_8 && (is_wide || !is_utf8(&body)) {
        // Three bytes of UTF-8 may come of one.
        body = charset.decode(&body).0.into_owned().into_bytes();
        body.truncate(most);
    }
    HttpResponse {
        status,
        retry_after,
        location,
        media_type,
        body,
        is_complete,
    }
}

/// A text without the secrets that it quotes.
pub(crate) fn hide(text: String, secrets: &[impl AsRef<str>]) -> String {
    let secrets = secrets.iter().map(AsRef::as_ref);
    let secrets = secrets.filter(|secret| !secret.is_empty());
    secrets.fold(text, |text, secret| text.replace(secret, "[hidden]"))
}

/// The media type that an answer names, or the beginning of it.
fn media_type(headers: &HeaderMap) -> Option<String> {
    let given = String::from_utf8_lossy(headers.get(CONTENT_TYPE)?.as_bytes());
    Some(given.chars().take(MAX_TYPE).collect())
}

impl HttpResponse {
    /// The answer of a server that gives a code and words.
    pub(crate) fn of_words(status: u16, words: String) -> Self {
        Self {
            status,
            retry_after: None,
            location: None,
            media_type: None,
            body: words.into_bytes(),
            is_complete: true,
        }
    }

    /// JSON text of its type and the beginning of its body, for whoever looks why it is a failure,
    /// without the secrets that it may quote.
    pub(crate) fn beginning(&self, secrets: &[String]) -> String {
        let mut text = hide(String::from_utf8_lossy(&self.body).into_owned(), secrets);
        // One that the end cuts in two is hidden, too.
        let begun = |secret: &String| {
            let lengths = (MIN_SECRET..secret.len()).rev();
            let mut lengths = lengths.filter(|length| secret.is_char_boundary(*length));
            lengths.find(|length| text.ends_with(&secret[..*length]))
        };
        if let Some(length) = secrets.iter().filter_map(begun).max() {
            text.truncate(text.len() - length);
        }
        text.truncate(text.floor_char_boundary(MAX_BEGINNING));
        serde_json::json!({ "type": self.media_type, "body": text }).to_string()
    }
}

/// The server that `Location` names. Nothing more of it is told: it may have values of the request.
fn origin(location: &HeaderValue) -> String {
    let url = location
        .to_str()
        .ok()
        .and_then(|text| Url::parse(text).ok());
    match url.filter(Url::has_host) {
        Some(url) => url.origin().ascii_serialization(),
        None => "another path".to_owned(),
    }
}

/// Whether bytes are UTF-8, which may be cut within a character.
fn is_utf8(bytes: &[u8]) -> bool {
    let error = std::str::from_utf8(bytes).err();
    error.is_none_or(|error| error.error_len().is_none())
}

/// The charset that `Content-Type` names; UTF-8 if it names none that is known.
fn charset(headers: &HeaderMap) -> &'static Encoding {
    let named = || {
        let given: Mime = headers.get(CONTENT_TYPE)?.to_str().ok()?.parse().ok()?;
        let charset = given.get_param(mime::CHARSET)?;
        Encoding::for_label(charset.as_str().as_bytes())
    };
    named().unwrap_or(UTF_8)
}

/// Parses `Retry-After`: seconds, also with a fraction, or a date. `None` for a date in the past.
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    match text.parse() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).ok(),
        Err(_) => httpdate::parse_http_date(text)
            .ok()?
            .duration_since(now)
            .ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_asks_for_patience_in_seconds_or_until_a_date() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        let given = |text: &'static str| {
            let headers = [(RETRY_AFTER, HeaderValue::from_static(text))];
            retry_after(&headers.into_iter().collect(), now).map(|after| after.as_secs_f64())
        };
        for (text, expected) in [
            ("120", Some(120.0)),
            (" 7 ", Some(7.0)),
            ("1.5", Some(1.5)),
            ("Sun, 09 Sep 2001 01:48:40 GMT", Some(120.0)),
            ("Sunday, 09-Sep-01 01:48:40 GMT", Some(120.0)),
            ("Sun, 09 Sep 2001 01:46:39 GMT", None),
            ("-1", None),
            ("NaN", None),
            ("1e99", None),
            ("soon", None),
            ("", None),
        ] {
            assert_eq!(given(text), expected, "{text}");
        }
        assert_eq!(retry_after(&HeaderMap::new(), now), None);
    }

    #[test]
    fn a_redirect_names_its_server_alone() {
        for (given, expected) in [
            ("https://new.example/people/Ada?x=y", "https://new.example"),
            ("http://new.example:8080", "http://new.example:8080"),
            ("/people/Ada", "another path"),
            ("mailto:ada@example.com", "another path"),
        ] {
            assert_eq!(origin(&HeaderValue::from_static(given)), expected);
        }
    }

    #[test]
    fn an_answer_names_its_charset() {
        for (given, expected) in [
            ("application/json", "UTF-8"),
            ("application/json; charset=utf-8", "UTF-8"),
            ("text/plain; x=y; Charset=\"ISO-8859-1\"", "windows-1252"),
            ("text/plain;charset=shift_jis", "Shift_JIS"),
            ("text/plain;charset=klingon", "UTF-8"),
        ] {
            let headers = [(CONTENT_TYPE, HeaderValue::from_static(given))];
            let charset = charset(&headers.into_iter().collect());
            assert_eq!(charset.name(), expected, "{given}");
        }
    }
}
