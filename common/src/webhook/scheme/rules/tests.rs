//! Rules by which a sender could pass something by.

use serde_json::json;

use super::*;

#[test]
fn rules_that_could_be_passed_by_are_none() {
    let good = json!({"header": "x-sign", "encoding": "hex", "signed": "{body}"});
    let parsed = Rules::parse(&good.to_string()).unwrap();
    assert_eq!(parsed.tolerance_seconds, 300);
    let header = RulesError::Header;
    for (member, value, problem) in [
        ("header", "x sign".into(), header("header")),
        ("id_header", "\u{e9}".into(), header("id_header")),
        ("signed", "".into(), RulesError::Body),
        ("signed", "{body}{body}".into(), RulesError::Body),
        ("signed", "{timestamp}.{body}".into(), RulesError::Timestamp),
        ("signed", "{id}.{body}".into(), RulesError::Id),
        ("timestamp_header", "x-time".into(), RulesError::Timestamp),
        ("id_header", "x-id".into(), RulesError::Id),
        ("separator", "|".into(), RulesError::Separator),
        ("separator", "".into(), RulesError::Separator),
        ("separator", ",; ".into(), RulesError::Separator),
        ("header", json!([]), header("header")),
        ("header", json!(["x"; 9].to_vec()), header("header")),
        ("timestamp_place", 0.into(), RulesError::Timestamp),
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
        let pairs = json!({"header": "x-sign", "encoding": "hex", "prefix": prefix,
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
        let parsed = Rules::parse(text);
        assert!(matches!(parsed, Err(RulesError::Shape(_))), "{text}");
    }
    // What looks like a placeholder is one, or a mistake; other braces are text.
    for (signed, unknown) in [
        ("{host}:{body}", Some("host")),
        ("{body}{uri}", Some("uri")),
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
        let rules = json!({"header": "x", "encoding": "hex", "signed": signed});
        let expected = unknown.map(|word| RulesError::Placeholder(word.to_owned()));
        assert_eq!(Rules::parse(&rules.to_string()).err(), expected, "{signed}");
    }
    let both = json!({"header": "x", "encoding": "hex", "signed": "{timestamp}.{body}",
        "separator": ",", "timestamp_key": "t", "timestamp_header": "y"});
    assert_eq!(Rules::parse(&both.to_string()), Err(RulesError::TwoTimes));
}
