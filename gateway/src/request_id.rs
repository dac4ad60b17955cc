//! Request ids: every answer has one in `X-Request-Id`, and the signal or run of the request keeps
//! it. A trusted proxy sets it where the settings say so; other requests get a random one.

use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use letterbox_common::webhook::only;

pub(crate) const HEADER: HeaderName = HeaderName::from_static("x-request-id");
const MAX_BYTES: usize = 64;

/// Assigns an id to a request: its own if a trusted proxy sent it, otherwise a random one. From
/// here on its headers hold this id and no other.
pub(crate) fn assign(headers: &mut HeaderMap, is_trusted: bool) -> HeaderValue {
    let given = only(headers, HEADER).filter(|id| is_trusted && is_plain(id.as_bytes()));
    let id = given.cloned().unwrap_or_else(random);
    headers.insert(HEADER, id.clone());
    id
}

/// A random id, also for answers to requests that could not be read.
pub(crate) fn random() -> HeaderValue {
    let text = format!("{:032x}", fastrand::u128(..));
    // Hexadecimal digits are always a value.
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("0"))
}

/// The id that was assigned to a request.
pub(crate) fn of(headers: &HeaderMap) -> Option<String> {
    let id = headers.get(HEADER)?.to_str().ok()?;
    Some(id.to_owned())
}

fn is_plain(id: &[u8]) -> bool {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(byte);
    (1..=MAX_BYTES).contains(&id.len()) && id.iter().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_trusted_proxies_bring_their_own() {
        let assigned = |given: &[&str], is_trusted| {
            let mut headers = HeaderMap::new();
            for id in given {
                headers.append(HEADER, id.parse().unwrap());
            }
            let id = assign(&mut headers, is_trusted);
            assert_eq!(headers.get_all(HEADER).iter().collect::<Vec<_>>(), [&id]);
            id.to_str().unwrap().to_owned()
        };
        assert_eq!(assigned(&["a-B_1.2:3"], true), "a-B_1.2:3");
        let long = "x".repeat(65);
        for (given, is_trusted) in [
            (&["mine"][..], false),
            (&[], true),
            (&["one", "two"], true),
            (&["a b"], true),
            (&["a\""], true),
            (&[""], true),
            (&[long.as_str()], true),
        ] {
            let id = assigned(given, is_trusted);
            let is_random = id.len() == 32 && !given.contains(&&*id);
            assert!(is_random, "{given:?}: {id}");
        }
        assert_ne!(random(), random());
    }
}
