//! Signature schemes: how the tools that send sign, as data. A scheme says in which header a
//! signature is, how it is written there, and over which text it is made; the hash is HMAC-SHA256
//! in all of them. What is checked takes the same steps, whatever is wrong with it.

use base64::{Engine, prelude::BASE64_STANDARD};
use http::header::HeaderName;
use serde::{Deserialize, Serialize};

use super::{Signature, SigningKey, generate_secret, signature::SIGNATURE_HEADER};
use crate::{random::RandomError, sealing::Secret, text_enum};

/// Signatures in one request that are looked at: while a tool changes its secret, it sends several.
const MAX_SIGNATURES: usize = 8;
/// Seconds that a signed time may be off, where nothing else is said.
const TOLERANCE: u32 = 300;
/// Longest time that may be allowed: a day.
const MAX_TOLERANCE: u32 = 86_400;
const MAX_TEMPLATE: usize = 200;
const STANDARD_PREFIX: &str = "whsec_";

text_enum! {
    /// By what a webhook recognizes its sender.
    pub enum Scheme {
        /// The service's own: 64 hexadecimal digits in X-Service-Signature, over the body
        Letterbox = "letterbox",
        /// As GitHub signs
        Github = "github",
        /// As Stripe signs
        Stripe = "stripe",
        /// As Slack signs; its challenge is answered
        Slack = "slack",
        /// As Shopify signs
        Shopify = "shopify",
        /// By standardwebhooks.com
        StandardWebhooks = "standard-webhooks",
        /// As Svix signs, and tools that send through it
        Svix = "svix",
        /// By rules of its own
        Custom = "custom",
    }
}

text_enum! {
    /// Why a delivery was refused. Its webhook's owner may know, its sender not.
    pub enum DeliveryFault {
        /// The header of the signature is missing
        Missing = "missing",
        /// The header of the signature is there twice
        Repeated = "repeated",
        /// Something stands before the signature, such as sha256=
        Prefix = "prefix",
        /// Digits A to F in place of a to f
        UpperCase = "upper_case",
        /// Not as long as a signature
        Length = "length",
        /// Not hexadecimal digits
        NotHex = "not_hex",
        /// A signature of something else: another body, another secret
        Digest = "digest",
        /// Not as the scheme wants it: a part is missing, or its time is not near
        Scheme = "scheme",
        /// Signed, and sent from an address that may not send
        Address = "address",
        /// More than 65,536 bytes
        TooLarge = "too_large",
        /// Signed, and not JSON
        NotJson = "not_json",
        /// Signed, and not announced as JSON
        ContentType = "content_type",
    }
}

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
    /// What separates several signatures, or the pairs of [`Self::pairs`]: a comma or a space.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub separator: Option<char>,
    /// Where the header has pairs `k=v`: the key of the time. Then [`Self::prefix`] is the key of
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

/// The headers of a request.
pub type Headers = http::HeaderMap;

/// A request as a sender signs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signed {
    /// The headers that it gets, with their values.
    pub headers: Vec<(String, String)>,
    /// What is hashed before the body.
    pub before: String,
    /// What is hashed after it.
    pub after: String,
}

fn usual_tolerance() -> u32 {
    TOLERANCE
}

/// What a request says of its signature.
#[derive(Default)]
struct Given<'h> {
    signatures: Vec<Signature>,
    timestamp: Option<&'h str>,
    id: Option<&'h str>,
}

impl Scheme {
    /// The rules of a scheme that has its own; None for `custom`.
    #[must_use]
    pub fn rules(self) -> Option<Rules> {
        let plain = |header: &str, prefix: &str, encoding, signed: &str| Rules {
            header: header.to_owned(),
            prefix: prefix.to_owned(),
            separator: None,
            timestamp_key: None,
            timestamp_header: None,
            tolerance_seconds: TOLERANCE,
            id_header: None,
            encoding,
            signed: signed.to_owned(),
            secret: SecretText::Text,
        };
        Some(match self {
            Self::Letterbox => plain(SIGNATURE_HEADER, "", Encoding::Hex, "{body}"),
            Self::Github => plain("x-hub-signature-256", "sha256=", Encoding::Hex, "{body}"),
            Self::Shopify => plain("x-shopify-hmac-sha256", "", Encoding::Base64, "{body}"),
            Self::Stripe => Rules {
                separator: Some(','),
                timestamp_key: Some("t".to_owned()),
                ..plain(
                    "stripe-signature",
                    "v1=",
                    Encoding::Hex,
                    "{timestamp}.{body}",
                )
            },
            Self::Slack => Rules {
                timestamp_header: Some("x-slack-request-timestamp".to_owned()),
                ..plain(
                    "x-slack-signature",
                    "v0=",
                    Encoding::Hex,
                    "v0:{timestamp}:{body}",
                )
            },
            Self::StandardWebhooks => Rules {
                separator: Some(' '),
                timestamp_header: Some("webhook-timestamp".to_owned()),
                id_header: Some("webhook-id".to_owned()),
                secret: SecretText::Base64,
                ..plain(
                    "webhook-signature",
                    "v1,",
                    Encoding::Base64,
                    "{id}.{timestamp}.{body}",
                )
            },
            Self::Svix => Rules {
                header: "svix-signature".to_owned(),
                timestamp_header: Some("svix-timestamp".to_owned()),
                id_header: Some("svix-id".to_owned()),
                ..Self::StandardWebhooks.rules()?
            },
            Self::Custom => return None,
        })
    }
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

    /// Whether a request is signed with this key, at a time that is near `now`, in seconds since
    /// 1970. One hash is made, whatever the headers say.
    #[must_use]
    pub fn verifies(&self, key: &SigningKey, headers: &Headers, body: &[u8], now: u64) -> bool {
        let given = self.given(headers).unwrap_or_default();
        let (before, after) = self.around(given.timestamp, given.id);
        let expected = key.sign_parts(&[before.as_bytes(), body, after.as_bytes()]);
        let signatures = given.signatures.iter();
        let is_signed = signatures.fold(false, |found, one| found | one.is(&expected));
        is_signed && self.is_timely(given.timestamp, now)
    }

    /// What is wrong with the signature of a request that does not verify.
    #[must_use]
    pub fn complaint(&self, headers: &Headers, now: u64) -> DeliveryFault {
        let mut values = headers.get_all(&self.header).iter();
        let (Some(value), None) = (values.next(), values.next()) else {
            return match headers.contains_key(&self.header) {
                true => DeliveryFault::Repeated,
                false => DeliveryFault::Missing,
            };
        };
        let is_plain = self.prefix.is_empty() && self.encoding == Encoding::Hex;
        let is_read = |given: &Given<'_>| {
            !given.signatures.is_empty() && self.is_timely(given.timestamp, now)
        };
        if self.given(headers).as_ref().is_some_and(is_read) {
            return DeliveryFault::Digest;
        }
        if !is_plain {
            return DeliveryFault::Scheme;
        }
        let value = value.as_bytes();
        match value.len() {
            64 if !value.iter().all(u8::is_ascii_hexdigit) => DeliveryFault::NotHex,
            64 => DeliveryFault::UpperCase,
            _ if value.contains(&b'=') && !value.ends_with(b"=") => DeliveryFault::Prefix,
            _ => DeliveryFault::Length,
        }
    }

    /// Signs a body, as a sender would at this time.
    #[must_use]
    pub fn sign(&self, key: &SigningKey, body: &[u8], now: u64, id: &str) -> Signed {
        let time = now.to_string();
        let (before, after) = self.around(Some(&time), Some(id));
        let signature = key.sign_parts(&[before.as_bytes(), body, after.as_bytes()]);
        let written = match self.encoding {
            Encoding::Hex => signature.to_string(),
            Encoding::Base64 => BASE64_STANDARD.encode(signature.bytes()),
        };
        let mut value = format!("{}{written}", self.prefix);
        if let (Some(name), Some(separator)) = (&self.timestamp_key, self.separator) {
            value = format!("{name}={time}{separator}{value}");
        }
        let mut headers = vec![(self.header.clone(), value)];
        headers.extend(
            self.timestamp_header
                .iter()
                .map(|name| (name.clone(), time.clone())),
        );
        headers.extend(
            self.id_header
                .iter()
                .map(|name| (name.clone(), id.to_owned())),
        );
        Signed {
            headers,
            before,
            after,
        }
    }

    /// What stands before and after the body in the signed text.
    fn around(&self, timestamp: Option<&str>, id: Option<&str>) -> (String, String) {
        let filled = |text: &str| {
            // In one go: an id that looks like a place is none.
            let mut filled = String::with_capacity(text.len() + 64);
            let mut rest = text;
            while let Some(at) = rest.find('{') {
                let (before, from) = rest.split_at(at);
                filled.push_str(before);
                let places = [("{timestamp}", timestamp), ("{id}", id)];
                let place = places.iter().find(|(place, _)| from.starts_with(place));
                let (length, value) = match place {
                    Some((place, value)) => (place.len(), value.unwrap_or_default()),
                    None => (1, "{"),
                };
                filled.push_str(value);
                rest = &from[length..];
            }
            filled.push_str(rest);
            filled
        };
        let (before, after) = self
            .signed
            .split_once("{body}")
            .unwrap_or((&self.signed, ""));
        (filled(before), filled(after))
    }

    /// What the headers say; None where something is missing, repeated, or not as it must be.
    fn given<'h>(&self, headers: &'h Headers) -> Option<Given<'h>> {
        let value = only(headers, &self.header)?;
        let parts: Vec<&str> = match self.separator {
            Some(separator) => value.split(separator).map(str::trim).collect(),
            None => vec![value],
        };
        let timestamp = match (&self.timestamp_key, &self.timestamp_header) {
            (Some(key), _) => {
                let pairs = parts.iter().filter_map(|part| part.split_once('='));
                let mut times = pairs.filter(|(name, _)| name == key).map(|(_, time)| time);
                Some(times.next().filter(|_| times.next().is_none())?)
            }
            (None, Some(header)) => Some(only(headers, header)?),
            (None, None) => None,
        };
        let id = match &self.id_header {
            Some(header) => Some(only(headers, header)?),
            None => None,
        };
        let written = parts
            .iter()
            .filter_map(|part| part.strip_prefix(&*self.prefix));
        let signatures = written.filter_map(|text| self.decode(text));
        Some(Given {
            signatures: signatures.take(MAX_SIGNATURES).collect(),
            timestamp,
            id,
        })
    }

    fn decode(&self, text: &str) -> Option<Signature> {
        match self.encoding {
            Encoding::Hex => Signature::parse(text.as_bytes()).ok(),
            Encoding::Base64 => {
                let bytes = BASE64_STANDARD.decode(text).ok()?;
                Some(Signature::of_bytes(bytes.try_into().ok()?))
            }
        }
    }

    fn is_timely(&self, timestamp: Option<&str>, now: u64) -> bool {
        if self.timestamp_key.is_none() && self.timestamp_header.is_none() {
            return true;
        }
        let is_number = |text: &&str| text.bytes().all(|byte| byte.is_ascii_digit());
        let time = timestamp
            .filter(is_number)
            .and_then(|text| text.parse::<u64>().ok());
        time.is_some_and(|time| time.abs_diff(now) <= u64::from(self.tolerance_seconds))
    }
}

/// The value of a header that stands there once.
fn only<'h>(headers: &'h Headers, name: &str) -> Option<&'h str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
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

#[cfg(test)]
#[path = "scheme_tests.rs"]
mod tests;
