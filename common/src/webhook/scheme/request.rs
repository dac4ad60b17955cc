//! Finds, verifies and makes the signatures of requests. Verification takes the same steps whatever
//! is wrong with a request, so that its time reveals nothing.

use base64::{Engine, prelude::BASE64_STANDARD};

use super::rules::{Encoding, Rules};
use crate::{
    text_enum,
    webhook::signature::{Signature, SigningKey},
};

/// Maximum signatures checked in one request: a tool sends several while it changes its secret.
const MAX_SIGNATURES: usize = 8;
/// Maximum length of the header, time and id, in bytes: longer ones would cost time by which a
/// sender could tell whether the webhook exists.
const MAX_HEADER: usize = 1_024;
const MAX_TIME: usize = 20;
const MAX_ID: usize = 256;

text_enum! {
    /// Why a delivery was refused. The owner of the webhook may know, its sender may not.
    pub enum DeliveryFault {
        /// The signature header is missing
        Missing = "missing",
        /// The signature header occurs more than once
        Repeated = "repeated",
        /// The signature has a prefix, such as sha256=
        Prefix = "prefix",
        /// The signature has digits A to F instead of a to f
        UpperCase = "upper_case",
        /// The signature has the wrong length
        Length = "length",
        /// The signature is not hexadecimal
        NotHex = "not_hex",
        /// The signature belongs to another body or another secret
        Digest = "digest",
        /// The scheme is violated: a part is missing or malformed
        Scheme = "scheme",
        /// The time is out of tolerance: it was sent long ago, or a clock is wrong
        Time = "time",
        /// Signed, but sent from an address that may not send
        Address = "address",
        /// More than 65,536 bytes
        TooLarge = "too_large",
        /// Signed, but not JSON
        NotJson = "not_json",
        /// Signed, but without the content type of JSON
        ContentType = "content_type",
    }
}

/// The headers of a request.
pub type Headers = http::HeaderMap;

/// A request as a sender signs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signed {
    /// The headers to add, with their values.
    pub headers: Vec<(String, String)>,
    /// The signed text before the body.
    pub before: String,
    /// The signed text after the body.
    pub after: String,
}

/// The headers of a request that its signature depends on.
#[derive(Default)]
struct SignedHeaders<'h> {
    /// The header with the signature.
    value: &'h str,
    timestamp: Option<&'h str>,
    id: Option<&'h str>,
}

impl Rules {
    /// Whether a request is signed with this key, at a time within the tolerance around `now`, in
    /// seconds since 1970. Always computes exactly one MAC, whatever the headers hold.
    #[must_use]
    pub fn verifies(&self, key: &SigningKey, headers: &Headers, body: &[u8], now: u64) -> bool {
        let given = self.given(headers).unwrap_or_default();
        let (before, after) = self.around(&given);
        let expected = key.sign_parts(before.chain([body]).chain(after));
        let signatures = self.signatures(&given);
        let is_signed = signatures.fold(false, |found, one| found | one.is(&expected));
        is_signed && self.is_timely(given.timestamp, now)
    }

    /// Why the signature of a request does not verify.
    #[must_use]
    pub fn complaint(&self, headers: &Headers, now: u64) -> DeliveryFault {
        let mut values = headers.get_all(&self.header).iter();
        let (Some(value), None) = (values.next(), values.next()) else {
            return if headers.contains_key(&self.header) {
                DeliveryFault::Repeated
            } else {
                DeliveryFault::Missing
            };
        };
        let is_plain = self.prefix.is_empty() && self.encoding == Encoding::Hex;
        let given = self.given(headers).unwrap_or_default();
        if self.signatures(&given).next().is_some() {
            if self.is_timely(given.timestamp, now) {
                return DeliveryFault::Digest;
            }
            if seconds(given.timestamp).is_some() {
                return DeliveryFault::Time;
            }
        }
        if !is_plain {
            return DeliveryFault::Scheme;
        }
        let value = value.as_bytes();
        match value.len() {
            64 if !value.iter().all(u8::is_ascii_hexdigit) => DeliveryFault::NotHex,
            // Lower-case digits would have been a signature.
            64 => DeliveryFault::UpperCase,
            _ if value.contains(&b'=') && !value.ends_with(b"=") => DeliveryFault::Prefix,
            _ => DeliveryFault::Length,
        }
    }

    /// Signs a body as a sender would at this time.
    #[must_use]
    pub fn sign(&self, key: &SigningKey, body: &[u8], now: u64, id: &str) -> Signed {
        let time = now.to_string();
        let given = SignedHeaders {
            timestamp: Some(&time),
            id: Some(id),
            ..SignedHeaders::default()
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

    /// The signed text before and after the body.
    fn around<'a>(
        &'a self,
        given: &SignedHeaders<'a>,
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

    /// The id that a sender has given a message, in a scheme that signs one.
    #[must_use]
    pub fn id<'h>(&self, headers: &'h Headers) -> Option<&'h str> {
        only(headers, self.id_header.as_ref()?, MAX_ID)
    }

    /// Reads the headers; `None` if any is missing, repeated, or too long.
    fn given<'h>(&self, headers: &'h Headers) -> Option<SignedHeaders<'h>> {
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
        Some(SignedHeaders {
            value,
            timestamp,
            id,
        })
    }

    /// The first well-formed signatures, at most [`MAX_SIGNATURES`].
    fn signatures(&self, given: &SignedHeaders<'_>) -> impl Iterator<Item = Signature> {
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

    /// The parts of a header between separators; the whole if the scheme has no separator.
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
                // 44 characters decode to 33 bytes without padding; a signature has 32.
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
        let time = seconds(timestamp);
        time.is_some_and(|time| time.abs_diff(now) <= u64::from(self.tolerance_seconds))
    }
}

/// A time in seconds, written in digits.
fn seconds(timestamp: Option<&str>) -> Option<u64> {
    let digits = timestamp.filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    digits?.parse().ok()
}

/// The pieces of a template with its placeholders filled in. One pass, so that a value that looks
/// like a placeholder is not replaced.
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
            // A brace that begins no placeholder is an ordinary character.
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

/// The value of a header that occurs exactly once and has at most `max` bytes.
fn only<'h>(headers: &'h Headers, name: &str, max: usize) -> Option<&'h str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next().filter(|value| value.len() <= max)?;
    let value = value.to_str().ok()?;
    values.next().is_none().then_some(value)
}
