//! Schemes against published examples, results of openssl, and each other.

use http::header::HeaderName;
use proptest::prelude::{any, prop, proptest};

use super::*;
use crate::secret::Secret;

fn headers(given: &[(&str, &str)]) -> Headers {
    let mut headers = Headers::new();
    for (name, value) in given {
        headers.append(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
    }
    headers
}

fn verifies(scheme: Scheme, secret: &str, given: &[(&str, &str)], body: &str, now: u64) -> bool {
    let rules = scheme.rules().unwrap();
    let key = rules.key(&Secret::new(secret.into())).unwrap();
    rules.verifies(&key, &headers(given), body.as_bytes(), now)
}

/// docs.github.com, "Validating webhook deliveries".
#[test]
fn github() {
    let secret = "It's a Secret to Everybody";
    let signature = "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
    let good = format!("sha256={signature}");
    let header = "x-hub-signature-256";
    assert!(verifies(
        Scheme::Github,
        secret,
        &[(header, &good)],
        "Hello, World!",
        0
    ));
    for wrong in [
        signature.to_owned(),
        good.to_uppercase(),
        format!("sha1={signature}"),
    ] {
        let given = [(header, wrong.as_str())];
        assert!(
            !verifies(Scheme::Github, secret, &given, "Hello, World!", 0),
            "{wrong}"
        );
    }
    let twice = [(header, good.as_str()), (header, good.as_str())];
    assert!(!verifies(
        Scheme::Github,
        secret,
        &twice,
        "Hello, World!",
        0
    ));
    assert!(!verifies(Scheme::Github, secret, &[], "Hello, World!", 0));
}

/// api.slack.com, "Verifying requests from Slack".
#[test]
fn slack() {
    let secret = "8f742231b10e8888abcd99yyyzzz85a5";
    let body = "token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&\
        channel_id=G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&\
        command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2F\
        T1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121.\
        803a0bc887a14d10d2c447fce8b6703c";
    let time = "1531420618";
    let signature = "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503";
    let given = [
        ("x-slack-request-timestamp", time),
        ("x-slack-signature", signature),
    ];
    assert!(verifies(Scheme::Slack, secret, &given, body, 1_531_420_618));
    assert!(
        verifies(Scheme::Slack, secret, &given, body, 1_531_420_918),
        "five minutes"
    );
    assert!(
        !verifies(Scheme::Slack, secret, &given, body, 1_531_420_919),
        "and not more"
    );
    assert!(
        !verifies(Scheme::Slack, secret, &given, body, 1_531_420_317),
        "nor less"
    );
    assert!(!verifies(
        Scheme::Slack,
        secret,
        &given[1..],
        body,
        1_531_420_618
    ));
    let moved = [("x-slack-request-timestamp", "1531420619"), given[1]];
    assert!(!verifies(
        Scheme::Slack,
        secret,
        &moved,
        body,
        1_531_420_618
    ));
}

/// The reference libraries of standardwebhooks.com.
#[test]
fn standard_webhooks() {
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let body = r#"{"test": 2432232314}"#;
    let good = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
    let with = |signature: &str| {
        let given = [
            ("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek"),
            ("webhook-timestamp", "1614265330"),
            ("webhook-signature", signature),
        ];
        verifies(
            Scheme::StandardWebhooks,
            secret,
            &given,
            body,
            1_614_265_330,
        )
    };
    assert!(with(good));
    assert!(with(&format!("v1,AAAA v2,{good} {good}")), "one of several");
    let ninth = format!(
        "{} {good}",
        ["v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OA="; 8].join(" ")
    );
    assert!(!with(&ninth), "not of very many");
    assert!(!with(&good[3..]) && !with(&good.replace("v1", "v2")) && !with(""));
}

#[test]
fn stripe_and_shopify() {
    let rules = Scheme::Stripe.rules().unwrap();
    let key = rules.key(&Secret::new(b"secret".to_vec())).unwrap();
    let signed = rules.sign(&key, b"{}", 1_492_774_577, "");
    let (name, value) = &signed.headers[0];
    assert_eq!(
        (signed.before.as_str(), name.as_str()),
        ("1492774577.", "stripe-signature")
    );
    assert!(value.starts_with("t=1492774577,v1="), "{value}");
    let old = value.replace("v1=", "v0=0,v1=");
    assert!(verifies(
        Scheme::Stripe,
        "secret",
        &[(name, &old)],
        "{}",
        1_492_774_577
    ));
    let two_times = format!("t=1492774577,{value}");
    assert!(!verifies(
        Scheme::Stripe,
        "secret",
        &[(name, &two_times)],
        "{}",
        1_492_774_577
    ));
    let later = value.replace("t=1492774577", "t=1492774578");
    assert!(!verifies(
        Scheme::Stripe,
        "secret",
        &[(name, &later)],
        "{}",
        1_492_774_577
    ));

    // openssl dgst -sha256 -hmac secret
    let known = "2ddb0fdc1ad242a0eece9d964270ad86442b7381d25d1f99cd41a46999919e32";
    assert!(value.ends_with(known), "{value}");
    let header = "x-shopify-hmac-sha256";
    let known = "dzJZAsrKgS3CWXM6rNBGtzgXNyx3e42VtAJkdHRRbhM=";
    assert!(verifies(
        Scheme::Shopify,
        "secret",
        &[(header, known)],
        "{}",
        0
    ));
    let other = known.replace("dzJ", "dzK");
    assert!(!verifies(
        Scheme::Shopify,
        "secret",
        &[(header, &other)],
        "{}",
        0
    ));
}

#[test]
fn the_default_is_as_it_was() {
    let rules = Scheme::Letterbox.rules().unwrap();
    let key = rules.key(&Secret::new(b"s".to_vec())).unwrap();
    let signature = key.sign(b"[1]").to_string();
    let given = [(SIGNATURE_HEADER, signature.as_str())];
    assert!(verifies(Scheme::Letterbox, "s", &given, "[1]", 0));
    for other in [format!("{signature} "), format!("{signature},{signature}")] {
        let given = [(SIGNATURE_HEADER, other.as_str())];
        assert!(
            !verifies(Scheme::Letterbox, "s", &given, "[1]", 0),
            "{other}"
        );
    }
}

#[test]
fn rules_that_could_be_passed_by_are_none() {
    let good = serde_json::json!({"header": "x-sign", "encoding": "hex", "signed": "{body}"});
    assert_eq!(
        Rules::parse(&good.to_string()).unwrap().tolerance_seconds,
        300
    );
    for (member, value, problem) in [
        ("header", "x sign".into(), RulesError::Header("header")),
        (
            "id_header",
            "\u{e9}".into(),
            RulesError::Header("id_header"),
        ),
        ("signed", "".into(), RulesError::Body),
        ("signed", "{body}{body}".into(), RulesError::Body),
        ("signed", "{timestamp}.{body}".into(), RulesError::Timestamp),
        ("signed", "{id}.{body}".into(), RulesError::Id),
        ("timestamp_header", "x-time".into(), RulesError::Timestamp),
        ("id_header", "x-id".into(), RulesError::Id),
        ("separator", ";".into(), RulesError::Separator),
        ("timestamp_key", "t".into(), RulesError::Timestamp),
        ("tolerance_seconds", 0.into(), RulesError::Tolerance),
        ("tolerance_seconds", 86_401.into(), RulesError::Tolerance),
    ] {
        let mut rules = good.clone();
        rules[member] = value;
        assert_eq!(Rules::parse(&rules.to_string()), Err(problem), "{rules}");
    }
    // Pairs need keys that can be told apart.
    for (separator, key, prefix, is_fine) in [
        (Some(","), "t", "v1=", true),
        (None, "t", "v1=", false),
        (Some(","), "", "v1=", false),
        (Some(","), "t=", "v1=", false),
        (Some(","), "t,t", "v1=", false),
        (Some(","), "t", "v1,", false),
        (Some(" "), "t", "v1,", true),
    ] {
        let pairs = serde_json::json!({"header": "x-sign", "encoding": "hex", "prefix": prefix,
            "signed": "{timestamp}.{body}", "separator": separator, "timestamp_key": key});
        let parsed = Rules::parse(&pairs.to_string());
        let expected = Some(RulesError::Separator).filter(|_| !is_fine);
        assert_eq!(parsed.err(), expected, "{pairs}");
    }
    let signed = |length: usize| {
        let mut rules = good.clone();
        rules["signed"] = format!("{}{{body}}", "x".repeat(length - "{body}".len())).into();
        Rules::parse(&rules.to_string()).err()
    };
    assert_eq!((signed(200), signed(201)), (None, Some(RulesError::Body)));
    for text in [
        "",
        "{}",
        "[]",
        r#"{"header":"x","encoding":"hex","signed":"{body}","x":1}"#,
    ] {
        assert!(
            matches!(Rules::parse(text), Err(RulesError::Shape(_))),
            "{text}"
        );
    }
    for (signed, problem) in [
        ("{timestamp}{body}", Some(RulesError::Adjacent)),
        ("v0{body}0{timestamp}", Some(RulesError::Adjacent)),
        ("{timestamp}x{body}", Some(RulesError::Adjacent)),
        ("v0:{timestamp}:{body}", None),
        ("{body}\n{timestamp}", None),
    ] {
        let rules = serde_json::json!({"header": "x", "encoding": "hex", "signed": signed,
            "timestamp_header": "y"});
        assert_eq!(Rules::parse(&rules.to_string()).err(), problem, "{signed}");
    }
    // What looks like a placeholder is one, or a mistake; other braces are text.
    for (signed, unknown) in [
        ("{method}:{body}", Some("method")),
        ("{body}{url}", Some("url")),
        ("{time}.{body}", Some("time")),
        ("{Timestamp}.{body}", Some("Timestamp")),
        ("{ body }.{body}", Some(" body ")),
        ("{x-request-id}.{body}", Some("x-request-id")),
        ("{{größe}}.{body}", Some("größe")),
        ("{\"sent\":{body}}", None),
        ("{}{1}{body}", None),
        ("{method:{body}", None),
        ("method}{{{body}}}", None),
    ] {
        let rules = serde_json::json!({"header": "x", "encoding": "hex", "signed": signed});
        let expected = unknown.map(|word| RulesError::Placeholder(word.to_owned()));
        assert_eq!(Rules::parse(&rules.to_string()).err(), expected, "{signed}");
    }
    let both = serde_json::json!({"header": "x", "encoding": "hex", "signed": "{timestamp}.{body}",
        "separator": ",", "timestamp_key": "t", "timestamp_header": "y"});
    assert_eq!(Rules::parse(&both.to_string()), Err(RulesError::TwoTimes));
}

#[test]
fn new_secrets_are_keys() {
    for scheme in Scheme::ALL {
        let Some(rules) = scheme.rules() else {
            continue;
        };
        let secret = secret_for(&rules).unwrap();
        assert!(rules.key(&secret).is_ok(), "{scheme}");
        assert_ne!(secret_for(&rules).unwrap().expose(), secret.expose());
    }
    let rules = Scheme::StandardWebhooks.rules().unwrap();
    assert!(rules.key(&Secret::new(b"whsec_?".to_vec())).is_err());
    assert!(rules.key(&Secret::new(b"".to_vec())).is_err());
}

proptest! {
    /// A signature verifies, and does not under any other scheme, key or body.
    #[test]
    fn only_what_was_signed_verifies(
        body in prop::collection::vec(any::<u8>(), 0..100),
        id in "[a-z{}]{1,12}",
        which in 0..7_usize,
    ) {
        let scheme = Scheme::ALL[which];
        let rules = scheme.rules().unwrap();
        let secret = secret_for(&rules).unwrap();
        let key = rules.key(&secret).unwrap();
        let signed = rules.sign(&key, &body, 1_000_000, &id);
        let given: Vec<_> = signed.headers.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
        let given = headers(&given);
        assert!(rules.verifies(&key, &given, &body, 1_000_000));
        let other = rules.key(&secret_for(&rules).unwrap()).unwrap();
        assert!(!rules.verifies(&other, &given, &body, 1_000_000));
        let longer = [&body[..], b"x"].concat();
        assert!(!rules.verifies(&key, &given, &longer, 1_000_000));
        for other in Scheme::ALL.iter().filter(|other| **other != scheme) {
            if let Some(rules) = other.rules() {
                assert!(!rules.verifies(&key, &given, &body, 1_000_000));
            }
        }
    }
}

/// A sender can't cause more work for a webhook that exists than for one that does not.
#[test]
fn long_headers_are_not_looked_at() {
    let rules = Scheme::StandardWebhooks.rules().unwrap();
    let secret = secret_for(&rules).unwrap();
    let key = rules.key(&secret).unwrap();
    let verifies = |id: &str, signatures_before: &str| {
        let signed = rules.sign(&key, b"{}", 1_000, id);
        let mut headers = Headers::new();
        for (name, value) in &signed.headers {
            let before = if *name == rules.header {
                signatures_before
            } else {
                ""
            };
            let name: HeaderName = name.parse().unwrap();
            headers.insert(name, format!("{before}{value}").parse().unwrap());
        }
        rules.verifies(&key, &headers, b"{}", 1_000)
    };
    assert!(verifies(&"i".repeat(256), "") && !verifies(&"i".repeat(257), ""));
    let other = format!("v1,{} ", "A".repeat(43) + "=");
    assert!(verifies("i", &other.repeat(7)) && !verifies("i", &other.repeat(8)));
    assert!(verifies("i", &"v1,AAAA ".repeat(100)) && !verifies("i", &"v1,AAAA ".repeat(125)));
}

#[test]
fn an_old_time_is_told_from_a_malformed_header() {
    let rules = Scheme::Stripe.rules().unwrap();
    let signature = "0".repeat(64);
    for (value, fault) in [
        (format!("t=1000,v1={signature}"), DeliveryFault::Digest),
        (format!("t=1,v1={signature}"), DeliveryFault::Time),
        (format!("t=9999,v1={signature}"), DeliveryFault::Time),
        (format!("t=soon,v1={signature}"), DeliveryFault::Scheme),
        (format!("v1={signature}"), DeliveryFault::Scheme),
        ("t=1".to_owned(), DeliveryFault::Scheme),
    ] {
        let mut headers = Headers::new();
        headers.insert("stripe-signature", value.parse().unwrap());
        assert_eq!(rules.complaint(&headers, 1_000), fault, "{value}");
    }
}

#[test]
fn an_owner_is_told_what_is_wrong_with_a_signature() {
    let rules = Scheme::Letterbox.rules().unwrap();
    let digits = "a".repeat(64);
    let others = "g".repeat(64);
    for (values, fault) in [
        (vec![], DeliveryFault::Missing),
        (vec![digits.clone(); 2], DeliveryFault::Repeated),
        (vec![digits.clone()], DeliveryFault::Digest),
        (vec![digits.to_uppercase()], DeliveryFault::UpperCase),
        (vec![others], DeliveryFault::NotHex),
        (vec![format!("sha256={digits}")], DeliveryFault::Prefix),
        (vec![digits[1..].to_owned()], DeliveryFault::Length),
        // As base64 ends.
        (vec!["YQ==".to_owned()], DeliveryFault::Length),
    ] {
        let given: Vec<_> = values
            .iter()
            .map(|value| (SIGNATURE_HEADER, value.as_str()))
            .collect();
        assert_eq!(rules.complaint(&headers(&given), 0), fault, "{values:?}");
    }
    // Where the signature is written otherwise, nothing is guessed about it.
    let given = [("x-hub-signature-256", digits.as_str())];
    let complaint = Scheme::Github
        .rules()
        .unwrap()
        .complaint(&headers(&given), 0);
    assert_eq!(complaint, DeliveryFault::Scheme);
}

#[test]
fn a_signature_that_is_given_twice_counts() {
    let rules = Scheme::Stripe.rules().unwrap();
    let key = rules.key(&Secret::new(b"whsec_test".to_vec())).unwrap();
    let signed = rules.sign(&key, b"{}", 1_000, "");
    let (name, value) = &signed.headers[0];
    let again = value.split(',').next_back().unwrap();
    let twice = format!("{value},{again}");
    assert!(rules.verifies(&key, &headers(&[(name.as_str(), &twice)]), b"{}", 1_000));
}

#[test]
fn the_id_of_a_message_is_that_of_its_header() {
    let standard = Scheme::StandardWebhooks.rules().unwrap();
    let given = headers(&[("webhook-id", "msg_1")]);
    assert_eq!(standard.id(&given), Some("msg_1"));
    assert_eq!(standard.id(&headers(&[])), None);
    assert_eq!(Scheme::Github.rules().unwrap().id(&given), None);
}
