//! Signatures in requests: found, verified, made. What is checked takes the same steps, whatever is
//! wrong with it.

use base64::{Engine, prelude::BASE64_STANDARD};

use super::rules::{Encoding, Rules};
use crate::{
    text_enum,
    webhook::signature::{Signature, SigningKey},
};

/// Signatures in one request that are looked at: while a tool changes its secret, it sends several.
const MAX_SIGNATURES: usize = 8;
/// Longest header, time and id that are looked at, in bytes: what a sender writes costs no time by
/// which it could tell whether there is such a webhook.
const MAX_HEADER: usize = 1_024;
const MAX_TIME: usize = 20;
const MAX_ID: usize = 256;

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

/// What a request says of its signature.
#[derive(Default)]
struct Given<'h> {
    /// The header with the signature.
    value: &'h str,
    timestamp: Option<&'h str>,
    id: Option<&'h str>,
}

impl Rules {
    /// Whether a request is signed with this key, at a time that is near `now`, in seconds since
    /// 1970. One hash is made, whatever the headers say.
    #[must_use]
    pub fn verifies(&self, key: &SigningKey, headers: &Headers, body: &[u8], now: u64) -> bool {
        let given = self.given(headers).unwrap_or_default();
        let (before, after) = self.around(&given);
        let expected = key.sign_parts(before.chain([body]).chain(after));
        let signatures = self.signatures(&given);
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
        let given = self.given(headers).unwrap_or_default();
        if self.signatures(&given).next().is_some() && self.is_timely(given.timestamp, now) {
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
        let given = Given {
            timestamp: Some(&time),
            id: Some(id),
            ..Given::default()
        };
        let (before, after) = self.around(&given);
        let signature = key.sign_parts(before.chain([body]).chain(after));
        let written = match self.encoding {
            Encoding::Hex => signature.to_string(),
            Encoding::Base64 => BASE64_STANDARD.encode(signature.bytes()),
        };
        let mut value = format!("{}{written}", self.prefix);
        if let (Some(name), Some(separator)) = (&self.timestamp_key, self.separator) {
            value = format!("{name}={time}{separator}{value}");
        }
        let mut headers = vec![(self.header.clone(), value)];
        let others = [(&self.timestamp_header, &*time), (&self.id_header, id)];
        for (name, value) in others {
            headers.extend(name.iter().map(|name| (name.clone(), value.to_owned())));
        }
        let (before, after) = self.around(&given);
        let text = |parts: &mut dyn Iterator<Item = &[u8]>| {
            let bytes = parts.collect::<Vec<_>>().concat();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        Signed {
            headers,
            before: text(&mut { before }),
            after: text(&mut { after }),
        }
    }

    /// What stands before and after the body in the signed text.
    fn around<'a>(
        &'a self,
        given: &Given<'a>,
    ) -> (
        impl Iterator<Item = &'a [u8]> + use<'a>,
        impl Iterator<Item = &'a [u8]> + use<'a>,
    ) {
        let (before, after) = self
            .signed
            .split_once("{body}")
            .unwrap_or((&self.signed, ""));
        let values = [("{timestamp}", given.timestamp), ("{id}", given.id)];
        (filled(before, values), filled(after, values))
    }

    /// What the headers say; None where something is missing, repeated, or not as it must be.
    fn given<'h>(&self, headers: &'h Headers) -> Option<Given<'h>> {
        let value = only(headers, &self.header, MAX_HEADER)?;
        let timestamp = match (&self.timestamp_key, &self.timestamp_header) {
            (Some(key), _) => {
                let pairs = self.parts(value).filter_map(|part| part.split_once('='));
                let mut times = pairs.filter(|(name, _)| name == key).map(|(_, time)| time);
                let time = times.next().filter(|time| time.len() <= MAX_TIME)?;
                Some(times.next().is_none().then_some(time)?)
            }
            (None, Some(header)) => Some(only(headers, header, MAX_TIME)?),
            (None, None) => None,
        };
        let id = match &self.id_header {
            Some(header) => Some(only(headers, header, MAX_ID)?),
            None => None,
        };
        Some(Given {
            value,
            timestamp,
            id,
        })
    }

    /// The signatures that are written as they must be, the first ones.
    fn signatures(&self, given: &Given<'_>) -> impl Iterator<Item = Signature> {
        let written = self.parts(given.value);
        let written = written.filter_map(|part| part.strip_prefix(&*self.prefix));
        let length = match self.encoding {
            Encoding::Hex => 64,
            Encoding::Base64 => 44,
        };
        let looked_at = written.filter(move |text| text.len() == length);
        looked_at
            .take(MAX_SIGNATURES)
            .filter_map(|text| self.decode(text))
    }

    /// What stands between the separators of a header; the whole where there is none.
    fn parts<'h>(&self, value: &'h str) -> impl Iterator<Item = &'h str> + use<'h> {
        let separator = self.separator;
        let parts = value.split(move |one| Some(one) == separator);
        parts.map(move |part| match separator {
            Some(_) => part.trim(),
            None => part,
        })
    }

    fn decode(&self, text: &str) -> Option<Signature> {
        match self.encoding {
            Encoding::Hex => Signature::parse(text.as_bytes()).ok(),
            Encoding::Base64 => {
                // Of 44 characters the last one is no padding, or 32 bytes are left.
                let mut bytes = [0; 33];
                let length = BASE64_STANDARD.decode_slice(text, &mut bytes).ok()?;
                let signature = bytes[..length].try_into().ok()?;
                Some(Signature::of_bytes(signature))
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

/// A template's pieces, with values in their places. In one go: a value that looks like a place is
/// none.
fn filled<'a>(
    template: &'a str,
    values: [(&'static str, Option<&'a str>); 2],
) -> impl Iterator<Item = &'a [u8]> + use<'a> {
    let mut rest = template;
    std::iter::from_fn(move || {
        let begins = |(place, value): &(&'static str, Option<&'a str>)| {
            Some((rest.strip_prefix(place)?, value.unwrap_or_default()))
        };
        let (after, piece) = match values.iter().find_map(begins) {
            Some(found) => found,
            None if rest.is_empty() => return None,
            // A brace that begins no place is a character like any other.
            None => {
                let end = rest.char_indices().skip(1).find(|(_, one)| *one == '{');
                let (piece, after) = rest.split_at(end.map_or(rest.len(), |(at, _)| at));
                (after, piece)
            }
        };
        rest = after;
        Some(piece.as_bytes())
    })
}

/// The value of a header that stands there once, in at most so many bytes.
fn only<'h>(headers: &'h Headers, name: &str, max: usize) -> Option<&'h str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next().filter(|value| value.len() <= max)?;
    let value = value.to_str().ok()?;
    values.next().is_none().then_some(value)
}
