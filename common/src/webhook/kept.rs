//! Headers that are kept of a delivery: what a tool says beside the body, such as the type of its
//! event. Which ones follows from the tool; a webhook names some more. No credential and no address
//! is kept, as far as names tell.

use std::collections::BTreeMap;

use http::header::{HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};

use super::{Headers, Rules, Tool, only};
use crate::json_object::text_of;

/// Maximum names that a webhook adds.
const MAX_NAMES: usize = 8;
/// Maximum bytes of all that is kept of a delivery, names included.
const MAX_BYTES: usize = 1_024;
/// Maximum bytes of a name.
const MAX_NAME: usize = 100;
/// Parts of names of headers that hold a credential, a signature or an address.
const NEVER: [&str; 18] = [
    "authoriz",
    "authent",
    "oauth",
    "cookie",
    "token",
    "secret",
    "passw",
    "passphrase",
    "apikey",
    "signature",
    "credential",
    "session",
    "jwt",
    "hmac",
    "forwarded",
    "original-for",
    "clientip",
    "socketip",
];
/// The same for words between hyphens.
const NEVER_WORDS: [&str; 22] = [
    "auth",
    "key",
    "pass",
    "pwd",
    "sig",
    "sign",
    "digest",
    "cred",
    "cert",
    "csrf",
    "xsrf",
    "bearer",
    "assertion",
    "principal",
    "oidc",
    "ip",
    "iplatitude",
    "iplongitude",
    "addr",
    "address",
    "ipcity",
    "via",
];
/// Names that would be refused for a word of theirs, and let nobody in.
const KNOWN: [&str; 3] = ["x-event-key", "idempotency-key", "x-idempotency-key"];

/// A header can't be kept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidKept {
    /// Not a name of a header.
    #[error("{0:?} is no name of a header, or longer than 100 characters")]
    Name(String),
    /// It may hold a credential, a signature or an address.
    #[error("the header {0:?} can hold a credential or an address: it is never stored")]
    Never(String),
    /// There are too many.
    #[error("a webhook names at most 8 headers to keep")]
    TooMany,
}

/// The names of headers that a webhook keeps, and which of them are signed.
#[derive(Debug, Clone)]
pub struct KeptNames(Vec<(HeaderName, bool)>);

/// What was kept of the headers of a delivery, by their names in lower case.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptHeaders {
    /// Those that the signature covers.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub signed: BTreeMap<String, String>,
    /// Those that anybody on the way could have changed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unsigned: BTreeMap<String, String>,
}

impl KeptNames {
    /// Those of a webhook: what is signed of them, what is known of its tool, and what it names
    /// itself.
    ///
    /// # Errors
    /// When a name can't be kept.
    pub fn new(tool: Tool, rules: &Rules, named: &[String]) -> Result<Self, InvalidKept> {
        if named.len() > MAX_NAMES {
            return Err(InvalidKept::TooMany);
        }
        for name in named {
            let parsed = name.parse().ok().filter(|_| name.len() <= MAX_NAME);
            let parsed: HeaderName = parsed.ok_or_else(|| InvalidKept::Name(name.clone()))?;
            if !may_be_kept(&parsed, rules) {
                return Err(InvalidKept::Never(name.clone()));
            }
        }
        Ok(Self::of_stored(tool, rules, named))
    }

    /// The same, of what is stored: a name that can't be kept is left out, whatever it was when the
    /// webhook was made, because it is no reason to refuse a delivery.
    pub fn of_stored(tool: Tool, rules: &Rules, named: &[String]) -> Self {
        let signed = [&rules.id_header, &rules.timestamp_header];
        let signed = signed.into_iter().flatten().map(|name| (&**name, true));
        let of_tool = tool.described().kept.iter().map(|name| (&**name, false));
        let named = named.iter().map(|name| (&**name, false));
        let mut names: Vec<(HeaderName, bool)> = Vec::new();
        for (name, is_signed) in signed.chain(of_tool).chain(named) {
            let Ok(name) = name.parse() else { continue };
            if may_be_kept(&name, rules) && !names.iter().any(|(known, _)| *known == name) {
                names.push((name, is_signed));
            }
        }
        Self(names)
    }

    /// What is kept of these headers: of each name the value, if there is one only, it is visible
    /// ASCII, and there is room.
    pub fn keep(&self, headers: &Headers) -> KeptHeaders {
        let mut kept = KeptHeaders::default();
        let mut room = MAX_BYTES;
        for (name, is_signed) in &self.0 {
            let Some(Ok(value)) = only(headers, name).map(HeaderValue::to_str) else {
                continue;
            };
            let length = name.as_str().len() + value.len();
            if length > room {
                continue;
            }
            room -= length;
            let kept = if *is_signed {
                &mut kept.signed
            } else {
                &mut kept.unsigned
            };
            kept.insert(name.as_str().to_owned(), value.to_owned());
        }
        kept
    }
}

/// Whether a header holds no credential, signature or address, as far as its name tells.
fn may_be_kept(name: &HeaderName, rules: &Rules) -> bool {
    let name = name.as_str();
    let is_known = KNOWN.contains(&name);
    let has_word = || name.split('-').any(|word| NEVER_WORDS.contains(&word));
    let has_part = || NEVER.iter().any(|never| name.contains(never));
    let mut signatures = rules.header.names().iter();
    !signatures.any(|one| name.eq_ignore_ascii_case(one))
        && (is_known || !has_word() && !has_part())
}

impl KeptHeaders {
    /// Whether nothing was kept.
    pub fn is_empty(&self) -> bool {
        self.signed.is_empty() && self.unsigned.is_empty()
    }

    /// What was kept of the header of this name in lower case.
    pub fn get(&self, name: &str) -> Option<&str> {
        let found = self.signed.get(name).or_else(|| self.unsigned.get(name));
        found.map(String::as_str)
    }

    /// Bytes of names and values.
    pub fn length(&self) -> usize {
        let all = self.signed.iter().chain(&self.unsigned);
        all.map(|(name, value)| name.len() + value.len()).sum()
    }

    /// As they are stored: JSON text, or `None` if nothing was kept.
    pub fn to_json(&self) -> Option<String> {
        (!self.is_empty()).then(|| text_of(self))
    }

    /// Reads what was stored; nothing if it is nothing of this kind.
    pub fn parse(json: Option<&str>) -> Self {
        let stored = json.and_then(|json| serde_json::from_str(json).ok());
        stored.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn names(tool: &str, named: &[&str]) -> Result<KeptNames, InvalidKept> {
        let named: Vec<String> = named.iter().map(|name| (*name).to_owned()).collect();
        let tool: Tool = tool.parse().unwrap();
        KeptNames::new(tool, &tool.rules().unwrap(), &named)
    }

    fn kept(names: &KeptNames, headers: &[(&'static str, &str)]) -> KeptHeaders {
        let mut given = Headers::new();
        for (name, value) in headers {
            let value = HeaderValue::from_bytes(value.as_bytes()).unwrap();
            given.append(*name, value);
        }
        names.keep(&given)
    }

    #[test]
    fn what_is_signed_is_told_apart() {
        let github = names("github", &[]).unwrap();
        let sent = [
            ("x-github-event", "push"),
            ("x-hub-signature-256", "sha256=00"),
            ("authorization", "Bearer x"),
        ];
        let headers = kept(&github, &sent);
        let told = r#"{"unsigned":{"x-github-event":"push"}}"#;
        assert_eq!(headers.to_json().unwrap(), told);
        let svix = names("svix", &[]).unwrap();
        let headers = kept(&svix, &[("svix-id", "msg_1"), ("svix-timestamp", "17")]);
        let json = headers.to_json().unwrap();
        let told = r#"{"signed":{"svix-id":"msg_1","svix-timestamp":"17"}}"#;
        assert_eq!(json, told);
        assert_eq!(KeptHeaders::parse(Some(&json)), headers);
        assert_eq!(kept(&svix, &[]).to_json(), None);
    }

    #[test]
    fn what_is_kept_is_bounded_and_certain() {
        let own = names("letterbox", &["X-Event", "x-long"]).unwrap();
        let long = "x".repeat(1_020);
        let headers = kept(&own, &[("x-long", &long), ("x-event", "made")]);
        assert_eq!(headers.unsigned.len(), 1, "there is no room for both");
        assert_eq!(headers.length(), "x-event".len() + "made".len());
        let event = "x-event".len() + "1".len();
        for (long, length) in [(1_010, MAX_BYTES), (1_011, event)] {
            let headers = kept(&own, &[("x-event", "1"), ("x-long", &"x".repeat(long))]);
            assert_eq!(headers.length(), length);
        }
        let twice = kept(&own, &[("x-event", "one"), ("x-event", "two")]);
        assert!(twice.is_empty() && kept(&own, &[("x-event", "\u{e9}")]).is_empty());
    }

    #[test]
    fn what_lets_somebody_in_is_never_kept() {
        for name in [
            "Authorization",
            "Cookie",
            "X-Gitlab-Token",
            "X-Api-Key",
            "X-Forwarded-For",
            "CF-Connecting-IP",
            "X-Service-Signature",
            "X-Shopify-Hmac-SHA256",
            "X-Auth-Key",
            "apikey",
            "x-access-key",
            "X-JWT-Assertion",
            "x-hook-pass",
            "X-Remote-Addr",
            "x-envoy-external-address",
            "x-original-for",
        ] {
            let refused = names("letterbox", &[name]).unwrap_err();
            assert_eq!(refused, InvalidKept::Never(name.to_owned()));
        }
        let named = ["X-Event-Key", "x-request-id", "Idempotency-Key", "x-author"];
        assert_eq!(names("letterbox", &named).unwrap().0.len(), 4);
        // What was stored before a name was refused costs no delivery.
        let rules = Tool::letterbox().rules().unwrap();
        let stored = ["x-auth".to_owned(), "a b".to_owned(), "x-a".to_owned()];
        let stored = KeptNames::of_stored(Tool::letterbox(), &rules, &stored);
        assert_eq!(stored.0, [(HeaderName::from_static("x-a"), false)]);
        let refused = |named: &[&str]| names("letterbox", named).unwrap_err();
        assert_eq!(refused(&["a b"]), InvalidKept::Name("a b".to_owned()));
        assert_eq!(refused(&["x-a"; 9]), InvalidKept::TooMany);
    }
}
