//! What a scheme says, and which rules can be believed.

use base64::{Engine, prelude::BASE64_STANDARD};
use http::header::HeaderName;
use serde::{Deserialize, Serialize};

use crate::{
    random::RandomError,
    secret::Secret,
    webhook::signature::{SigningKey, generate_secret},
};

/// Seconds that a signed time may be off, where nothing else is said.
pub(super) const TOLERANCE: u32 = 300;
/// Longest time that may be allowed: a day.
const MAX_TOLERANCE: u32 = 86_400;
const MAX_TEMPLATE: usize = 200;
const STANDARD_PREFIX: &str = "whsec_";

/// How a signature is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Encoding {
    /// 64 lower-case hexadecimal digits.
    Hex,
    /// 44 characters, as in RFC 4648, section 4.
    Base64,
}

/// What a secret's text is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SecretText {
    /// The key itself.
    #[default]
    Text,
    /// The key in base64, perhaps with `whsec_` before it.
    Base64,
    /// The key in hexadecimal digits.
    Hex,
}

/// What a scheme does, as an operator writes it for `custom`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rules {
    /// The header with the signature.
    pub header: String,
    /// What stands before the signature, such as `sha256=`.
    #[serde(default)]
    pub prefix: String,
    /// What separates several signatures, or pairs `k=v`: a comma or a space.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub separator: Option<char>,
    /// Where it has pairs: the key of the time. Then [`Self::prefix`] is the key of
    /// the signature, with its `=`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp_key: Option<String>,
    /// The header with the time, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp_header: Option<String>,
    /// Seconds that the time may be off.
    #[serde(default = "usual_tolerance")]
    pub tolerance_seconds: u32,
    /// The header with the id of the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id_header: Option<String>,
    /// How the signature is written.
    pub encoding: Encoding,
    /// What is signed: a text with `{body}`, and with `{timestamp}` and `{id}` where there are
    /// such.
    pub signed: String,
    /// What the text of the secret is.
    #[serde(default)]
    pub secret: SecretText,
}

/// Why rules are none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RulesError {
    /// Not JSON, or not of this shape.
    #[error("{0}")]
    Shape(String),
    /// A header's name can't be one.
    #[error("{0} is not the name of a header")]
    Header(&'static str),
    /// The signed text must say where the body is.
    #[error("signed must contain {{body}} once, and at most 200 characters")]
    Body,
    /// A time that is not signed could be any.
    #[error("signed must contain {{timestamp}} once where there is a time, and not otherwise")]
    Timestamp,
    /// The same of the id.
    #[error("signed must contain {{id}} once where there is an id_header, and not otherwise")]
    Id,
    /// The time can stand in one place only.
    #[error("only one of timestamp_key and timestamp_header can be given")]
    TwoTimes,
    /// Pairs need a separator.
    #[error(
        "separator must be ',' or ' ', be given with timestamp_key, and stand in neither that nor \
         prefix"
    )]
    Separator,
    /// Not so long.
    #[error("tolerance_seconds must be from 1 to 86400")]
    Tolerance,
}

/// The secret can't be that of a scheme.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the secret is not what this scheme's secrets look like")]
pub struct InvalidSecret;

fn usual_tolerance() -> u32 {
    TOLERANCE
}

impl Rules {
    /// Parses and checks the rules of a `custom` scheme, JSON text.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn parse(text: &str) -> Result<Self, RulesError> {
        let rules: Self =
            serde_json::from_str(text).map_err(|error| RulesError::Shape(error.to_string()))?;
        for (name, header) in [
            ("header", Some(&rules.header)),
            ("timestamp_header", rules.timestamp_header.as_ref()),
            ("id_header", rules.id_header.as_ref()),
        ] {
            if header.is_some_and(|header| header.parse::<HeaderName>().is_err()) {
                return Err(RulesError::Header(name));
            }
        }
        let has = |place: &str| rules.signed.matches(place).count();
        let has_time = rules.timestamp_key.is_some() || rules.timestamp_header.is_some();
        if has("{body}") != 1 || rules.signed.chars().count() > MAX_TEMPLATE {
            return Err(RulesError::Body);
        }
        if has("{timestamp}") != usize::from(has_time) {
            return Err(RulesError::Timestamp);
        }
        if has("{id}") != usize::from(rules.id_header.is_some()) {
            return Err(RulesError::Id);
        }
        if rules.timestamp_key.is_some() && rules.timestamp_header.is_some() {
            return Err(RulesError::TwoTimes);
        }
        let is_known = rules.separator.is_none_or(|one| one == ',' || one == ' ');
        let is_apart = |part: &str| rules.separator.is_none_or(|one| !part.contains(one));
        let is_key = |key: &str| !key.is_empty() && !key.contains('=') && is_apart(key);
        let has_key = rules.timestamp_key.as_deref().is_none_or(is_key);
        let needs_separator = rules.timestamp_key.is_some() && rules.separator.is_none();
        if !is_known || !is_apart(&rules.prefix) || !has_key || needs_separator {
            return Err(RulesError::Separator);
        }
        match (1..=MAX_TOLERANCE).contains(&rules.tolerance_seconds) {
            true => Ok(rules),
            false => Err(RulesError::Tolerance),
        }
    }

    /// The key that a secret's text stands for.
    ///
    /// # Errors
    /// When it is not written as this scheme's secrets are.
    pub fn key(&self, secret: &Secret) -> Result<SigningKey, InvalidSecret> {
        let text = secret.expose();
        let bytes = match self.secret {
            SecretText::Text => text.to_vec(),
            SecretText::Hex => hex::decode(text).map_err(|_| InvalidSecret)?,
            SecretText::Base64 => {
                let text = text
                    .strip_prefix(STANDARD_PREFIX.as_bytes())
                    .unwrap_or(text);
                BASE64_STANDARD.decode(text).map_err(|_| InvalidSecret)?
            }
        };
        match bytes.is_empty() {
            true => Err(InvalidSecret),
            false => Ok(SigningKey::new(&Secret::new(bytes))),
        }
    }
}

/// A new secret, as a scheme's secrets look.
///
/// # Errors
/// When the operating system gives no random bytes.
pub fn secret_for(rules: &Rules) -> Result<Secret, RandomError> {
    let secret = generate_secret()?;
    Ok(match rules.secret {
        SecretText::Text | SecretText::Hex => secret,
        SecretText::Base64 => {
            // Half of it: 32 bytes, of which each is two of its digits.
            let bytes = hex::decode(secret.expose()).unwrap_or_default();
            let text = format!("{STANDARD_PREFIX}{}", BASE64_STANDARD.encode(bytes));
            Secret::new(text.into_bytes())
        }
    })
}
