//! Schemes against results of openssl, each other, and what a sender could try.
//! `tests/suite/tools.rs` has the vectors of all tools.

use http::header::HeaderName;
use proptest::prelude::{any, prop, proptest};
use serde_json::{Value, json};

use super::*;
use crate::{
    secret::Secret,
    webhook::{SIGNATURE_HEADER, Tool},
};

pub(super) const URL: &str = "https://hooks.example.com/in/a.b";

pub(super) fn rules(tool: &str) -> Rules {
    tool.parse::<Tool>().unwrap().rules().unwrap()
}

fn custom(rules: &Value) -> Rules {
    Rules::parse(&rules.to_string()).unwrap()
}

pub(super) fn headers(given: &[(&str, &str)]) -> Headers {
    let mut headers = Headers::new();
    for (name, value) in given {
        headers.append(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
    }
    headers
}

fn of_signed(signed: &Signed) -> Headers {
    let given = signed
        .headers
        .iter()
        .map(|(name, value)| (&**name, &**value));
    headers(&Vec::from_iter(given))
}

pub(super) fn request<'a>(headers: &'a Headers, body: &'a [u8]) -> WebhookRequest<'a> {
    WebhookRequest {
        method: "POST",
        base: "https://hooks.example.com",
        target: "/in/a.b",
        headers,
        body,
    }
}

fn verifies(rules: &Rules, secret: &str, given: &[(&str, &str)], body: &str, now: u64) -> bool {
    let keys = rules.keys(&Secret::new(secret.into())).unwrap();
    rules.verifies(&keys, &request(&headers(given), body.as_bytes()), now)
}

/// Whether these headers sign `{}` with the secret `secret`.
fn are_right(rules: &Rules, given: &[(&str, &str)], now: u64) -> bool {
    verifies(rules, "secret", given, "{}", now)
}

/// A body that is signed, with the headers of that.
pub(super) fn signed(rules: &Rules, secret: &str, body: &str, now: u64, id: &str) -> Headers {
    let keys = rules.keys(&Secret::new(secret.into())).unwrap();
    let signed = rules.sign(&keys, URL, body.as_bytes(), now, id).unwrap();
    of_signed(&signed)
}

#[test]
fn a_signature_counts_once_and_as_it_is_written() {
    let rules = rules("github");
    let secret = "It's a Secret to Everybody";
    let signature = "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
    let good = format!("sha256={signature}");
    let header = "x-hub-signature-256";
    let is_good = |given: &[(&str, &str)]| verifies(&rules, secret, given, "Hello, World!", 0);
    assert!(is_good(&[(header, &good)]));
    for wrong in [
        signature.to_owned(),
        good.to_uppercase(),
        format!("sha1={signature}"),
    ] {
        assert!(!is_good(&[(header, &wrong)]), "{wrong}");
    }
    assert!(!is_good(&[(header, &good), (header, &good)]));
    assert!(!is_good(&[]));
}

#[test]
fn times_are_bounded() {
    let slack = rules("slack");
    let sent = signed(&slack, "8f742231b10e8888", "{}", 1_531_420_618, "");
    let keys = slack.keys(&Secret::new("8f742231b10e8888".into())).unwrap();
    let at = |now| slack.verifies(&keys, &request(&sent, b"{}"), now);
    assert!(at(1_531_420_618) && at(1_531_420_918) && at(1_531_420_318));
    assert!(!at(1_531_420_919) && !at(1_531_420_317));
    for (format, written) in [
        ("milliseconds", "1531420618000"),
        ("iso8601", "2018-07-12T18:36:58Z"),
        ("unchecked", "1531420618"),
    ] {
        let rules = custom(
            &json!({"header": "x", "encoding": "hex", "timestamp_header": "y",
            "timestamp_format": format, "signed": "{timestamp}.{body}"}),
        );
        let sent = signed(&rules, "secret", "{}", 1_531_420_618, "");
        assert_eq!(sent["y"], written);
        let keys = rules.keys(&Secret::new("secret".into())).unwrap();
        let at = |now| rules.verifies(&keys, &request(&sent, b"{}"), now);
        assert!(at(1_531_420_918), "{format}");
        assert_eq!(at(1_531_420_919), format == "unchecked", "{format}");
    }
}

#[test]
fn several_signatures_are_looked_at() {
    let stripe = rules("stripe");
    let now = 1_492_774_577;
    let sent = signed(&stripe, "secret", "{}", now, "");
    let value = sent["stripe-signature"].to_str().unwrap();
    // openssl dgst -sha256 -hmac secret
    let known = "2ddb0fdc1ad242a0eece9d964270ad86442b7381d25d1f99cd41a46999919e32";
    assert_eq!(value, format!("t=1492774577,v1={known}"));
    let other = known.replace('2', "3");
    let others = |count| format!("v1={other},").repeat(count);
    for (value, is_good) in [
        (format!("t=1492774577,v1={other},v1={known}"), true),
        (format!("v1={known},v1={other},t=1492774577"), true),
        (format!("t=1492774577,v0=0,v1={known}"), true),
        (format!("t=1492774577,t=1492774577,v1={known}"), true),
        (format!("t=1492774577,t=1492774578,v1={known}"), false),
        (format!("t=1492774578,v1={known}"), false),
        (format!("v1={known}"), false),
        (format!("t=1492774577,{}v1={known}", others(7)), true),
        (format!("t=1492774577,{}v1={known}", others(8)), false),
    ] {
        let given = [("stripe-signature", value.as_str())];
        assert_eq!(are_right(&stripe, &given, now), is_good, "{value}");
    }
    // Places, two separators, and a header for each key.
    let places = custom(&json!({"header": "x", "encoding": "hex", "separator": ",",
        "timestamp_place": 0, "signed": "{timestamp}.{body}"}));
    let given = format!("1492774577,{other},{known}");
    assert!(are_right(&places, &[("x", &given)], now));
    let pairs = custom(&json!({"header": "x", "encoding": "hex", "separator": ", ",
        "prefix": "v1=", "timestamp_key": "t", "signed": "{timestamp}.{body}"}));
    let given = format!("t=1492774577,v1={other} t=1492774577,v1={known}");
    assert!(are_right(&pairs, &[("x", &given)], now));
    let headers = custom(&json!({"header": ["x-1", "x-2"], "encoding": "hex", "signed": "{body}"}));
    let sent = signed(&headers, "secret", "{}", 0, "");
    let right = sent["x-1"].to_str().unwrap();
    let given = [("x-1", other.as_str()), ("x-2", right)];
    assert!(are_right(&headers, &given, 0));
    assert!(are_right(&headers, &given[1..], 0));
    assert!(!are_right(&headers, &given[..1], 0));
}

#[test]
fn algorithms_and_spellings() {
    // printf {} | openssl dgst -sha1 -hmac secret, and so on; the last two in base64.
    for (encoding, known) in [
        ("hex", "5d61605c3feea9799210ddcb71307d4ba264225f"),
        ("upper_hex", "5D61605C3FEEA9799210DDCB71307D4BA264225F"),
        ("base64", "XWFgXD/uqXmSEN3LcTB9S6JkIl8="),
        ("base64url", "XWFgXD_uqXmSEN3LcTB9S6JkIl8="),
        ("base64url", "XWFgXD_uqXmSEN3LcTB9S6JkIl8"),
    ] {
        let rules = custom(&json!({"header": "x", "algorithm": "hmac-sha1",
            "encoding": encoding, "signed": "{body}"}));
        assert!(are_right(&rules, &[("x", known)], 0), "{encoding} {known}");
        for wrong in [known.to_lowercase(), known.to_uppercase()] {
            let is_same = wrong == known;
            let is_right = are_right(&rules, &[("x", &wrong)], 0);
            assert_eq!(is_right, is_same, "{wrong}");
        }
    }
}

/// What is signed of one part never passes for a piece of the next.
#[test]
fn parts_that_touch_say_where_they_end() {
    let close = |signed: &str, format: &str| {
        json!({"header": "s", "encoding": "hex", "timestamp_header": "t",
            "timestamp_format": format, "id_header": "i", "signed": signed})
    };
    // What is signed with an id, a time and a body, given as others.
    let is_right = |rules: &Value, of: (&str, u64, &str), given: (&str, &str, &str)| {
        let rules = custom(rules);
        let sent = signed(&rules, "secret", of.2, of.1, of.0);
        let (id, time, body) = given;
        let headers = [("s", sent["s"].to_str().unwrap()), ("t", time), ("i", id)];
        verifies(&rules, "secret", &headers, body, time.parse().unwrap_or(0))
    };
    let now = 1_531_420_618;
    let touching = close("{id}{timestamp}{body}", "seconds");
    let given = ("id7", "1531420618", r#"{"a":1}"#);
    assert!(is_right(&touching, ("id7", now, r#"{"a":1}"#), given));
    // The same bytes, cut in other places: a zero before the time is none of its ten digits.
    let given = ("id", "01531420618", "{}");
    assert!(!is_right(&touching, ("id0", now, "{}"), given));
    // A body that is no object could lend its digits.
    let rules = close("{id}.{timestamp}{body}", "seconds");
    let given = ("i", "1531420617", "");
    assert!(!is_right(&rules, ("i", 153_142_061, "7"), given));
    // A time of any form, and the id next to it, hold none of the signs between them.
    let rules = close("{id}.{timestamp}.{body}", "unchecked");
    for given in [("a", "b.1531420618", "{}"), ("a.b", "1531420618", "{}")] {
        assert!(!is_right(&rules, ("a.b", now, "{}"), given), "{given:?}");
    }
    let given = ("a-b", "1531420618", "{}");
    assert!(is_right(&rules, ("a-b", now, "{}"), given));
    for (signed, format, is_fine) in [
        ("{body}{timestamp}{id}", "iso8601", true),
        ("{id}{timestamp}{body}", "unchecked", false),
        ("{id}x{timestamp}.{body}", "unchecked", false),
        ("{timestamp}{body}{id}", "unchecked", true),
        ("{method}{url}{body}.{id}.{timestamp}", "seconds", true),
        ("{url}{id}.{timestamp}{body}", "seconds", false),
    ] {
        let problem = Rules::parse(&close(signed, format).to_string()).err();
        let expected = (!is_fine).then_some(RulesError::Adjacent);
        assert_eq!(problem, expected, "{signed}");
    }
}

#[test]
fn addresses_are_signed() {
    let rules = custom(&json!({"header": "x", "encoding": "base64",
        "signed": "{method}{url}{body}"}));
    let keys = rules.keys(&Secret::new("secret".into())).unwrap();
    let body = br#"{"a":1}"#;
    let sent = rules.sign(&keys, URL, body, 0, "").unwrap();
    assert_eq!(sent.content, [b"POST", URL.as_bytes(), body].concat());
    let headers = headers(&[("x", &sent.headers[0].1)]);
    let here = request(&headers, body);
    assert!(rules.verifies(&keys, &here, 0));
    for (base, target) in [
        ("http://hooks.example.com", "/in/a.b"),
        ("https://hooks.example.com", "/in/a.b?x=1"),
        ("https://hooks.example.com", "/in/a.c"),
    ] {
        let other = WebhookRequest {
            base,
            target,
            ..here
        };
        assert!(!rules.verifies(&keys, &other, 0), "{base}{target}");
    }
}

#[test]
fn the_default_is_as_it_was() {
    let own = Tool::letterbox().rules().unwrap();
    let sent = signed(&own, "secret", "[1]", 0, "");
    let signature = sent[SIGNATURE_HEADER].to_str().unwrap();
    // printf '[1]' | openssl dgst -sha256 -hmac secret
    let known = "d832580a6b785bddc42cfd5e19af6afc8bb83961067968ee9bb8d7bdf45df058";
    assert_eq!(signature, known);
    let is_right = |value: &str| {
        let given = [(SIGNATURE_HEADER, value)];
        verifies(&own, "secret", &given, "[1]", 0)
    };
    assert!(is_right(signature));
    for other in [format!("{signature} "), format!("{signature},{signature}")] {
        assert!(!is_right(&other), "{other}");
    }
}

#[test]
fn new_secrets_are_keys() {
    for tool in Tool::all() {
        let Some(rules) = tool.rules() else {
            continue;
        };
        let secret = secret_for(&rules).unwrap();
        assert_eq!(secret.is_none(), rules.algorithm.has_public_key(), "{tool}");
        let Some(secret) = secret else { continue };
        assert!(rules.keys(&secret).is_ok(), "{tool}");
        let other = secret_for(&rules).unwrap().unwrap();
        assert_ne!(other.expose(), secret.expose());
    }
    let rules = rules("standard-webhooks");
    assert!(rules.keys(&Secret::new(b"whsec_?".to_vec())).is_err());
    assert!(rules.keys(&Secret::new(b"".to_vec())).is_err());
}

proptest! {
    /// A signature verifies, and does not under any other key or body, or for another tool.
    #[test]
    fn only_what_was_signed_verifies(
        body in r#"\{"[a-z{}]{0,12}":[0-9]{1,3}\}"#,
        id in "[a-z]{1,12}",
        which in any::<prop::sample::Index>(),
    ) {
        let tools: Vec<_> = Tool::all().filter_map(|tool| Some((tool, tool.rules()?))).collect();
        let (tool, rules) = which.get(&tools);
        let Some(secret) = secret_for(rules).unwrap() else { return Ok(()) };
        let keys = rules.keys(&secret).unwrap();
        let now = 1_792_774_577;
        let sent = rules.sign(&keys, URL, body.as_bytes(), now, &id).unwrap();
        let given = of_signed(&sent);
        let here = request(&given, body.as_bytes());
        assert!(rules.verifies(&keys, &here, now), "{tool}");
        let other = rules.keys(&secret_for(rules).unwrap().unwrap()).unwrap();
        assert!(!rules.verifies(&other, &here, now), "{tool}");
        let longer = format!("{body} ");
        assert!(!rules.verifies(&keys, &request(&given, longer.as_bytes()), now), "{tool}");
        let is_alike = |other: &Rules| other.header == rules.header && other.signed == rules.signed;
        for (other, its) in tools.iter().filter(|(_, its)| !is_alike(its)) {
            assert!(!its.verifies(&keys, &here, now), "{tool} is taken for {other}");
        }
    }
}

/// A sender can't cause more work for a webhook that exists than for one that does not.
#[test]
fn long_headers_are_not_looked_at() {
    let rules = rules("standard-webhooks");
    let secret = secret_for(&rules).unwrap().unwrap();
    let keys = rules.keys(&secret).unwrap();
    let verifies = |id: &str, signatures_before: &str| {
        let mut signed = rules.sign(&keys, URL, b"{}", 1_000, id).unwrap();
        // The signature comes first.
        let (_, value) = &mut signed.headers[0];
        value.insert_str(0, signatures_before);
        rules.verifies(&keys, &request(&of_signed(&signed), b"{}"), 1_000)
    };
    assert!(verifies(&"i".repeat(256), "") && !verifies(&"i".repeat(257), ""));
    let other = format!("v1,{} ", "A".repeat(43) + "=");
    assert!(verifies("i", &other.repeat(7)) && !verifies("i", &other.repeat(8)));
    assert!(verifies("i", &"v1,AAAA ".repeat(100)) && !verifies("i", &"v1,AAAA ".repeat(125)));
}
