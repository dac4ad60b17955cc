//! Finds, verifies and makes the signatures of requests. Verification takes the same steps whatever
//! is wrong with a request, so that its time reveals nothing.

use base64::{
    Engine,
    alphabet::URL_SAFE,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
    prelude::BASE64_STANDARD,
};
use jiff::Timestamp;

use super::{
    parts::{Headers, Parts, WebhookRequest, only},
    rules::Rules,
    words::{Encoding, TimeFormat},
};
use crate::webhook::{fault::DeliveryFault, keys::Keys};

/// Maximum signatures looked at in one request: a tool sends several while it changes its secret.
const MAX_SIGNATURES: usize = 8;
/// Maximum length of the header, time and id, in bytes: longer ones would cost time by which a
/// sender could tell whether the webhook exists.
const MAX_HEADER: usize = 1_024;
const MAX_PARTS: usize = 128;
const MAX_TIME: usize = 40;
const MAX_ID: usize = 256;

const BASE64_URL: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A request as a sender signs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signed {
    /// The headers to add, with their values.
    pub headers: Vec<(String, String)>,
    /// The signed text.
    pub content: Vec<u8>,
}

impl Rules {
    /// Whether a request is signed with one of these keys, at a time within the tolerance around
    /// `now`, in seconds since 1970. Always makes as many verifications, whatever the headers hold.
    #[must_use]
    pub fn verifies(&self, keys: &Keys, request: &WebhookRequest<'_>, now: u64) -> bool {
        let given = self.parts(request.headers);
        let parts = given.unwrap_or_default();
        let signatures = self.signatures(request.headers);
        let template = &self.signed;
        let is_signed = keys.verify(&template.filled(request, &parts), &signatures);
        is_signed
            && given.is_some()
            && self.is_timely(parts.timestamp, now)
            && template.are_told_apart(request, &parts, self.timestamp_format)
    }

    /// Why the signature of a request does not verify.
    pub fn complaint(&self, headers: &Headers, now: u64) -> DeliveryFault {
        let names = self.header.names().iter();
        let given: Vec<_> = names.flat_map(|name| headers.get_all(name)).collect();
        let [value] = given[..] else {
            return match given.is_empty() {
                true => DeliveryFault::Missing,
                false if self.header.names().len() > 1 => DeliveryFault::Digest,
                false => DeliveryFault::Repeated,
            };
        };
        let is_plain = self.prefix.is_empty()
            && self.separator.is_none()
            && self.encoding == Encoding::Hex
            && self.algorithm.signature_bytes() == Some(32);
        let parts = self.parts(headers).unwrap_or_default();
        if !self.signatures(headers).is_empty() {
            if self.is_timely(parts.timestamp, now) {
                return DeliveryFault::Digest;
            }
            if self.seconds(parts.timestamp).is_some() {
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

    /// Signs a body as a sender would that posts it to this URL at this time. `None` if only the
    /// tool has the key for that.
    pub fn sign(&self, keys: &Keys, url: &str, body: &[u8], now: u64, id: &str) -> Option<Signed> {
        let host = url.find("://").map_or(0, |at| at + "://".len());
        let path = url.get(host..).and_then(|rest| rest.find('/'));
        let (base, target) = url.split_at(path.map_or(url.len(), |at| host + at));
        let request = WebhookRequest {
            method: "POST",
            base,
            target,
            headers: &Headers::new(),
            body,
        };
        let time = match self.timestamp_format {
            TimeFormat::Seconds | TimeFormat::Unchecked => now.to_string(),
            TimeFormat::Milliseconds => format!("{now}000"),
            TimeFormat::Iso8601 => Timestamp::from_second(now.try_into().ok()?)
                .ok()?
                .to_string(),
        };
        let timestamp = &*time;
        let filled = self.signed.filled(&request, &Parts { timestamp, id });
        let signature = keys.mac(filled.clone())?;
        let written = match self.encoding {
            Encoding::Hex => hex::encode(signature),
            Encoding::UpperHex => hex::encode_upper(signature),
            Encoding::Base64 => BASE64_STANDARD.encode(signature),
            Encoding::Base64Url => BASE64_URL.encode(signature),
        };
        let mut value = format!("{}{written}", self.prefix);
        if let Some(separator) = self.separator.as_ref().and_then(|all| all.chars().next()) {
            if let Some(name) = &self.timestamp_key {
                value = format!("{name}={time}{separator}{value}");
            } else if self.timestamp_place.is_some() {
                value = format!("{time}{separator}{value}");
            }
        }
        let mut headers = vec![(self.header.names().first()?.clone(), value)];
        let others = [(&self.timestamp_header, timestamp), (&self.id_header, id)];
        for (name, value) in others {
            headers.extend(name.iter().map(|name| (name.clone(), value.to_owned())));
        }
        let content = filled.collect::<Vec<_>>().concat();
        Some(Signed { headers, content })
    }

    /// The id that a sender has given a message, in a scheme that signs one.
    pub fn id<'h>(&self, headers: &'h Headers) -> Option<&'h str> {
        short(headers, self.id_header.as_ref()?, MAX_ID)
    }

    /// Reads the time and the id; `None` if one is missing, repeated, or too long.
    pub(super) fn parts<'h>(&self, headers: &'h Headers) -> Option<Parts<'h>> {
        let mut parts = Parts::default();
        if let Some(name) = &self.timestamp_header {
            parts.timestamp = short(headers, name, MAX_TIME)?;
        } else if self.timestamp_key.is_some() || self.timestamp_place.is_some() {
            let mut times = self.times(self.values(headers).next()?);
            parts.timestamp = times.next().filter(|time| time.len() <= MAX_TIME)?;
            // Where a tool sends a pair for each secret, its time stands in each.
            times.all(|time| time == parts.timestamp).then_some(())?;
        }
        if self.id_header.is_some() {
            parts.id = self.id(headers)?;
        }
        Some(parts)
    }

    /// The values of the headers with signatures; each is there once, and not too long.
    fn values<'h>(&self, headers: &'h Headers) -> impl Iterator<Item = &'h str> {
        let names = self.header.names().iter();
        names.filter_map(|name| short(headers, name, MAX_HEADER))
    }

    /// The times in a value of the header.
    fn times<'h>(&self, value: &'h str) -> impl Iterator<Item = &'h str> {
        let place = self.timestamp_place.map(usize::from);
        let parts = self.separated(value).enumerate();
        parts.filter_map(move |(at, part)| match &self.timestamp_key {
            Some(key) => {
                let (name, time) = part.split_once('=')?;
                (name == key).then_some(time)
            }
            None => (Some(at) == place).then_some(part),
        })
    }

    /// The well-formed ones of the first signatures that look like some.
    pub(super) fn signatures(&self, headers: &Headers) -> Vec<Vec<u8>> {
        let place = self.timestamp_place.map(usize::from);
        let written = self.values(headers).flat_map(|value| {
            let parts = self.separated(value).enumerate();
            let parts = parts.filter(move |(at, _)| Some(*at) != place);
            parts.filter_map(|(_, part)| part.strip_prefix(&*self.prefix))
        });
        let looked_at = written.filter(|text| self.has_length(text.len()));
        let looked_at = looked_at.take(MAX_SIGNATURES);
        looked_at.filter_map(|text| self.decode(text)).collect()
    }

    /// The parts of a header between separators; the whole if the scheme has no separator.
    fn separated<'h>(&self, value: &'h str) -> impl Iterator<Item = &'h str> {
        let separator = self.separator.as_deref();
        let parts = value.split(move |one| separator.is_some_and(|all| all.contains(one)));
        let parts = parts.take(MAX_PARTS);
        parts.map(move |part| match separator {
            Some(_) => part.trim(),
            None => part,
        })
    }

    /// Whether a signature can be written in so many characters.
    fn has_length(&self, length: usize) -> bool {
        let Some(bytes) = self.algorithm.signature_bytes() else {
            return length <= MAX_HEADER;
        };
        match self.encoding {
            Encoding::Hex | Encoding::UpperHex => length == 2 * bytes,
            Encoding::Base64 => length == bytes.div_ceil(3) * 4,
            Encoding::Base64Url => {
                length == bytes.div_ceil(3) * 4 || length == (bytes * 4).div_ceil(3)
            }
        }
    }

    fn decode(&self, text: &str) -> Option<Vec<u8>> {
        let bytes = match self.encoding {
            Encoding::Hex if text.bytes().any(|byte| byte.is_ascii_uppercase()) => None,
            Encoding::UpperHex if text.bytes().any(|byte| byte.is_ascii_lowercase()) => None,
            Encoding::Hex | Encoding::UpperHex => hex::decode(text).ok(),
            Encoding::Base64 => BASE64_STANDARD.decode(text).ok(),
            Encoding::Base64Url => BASE64_URL.decode(text).ok(),
        };
        let length = self.algorithm.signature_bytes();
        bytes.filter(|bytes| length.is_none_or(|length| bytes.len() == length))
    }

    /// Whether a time is sent with a signature.
    pub(super) fn has_time(&self) -> bool {
        self.timestamp_key.is_some()
            || self.timestamp_place.is_some()
            || self.timestamp_header.is_some()
    }

    pub(super) fn is_timely(&self, timestamp: &str, now: u64) -> bool {
        if !self.has_time() || self.timestamp_format == TimeFormat::Unchecked {
            return true;
        }
        let time = self.seconds(timestamp);
        time.is_some_and(|time| time.abs_diff(now) <= u64::from(self.tolerance_seconds))
    }

    /// A time in seconds since 1970. Its form is fixed: it says itself where it ends.
    fn seconds(&self, timestamp: &str) -> Option<u64> {
        let bytes = timestamp.as_bytes();
        let digits = timestamp.bytes().all(|byte| byte.is_ascii_digit());
        match self.timestamp_format {
            TimeFormat::Seconds | TimeFormat::Unchecked => {
                timestamp.parse().ok().filter(|_| digits)
            }
            TimeFormat::Milliseconds => {
                let time: u64 = timestamp.parse().ok().filter(|_| digits)?;
                Some(time / 1_000)
            }
            TimeFormat::Iso8601 => {
                // A year of four digits, and no second T: else a piece of an id could begin it.
                let is_fixed = bytes.get(4) == Some(&b'-') && bytes.get(10) == Some(&b'T');
                let time: Timestamp = timestamp.parse().ok().filter(|_| is_fixed)?;
                time.as_second().try_into().ok()
            }
        }
    }
}

/// The value of a header that occurs exactly once and has at most `max` bytes.
fn short<'h>(headers: &'h Headers, name: &str, max: usize) -> Option<&'h str> {
    let value = only(headers, name).filter(|value| value.len() <= max)?;
    value.to_str().ok()
}

#[cfg(test)]
mod tests;
