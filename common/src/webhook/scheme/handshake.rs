//! Handshakes: what a tool asks of a URL before it sends events there. One that is answered with a
//! secret, or says that there is a webhook, is answered only to who has proven to be the tool; a
//! request whose answer is its own words, [`echo`], is answered alike at every address.
//!
//! No answer may be the signature of an event. What is signed for a tool is a token, which no JSON
//! object is, and only for who could sign events, too.

use base64::{Engine, prelude::BASE64_STANDARD};
use http::header::HeaderName;
use serde_json::{Value, json};
use subtle::ConstantTimeEq;
use url::form_urlencoded;

use super::{
    parts::{WebhookRequest, only},
    rules::Rules,
    words::Handshake,
};
use crate::webhook::keys::Keys;

/// Maximum length of a token that is given back, in bytes.
const MAX_TOKEN: usize = 1_024;
/// Maximum length of a body that is a question, in bytes.
const MAX_QUESTION: usize = 8_192;
/// What a verify token is the MAC of. It has spaces: no token that is signed is this.
const VERIFY_TOKEN: &[u8] = b"verify token of a webhook";

/// The answer to a handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// Of this JSON text.
    Json(String),
    /// Of this text, which no browser may take for anything else.
    Text(String),
    /// Of nothing.
    Empty,
    /// Of nothing, with a header.
    Header(&'static str, String),
}

impl Rules {
    /// The token that the owner types in at a tool that proves by it who asks; `None` for tools
    /// that don't.
    #[must_use]
    pub fn verify_token(&self, keys: &Keys) -> Option<String> {
        let is_asked = self.handshake == Some(Handshake::Meta);
        let mac = keys.mac([VERIFY_TOKEN].into_iter()).filter(|_| is_asked);
        mac.map(hex::encode)
    }

    /// The answer to a signed body, if it is no event but a question.
    pub fn answer(&self, keys: &Keys, request: &WebhookRequest<'_>, now: u64) -> Option<Reply> {
        let (headers, body) = (request.headers, request.body);
        let handshake = self.handshake.filter(|_| body.len() <= MAX_QUESTION)?;
        // Bodies of any depth are JSON; questions are shallow, and serde_json refuses the others.
        let body: Value = serde_json::from_str(std::str::from_utf8(body).ok()?).ok()?;
        let token = |pointer| body.pointer(pointer)?.as_str().filter(|text| fits(text));
        match handshake {
            Handshake::Slack if body["type"] == "url_verification" => {
                let challenge = body.pointer("/challenge")?.as_str()?;
                Some(Reply::Json(json!({ "challenge": challenge }).to_string()))
            }
            Handshake::Zoom if body["event"] == "endpoint.url_validation" => {
                let plain = token("/payload/plainToken")?;
                let by = keys.each().find(|key| self.verifies(key, request, now))?;
                let mac = by.mac([plain.as_bytes()].into_iter())?;
                let answer = json!({"plainToken": plain, "encryptedToken": hex::encode(mac)});
                Some(Reply::Json(answer.to_string()))
            }
            Handshake::Twitch => {
                let kind = headers.get("twitch-eventsub-message-type")?;
                let is_asked = kind == "webhook_callback_verification";
                let challenge = token("/challenge").filter(|_| is_asked)?;
                Some(Reply::Text(challenge.to_owned()))
            }
            // Interactions ping with 1, where events have a member of that name; events with 0.
            Handshake::Discord if body["type"] == 1 && body.get("event").is_none() => {
                Some(Reply::Json(r#"{"type":1}"#.to_owned()))
            }
            Handshake::Discord if body["type"] == 0 => Some(Reply::Empty),
            _ => None,
        }
    }

    /// The answer to a question in a query, from who has proven to be the tool. The same work is
    /// done whatever is asked, and for webhooks of which nothing is asked.
    pub fn answer_query(&self, keys: &Keys, request: &WebhookRequest<'_>) -> Option<Reply> {
        let (_, query) = request.target.split_once('?').unwrap_or(("", ""));
        let asked = Asked::parse(query)?;
        let signed = WebhookRequest {
            body: query.as_bytes(),
            ..*request
        };
        // While a secret is changed, the answer is made with the one with which was asked.
        let replies = keys.each().map(|key| self.reply_by(&key, &asked, &signed));
        replies.fold(None, Option::or)
    }

    fn reply_by(&self, key: &Keys, asked: &Asked, signed: &WebhookRequest<'_>) -> Option<Reply> {
        let expected = key.mac([VERIFY_TOKEN].into_iter()).unwrap_or_default();
        let given = asked.verify_token.as_deref().unwrap_or_default();
        let knows_token = bool::from(given.as_bytes().ct_eq(hex::encode(expected).as_bytes()));
        let crc_token = asked.crc_token.as_deref().unwrap_or_default();
        let mac = key.mac([crc_token.as_bytes()].into_iter());
        let is_signed = self.verifies(key, signed, 0);
        match self.handshake? {
            Handshake::Meta if knows_token && asked.mode.as_deref() == Some("subscribe") => {
                let challenge = asked.challenge.as_ref().filter(|text| fits(text))?;
                Some(Reply::Text(challenge.clone()))
            }
            Handshake::X if is_signed && fits(crc_token) => {
                let token = format!("sha256={}", BASE64_STANDARD.encode(mac?));
                Some(Reply::Json(json!({ "response_token": token }).to_string()))
            }
            _ => None,
        }
    }
}

/// A question in a query.
struct Asked {
    mode: Option<String>,
    challenge: Option<String>,
    verify_token: Option<String>,
    crc_token: Option<String>,
}

impl Asked {
    /// `None` if nothing is asked.
    fn parse(query: &str) -> Option<Self> {
        let of = |wanted: &str| {
            let mut pairs = form_urlencoded::parse(query.as_bytes());
            let (_, value) = pairs.find(|(name, _)| name == wanted)?;
            (value.len() <= MAX_TOKEN).then(|| value.into_owned())
        };
        let asked = Self {
            mode: of("hub.mode"),
            challenge: of("hub.challenge"),
            verify_token: of("hub.verify_token"),
            crc_token: of("crc_token"),
        };
        (asked.challenge.is_some() || asked.crc_token.is_some()).then_some(asked)
    }
}

/// Whether a query asks something that only a webhook can answer.
pub fn is_asked(query: &str) -> bool {
    Asked::parse(query).is_some()
}

/// The answer to a question whose answer is its own words, to which no webhook is needed: a GET
/// with a challenge (Dropbox, Onfleet), a first POST with X-Hook-Secret (Asana), OPTIONS with the
/// origin that wants to send (CloudEvents).
pub fn echo(request: &WebhookRequest<'_>) -> Option<Reply> {
    let header = |name: &str| {
        let value = only(request.headers, name)?.to_str().ok();
        value.filter(|value| fits(value)).map(str::to_owned)
    };
    match request.method {
        "GET" => {
            let (_, query) = request.target.split_once('?')?;
            let mut pairs = form_urlencoded::parse(query.as_bytes());
            let (_, challenge) = pairs.find(|(name, _)| name == "challenge" || name == "check")?;
            fits(&challenge).then(|| Reply::Text(challenge.into_owned()))
        }
        // An event has a body, and is signed.
        "POST" if matches!(request.body, b"" | b"{}") => {
            let mut names = request.headers.keys().map(HeaderName::as_str);
            let is_signed = names.any(|name| name.contains("sign"));
            let secret = header("x-hook-secret").filter(|_| !is_signed)?;
            Some(Reply::Header("x-hook-secret", secret))
        }
        "OPTIONS" => {
            let origin = header("webhook-request-origin")?;
            Some(Reply::Header("webhook-allowed-origin", origin))
        }
        _ => None,
    }
}

/// Whether a token can be given back: it is short, and nothing that a browser or a signature could
/// take for something else.
fn fits(token: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:/+=".contains(&byte);
    (1..=MAX_TOKEN).contains(&token.len()) && token.bytes().all(is_plain)
}

#[cfg(test)]
mod tests;
