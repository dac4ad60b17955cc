//! The rules of a signature scheme, and the checks of custom ones.

use base64::{Engine, prelude::BASE64_STANDARD};
use http::header::HeaderName;
use serde::{Deserialize, Serialize};

use super::{
    error::RulesError,
    template::Template,
    words::{Encoding, Handshake, SecretEncoding, TimeFormat},
};
use crate::{
    random::RandomError,
    secret::Secret,
    webhook::{
        algorithm::Algorithm,
        keys::{InvalidKey, Keys},
        signature::generate_secret,
    },
};

/// The default tolerance of a signed time, in seconds.
const TOLERANCE: u32 = 300;
/// The maximum tolerance: a day.
const MAX_TOLERANCE: u32 = 86_400;
/// Maximum headers that may hold a signature: a tool sends one a key, or a number of them.
const MAX_HEADERS: usize = 8;
const SEPARATORS: &str = ",;.& ";
const STANDARD_PREFIX: &str = "whsec_";

/// The rules of a scheme, in the form in which operators and the table of tools write them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rules {
    /// The header with the signature; or several, of which any may be there.
    pub header: Header,
    /// What stands before each signature, such as `sha256=`.
    #[serde(default)]
    pub prefix: String,
    /// One or two characters, each of which separates parts of the header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub separator: Option<String>,
    /// The key of the time, if the header holds pairs. Then [`Self::prefix`] is the key of the
    /// signature, with its `=`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp_key: Option<String>,
    /// The place of the time, if the header holds parts without keys; the first is 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp_place: Option<u8>,
    /// The header with the time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp_header: Option<String>,
    /// How the time is written.
    #[serde(default, skip_serializing_if = "is_usual")]
    pub timestamp_format: TimeFormat,
    /// How far the time may be off, in seconds.
    #[serde(default = "usual_tolerance")]
    pub tolerance_seconds: u32,
    /// The header with the id of the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id_header: Option<String>,
    /// What is computed of the signed text.
    #[serde(default, skip_serializing_if = "is_usual")]
    pub algorithm: Algorithm,
    /// How the signature is written.
    pub encoding: Encoding,
    /// The signed text.
    pub signed: Template,
    /// How the text of the secret encodes the key of an HMAC.
    #[serde(default)]
    pub secret: SecretEncoding,
    /// What the tool asks before it sends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handshake: Option<Handshake>,
}

/// The names of headers, written as one text or as a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Header {
    /// One.
    One(String),
    /// Several.
    Several(Vec<String>),
}

impl Header {
    /// The names.
    pub fn names(&self) -> &[String] {
        match self {
            Self::One(name) => std::slice::from_ref(name),
            Self::Several(names) => names,
        }
    }
}

fn is_usual<T: Default + PartialEq>(word: &T) -> bool {
    *word == T::default()
}

fn usual_tolerance() -> u32 {
    TOLERANCE
}

impl Rules {
    /// Parses and checks the rules of a `custom` scheme, given as JSON.
    ///
    /// # Errors
    /// The first problem.
    pub fn parse(text: &str) -> Result<Self, RulesError> {
        let rules: Self =
            serde_json::from_str(text).map_err(|error| RulesError::Shape(error.to_string()))?;
        rules.check()?;
        Ok(rules)
    }

    /// Whether they say what can be verified, and leave nothing to a sender that is not signed.
    pub(in crate::webhook) fn check(&self) -> Result<(), RulesError> {
        let names = self.header.names();
        if names.is_empty() || names.len() > MAX_HEADERS {
            return Err(RulesError::Header("header"));
        }
        let times = self.timestamp_header.iter();
        let others = times.map(|name| ("timestamp_header", name));
        let others = others.chain(self.id_header.iter().map(|name| ("id_header", name)));
        for (what, name) in names.iter().map(|name| ("header", name)).chain(others) {
            if name.parse::<HeaderName>().is_err() {
                return Err(RulesError::Header(what));
            }
        }
        // A time or an id that is not signed could be replaced, and one that is signed but not sent
        // could not be verified.
        let times = usize::from(self.timestamp_key.is_some())
            + usize::from(self.timestamp_place.is_some())
            + usize::from(self.timestamp_header.is_some());
        let ids = usize::from(self.id_header.is_some());
        let is_checked = self.timestamp_format != TimeFormat::Unchecked;
        self.signed.check(times.min(1), ids, is_checked)?;
        if times > 1 {
            return Err(RulesError::TwoTimes);
        }
        if !self.is_separated() {
            return Err(RulesError::Separator);
        }
        if !(1..=MAX_TOLERANCE).contains(&self.tolerance_seconds) {
            return Err(RulesError::Tolerance);
        }
        // X asks in a query, which is no object and has no time.
        let is_plain = times == 0 && !self.signed.has_close_parts();
        match self.handshake {
            Some(asks) if !asks.goes_with(self.algorithm) || asks == Handshake::X && !is_plain => {
                Err(RulesError::Handshake(asks))
            }
            _ => Ok(()),
        }
    }

    fn is_separated(&self) -> bool {
        let separator = self.separator.as_deref().unwrap_or_default();
        let is_known = separator.chars().all(|one| SEPARATORS.contains(one))
            && separator.len() <= 2
            && self.separator.as_deref() != Some("");
        let is_apart = |part: &str| !part.contains(|one| separator.contains(one));
        let is_key = |key: &str| !key.is_empty() && !key.contains('=') && is_apart(key);
        let has_key = self.timestamp_key.as_deref().is_none_or(is_key);
        let needs_separator = self.timestamp_key.is_some() || self.timestamp_place.is_some();
        is_known && is_apart(&self.prefix) && has_key && (!needs_separator || !separator.is_empty())
    }

    /// Prepares the key from the text of a secret, or the public keys in it.
    ///
    /// # Errors
    /// When the text does not have the format of this scheme's secrets, or is empty.
    pub fn keys(&self, secret: &Secret) -> Result<Keys, InvalidKey> {
        let text = secret.expose();
        if self.algorithm.has_public_key() {
            let text = std::str::from_utf8(text).map_err(|_| InvalidKey::Public)?;
            return Keys::of_public(self.algorithm, text);
        }
        let bytes = match self.secret {
            SecretEncoding::Text => text.to_vec(),
            SecretEncoding::Hex => hex::decode(text).map_err(|_| InvalidKey::Secret)?,
            SecretEncoding::Base64 => {
                // As some show it, with the version of the signature.
                let text = text.strip_prefix(b"v1,").unwrap_or(text);
                let bare = text.strip_prefix(STANDARD_PREFIX.as_bytes());
                let text = bare.unwrap_or(text);
                let decoded = BASE64_STANDARD.decode(text);
                decoded.map_err(|_| InvalidKey::Secret)?
            }
        };
        // Anyone could sign with an empty key.
        if bytes.is_empty() {
            return Err(InvalidKey::Secret);
        }
        Ok(Keys::of_secret(self.algorithm, bytes))
    }
}

/// Generates a secret in the format of a scheme; `None` if that takes a public key.
pub fn secret_for(rules: &Rules) -> Result<Option<Secret>, RandomError> {
    if rules.algorithm.has_public_key() {
        return Ok(None);
    }
    let secret = generate_secret()?;
    Ok(Some(match rules.secret {
        SecretEncoding::Text | SecretEncoding::Hex => secret,
        SecretEncoding::Base64 => {
            // The generated secret is the hexadecimal text of 32 bytes.
            let bytes = hex::decode(secret.expose()).unwrap_or_default();
            let text = format!("{STANDARD_PREFIX}{}", BASE64_STANDARD.encode(bytes));
            Secret::new(text.into_bytes())
        }
    }))
}

#[cfg(test)]
mod tests;
