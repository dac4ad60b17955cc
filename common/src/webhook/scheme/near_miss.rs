//! How a refused request would have been right: the other ways to sign that its signature fits, for
//! the owner of a webhook whose rules are not those of the tool that sends to it.

use serde_json::Value;

use super::{
    parts::WebhookRequest,
    rules::{Header, Rules},
    words::{Encoding, SecretEncoding, TimeFormat},
};
use crate::{secret::Secret, webhook::algorithm::Algorithm};

/// What tools put before signatures.
const PREFIXES: [&str; 5] = ["", "sha256=", "sha1=", "sha512=", "v1="];
/// What tools sign.
const TEXTS: [&str; 4] = [
    "{body}",
    "{timestamp}.{body}",
    "{timestamp}{body}",
    "{url}{body}",
];
/// Parts of the names of headers that may have a signature.
const NAMES: [&str; 3] = ["sign", "hmac", "digest"];
const TIMES: [TimeFormat; 3] = [
    TimeFormat::Seconds,
    TimeFormat::Milliseconds,
    TimeFormat::Iso8601,
];
/// Maximum ways to write a signature for which texts and secrets are tried.
const MAX_WRITTEN: usize = 6;

impl Rules {
    /// What of these rules would have to be different for the request to be right with this
    /// secret, in the form of rules; `None` if no other way fits that is tried. May cost as much as
    /// fifty checks. A public key is no secret: whoever knows it could sign in another way.
    pub fn near_miss(
        &self,
        secret: &Secret,
        request: &WebhookRequest<'_>,
        now: u64,
    ) -> Option<String> {
        if self.algorithm.has_public_key() {
            return None;
        }
        let mut written = self.written(request);
        written.truncate(MAX_WRITTEN);
        let mut others = written.iter().flat_map(Self::computed);
        let found = others
            .find(|other| other.check().is_ok() && other.fits(secret, request, now))
            .filter(|other| other != self)?;
        self.difference(&found)
    }

    /// Whether the request is right by these rules with this secret. Its time tells of the secret:
    /// not for an answer.
    pub(in crate::webhook) fn fits(
        &self,
        secret: &Secret,
        request: &WebhookRequest<'_>,
        now: u64,
    ) -> bool {
        let mac = || {
            let given = self.signatures(request.headers);
            let parts = self.parts(request.headers)?;
            let is_likely = !given.is_empty() && self.is_timely(parts.timestamp, now);
            let keys = is_likely.then(|| self.keys(secret).ok())??;
            let mac = keys.mac(self.signed.filled(request, &parts))?;
            given.contains(&mac).then_some(())
        };
        !self.algorithm.has_public_key() && mac().is_some()
    }

    /// The ways to write a signature in which the request has one, these rules' own first.
    fn written(&self, request: &WebhookRequest<'_>) -> Vec<Self> {
        let names = request.headers.keys().map(|name| name.as_str());
        let names = names.filter(|header| NAMES.iter().any(|part| header.contains(part)));
        let names = names.map(|header| Header::One(header.to_owned()));
        let mut written = Vec::new();
        for header in [self.header.clone()].into_iter().chain(names) {
            for prefix in [&*self.prefix].into_iter().chain(PREFIXES) {
                for encoding in Encoding::ALL.iter().copied() {
                    for algorithm in Algorithm::HMACS {
                        let rules = Self {
                            header: header.clone(),
                            prefix: prefix.to_owned(),
                            encoding,
                            algorithm,
                            ..self.clone()
                        };
                        let has_one = !rules.signatures(request.headers).is_empty();
                        if has_one && !written.contains(&rules) {
                            written.push(rules);
                        }
                    }
                }
            }
        }
        written
    }

    /// The ways to compute what is written as these rules say, their own first.
    fn computed(&self) -> Vec<Self> {
        let texts = TEXTS.iter().filter_map(|text| text.parse().ok());
        let times = if self.has_time() { &TIMES[..] } else { &[] };
        let mut computed = Vec::new();
        for signed in [self.signed.clone()].into_iter().chain(texts) {
            for timestamp_format in [self.timestamp_format].iter().chain(times) {
                for secret in [self.secret].iter().chain(SecretEncoding::ALL) {
                    let rules = Self {
                        signed: signed.clone(),
                        timestamp_format: *timestamp_format,
                        secret: *secret,
                        ..self.clone()
                    };
                    if !computed.contains(&rules) {
                        computed.push(rules);
                    }
                }
            }
        }
        computed
    }

    /// What other rules have that these don't have, as members of rules.
    fn difference(&self, other: &Self) -> Option<String> {
        let own = serde_json::to_value(self).ok()?;
        let Value::Object(other) = serde_json::to_value(other).ok()? else {
            return None;
        };
        let differs = other.iter().filter(|(name, value)| own[*name] != **value);
        let told: Vec<_> = differs
            .map(|(name, value)| format!("{name} {value}"))
            .collect();
        // The usual ones are not written.
        Some(match told.is_empty() {
            true => "the usual algorithm and time".to_owned(),
            false => told.join(", "),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{
        super::{
            Headers,
            tests::{request, rules, signed},
        },
        *,
    };
    use crate::webhook::tools_that_fit;

    const NOW: u64 = 1_700_000_000;
    const SECRET: &str = "MDEyMzQ1Njc4OWFiY2RlZg==";

    fn custom(text: &str) -> Rules {
        Rules::parse(text).unwrap()
    }

    #[test]
    fn what_the_tool_does_otherwise_is_told() {
        let own = json!({"header": "x-sig", "encoding": "hex", "signed": "{body}"});
        let timed = json!({"header": "x-sig", "encoding": "hex", "signed": "{timestamp}.{body}",
            "timestamp_header": "x-time"});
        for (own, others) in [
            (&own, json!({"encoding": "base64"})),
            (&own, json!({"encoding": "upper_hex"})),
            (&own, json!({"header": "x-my-signature"})),
            (&own, json!({"prefix": "sha256="})),
            (&own, json!({"secret": "base64"})),
            (
                &own,
                json!({"algorithm": "hmac-sha1", "encoding": "base64", "prefix": "sha1="}),
            ),
            (&own, json!({"signed": "{url}{body}"})),
            (&timed, json!({"signed": "{timestamp}{body}"})),
            (&timed, json!({"timestamp_format": "milliseconds"})),
        ] {
            let mut tools = own.clone();
            let others = others.as_object().unwrap();
            tools.as_object_mut().unwrap().extend(others.clone());
            let told = others.iter().map(|(name, value)| format!("{name} {value}"));
            let told = Vec::from_iter(told).join(", ");
            let headers = signed(&custom(&tools.to_string()), SECRET, "{}", NOW, "");
            let secret = Secret::new(SECRET.into());
            let own = custom(&own.to_string());
            let near = |body| own.near_miss(&secret, &request(&headers, body), NOW);
            assert_eq!(near(b"{}"), Some(told), "{tools}");
            assert_eq!(near(b"[]"), None, "another body");
        }
    }

    #[test]
    fn the_tool_is_named_whose_rules_fit() {
        for (name, told) in [("stripe", "stripe"), ("jira", "bitbucket, jira")] {
            let headers = signed(&rules(name), SECRET, "{}", NOW, "");
            let secret = Secret::new(SECRET.into());
            let found = tools_that_fit(&secret, &request(&headers, b"{}"), NOW);
            assert_eq!(found.as_deref(), Some(told));
        }
        let none = Secret::new(SECRET.into());
        let unsigned = Headers::new();
        assert_eq!(tools_that_fit(&none, &request(&unsigned, b"{}"), NOW), None);
    }

    /// Whoever knows a public key could make an HMAC with its text: that is right for nobody.
    #[test]
    fn a_public_key_is_no_secret() {
        let own = r#"{"header": "x-sig", "encoding": "hex", "algorithm": "ed25519",
            "signed": "{body}"}"#;
        let key = "58".to_owned() + &"66".repeat(31);
        let hmac = custom(r#"{"header": "x-sig", "encoding": "hex", "signed": "{body}"}"#);
        let headers = signed(&hmac, &key, "{}", NOW, "");
        let key = Secret::new(key.into_bytes());
        let near = custom(own).near_miss(&key, &request(&headers, b"{}"), NOW);
        assert_eq!(near, None);
    }
}
