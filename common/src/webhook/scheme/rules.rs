//! The rules of a signature scheme, and the checks of custom ones.

use base64::{Engine, prelude::BASE64_STANDARD};
use http::header::HeaderName;
use serde::{Deserialize, Serialize};

use crate::{
    random::RandomError,
    secret::Secret,
    webhook::signature::{SigningKey, generate_secret},
};

/// The default tolerance of a signed time, in seconds.
pub(super) const TOLERANCE: u32 = 300;
/// The maximum tolerance: a day.
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

/// How the text of a secret encodes the key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SecretEncoding {
    /// The key itself.
    #[default]
    Text,
    /// The key in base64, optionally with the prefix `whsec_`.
    Base64,
    /// The key in hexadecimal digits.
    Hex,
}

/// The rules of a scheme, in the form that operators write for `custom`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rules {
    /// The header with the signature.
    pub header: String,
    /// The prefix of the signature, such as `sha256=`.
    #[serde(default)]
    pub prefix: String,
    /// The separator between several signatures, or pairs `k=v`: a comma or a space.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub separator: Option<char>,
    /// The key of the time, if the header holds pairs. Then [`Self::prefix`] is the key of the
    /// signature, with its `=`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp_key: Option<String>,
    /// The header with the time, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp_header: Option<String>,
    /// How far the time may be off, in seconds.
    #[serde(default = "usual_tolerance")]
    pub tolerance_seconds: u32,
    /// The header with the id of the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id_header: Option<String>,
    /// How the signature is written.
    pub encoding: Encoding,
    /// The signed text: a template with `{body}`, and with `{timestamp}` and `{id}` if the request
    /// has them.
    pub signed: String,
    /// How the text of the secret encodes the key.
    #[serde(default)]
    pub secret: SecretEncoding,
}

/// Why a custom scheme is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RulesError {
    /// Not JSON, or not of this shape.
    #[error("{0}")]
    Shape(String),
    /// A header name is invalid.
    #[error("{0} must be the name of a header")]
    Header(&'static str),
    /// Nothing would ever be put in its place. Holds what is between the braces.
    #[error("unknown placeholder {{{0}}}; known: {{body}}, {{timestamp}}, {{id}}")]
    Placeholder(String),
    /// The signed text does not contain the body once, or is too long.
    #[error("signed must contain {{body}} exactly once and have at most 200 characters")]
    Body,
    /// A sender could change a time that is not signed.
    #[error(
        "signed must contain {{timestamp}} exactly once with timestamp_key or timestamp_header, \
         and not at all without"
    )]
    Timestamp,
    /// A sender could change an id that is not signed.
    #[error("signed must contain {{id}} exactly once with id_header, and not at all without")]
    Id,
    /// What is signed of one part could be moved into the next.
    #[error(
        "signed must have a sign other than a letter or digit between {{timestamp}}, {{id}} and \
         {{body}}"
    )]
    Adjacent,
    /// There are two places for the time.
    #[error("timestamp_key and timestamp_header exclude each other: give one of them")]
    TwoTimes,
    /// The separator is missing or unsuitable.
    #[error(
        "separator must be ',' or ' ' and is required with timestamp_key, which must not be empty \
         or contain '='; neither timestamp_key nor prefix may contain the separator"
    )]
    Separator,
    /// The tolerance is zero or too long.
    #[error("tolerance_seconds must be from 1 to 86400")]
    Tolerance,
}

/// The secret does not have the format that the scheme requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the secret does not have the format of this scheme's secrets")]
pub struct InvalidSecret;

fn usual_tolerance() -> u32 {
    TOLERANCE
}

/// The first word in braces that stands for nothing. Other braces are part of the text.
fn unknown_placeholder(signed: &str) -> Option<&str> {
    let begun = signed.split('{').skip(1);
    let words = begun.filter_map(|rest| Some(rest.split_once('}')?.0));
    let is_word = |text: &str| {
        let in_word = |c: char| c.is_alphanumeric() || "_-. ".contains(c);
        text.contains(char::is_alphabetic) && text.chars().all(in_word)
    };
    words
        .filter(|word| !["body", "timestamp", "id"].contains(word))
        .find(|word| is_word(word))
}

/// Whether something that can't be part of a time or an id stands between the parts of a template.
fn are_apart(signed: &str) -> bool {
    let parts = ["{timestamp}", "{id}", "{body}"];
    let mut places: Vec<_> = parts
        .iter()
        .filter_map(|part| Some((signed.find(part)?, part.len())))
        .collect();
    places.sort_unstable();
    places.windows(2).all(|two| {
        let between = match two {
            [(begin, length), (next, _)] => signed.get(begin + length..*next),
            _ => None,
        };
        between.is_some_and(|between| between.contains(|c: char| !c.is_alphanumeric()))
    })
}

impl Rules {
    /// Parses and checks the rules of a `custom` scheme, given as JSON.
    ///
    /// # Errors
    /// The first problem.
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
        if let Some(word) = unknown_placeholder(&rules.signed) {
            return Err(RulesError::Placeholder(word.to_owned()));
        }
        let has = |place: &str| rules.signed.matches(place).count();
        // A time or an id that is not signed could be replaced, and one that is signed but not sent
        // could not be verified.
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
        if !are_apart(&rules.signed) {
            return Err(RulesError::Adjacent);
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
        if !(1..=MAX_TOLERANCE).contains(&rules.tolerance_seconds) {
            return Err(RulesError::Tolerance);
        }
        Ok(rules)
    }

    /// Decodes the key from the text of a secret.
    ///
    /// # Errors
    /// When the text does not have the format of this scheme's secrets, or is empty.
    pub fn key(&self, secret: &Secret) -> Result<SigningKey, InvalidSecret> {
        let text = secret.expose();
        let bytes = match self.secret {
            SecretEncoding::Text => text.to_vec(),
            SecretEncoding::Hex => hex::decode(text).map_err(|_| InvalidSecret)?,
            SecretEncoding::Base64 => {
                let text = text
                    .strip_prefix(STANDARD_PREFIX.as_bytes())
                    .unwrap_or(text);
                BASE64_STANDARD.decode(text).map_err(|_| InvalidSecret)?
            }
        };
        // Anyone could sign with an empty key.
        if bytes.is_empty() {
            return Err(InvalidSecret);
        }
        Ok(SigningKey::new(&Secret::new(bytes)))
    }
}

/// Generates a secret in the format of a scheme.
pub fn secret_for(rules: &Rules) -> Result<Secret, RandomError> {
    let secret = generate_secret()?;
    Ok(match rules.secret {
        SecretEncoding::Text | SecretEncoding::Hex => secret,
        SecretEncoding::Base64 => {
            // The generated secret is the hexadecimal text of 32 bytes.
            let bytes = hex::decode(secret.expose()).unwrap_or_default();
            let text = format!("{STANDARD_PREFIX}{}", BASE64_STANDARD.encode(bytes));
            Secret::new(text.into_bytes())
        }
    })
}
