//! The check that a body is JSON, of any kind and depth, without building values from it.
//!
//! JSON is RFC 8259 text in UTF-8 without a byte order mark. The check is iterative, so depth costs
//! no stack; numbers of any size, repeated names and lone surrogate escapes are valid.

use serde::de::IgnoredAny;

/// Why a body is not JSON. Gives the position but never quotes the body.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotJson {
    #[error("The body is not valid UTF-8 (byte {at})")]
    Utf8 { at: usize },
    #[error("The body is not valid JSON (line {line}, column {column})")]
    Syntax { line: usize, column: usize },
}

/// Checks the whole body, and returns it as text.
pub(crate) fn check(body: &[u8]) -> Result<&str, NotJson> {
    let text = std::str::from_utf8(body).map_err(|error| NotJson::Utf8 {
        at: error.valid_up_to(),
    })?;
    match serde_json::from_str::<IgnoredAny>(text) {
        Ok(_) => Ok(text),
        Err(error) => Err(NotJson::Syntax {
            line: error.line(),
            column: error.column(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    #[test]
    fn any_json_is_json() {
        let deep = format!("{}{}", "[".repeat(32_000), "]".repeat(32_000));
        let objects = format!("{}1{}", r#"{"a":"#.repeat(10_000), "}".repeat(10_000));
        let long = "9".repeat(60_000);
        let texts = [
            "null",
            " 0 ",
            "-0",
            "1e400",
            "1e131072",
            "1E-400",
            r#""""#,
            r#""\u0000""#,
            r#""\ud800""#,
            r#""\udc00\ud800""#,
            r#"{"\ud800":1}"#,
            r#"{"a":1,"a":2}"#,
            "[]",
            "{}",
            "\t\r\n[1]\n",
            "\"\u{7f}\"",
            "\"\u{2028}\"",
            &deep,
            &objects,
            &long,
        ];
        for text in texts {
            let shown = &text[..text.len().min(40)];
            assert_eq!(check(text.as_bytes()), Ok(text), "{shown}");
        }
    }

    #[test]
    fn nothing_else_is() {
        let texts: [&[u8]; 24] = [
            b"",
            b" ",
            b"\xef\xbb\xbf{}",
            b"[1,]",
            b"{\"a\":1,}",
            b"NaN",
            b"Infinity",
            b"-",
            b"+1",
            b"01",
            b"1.",
            b".5",
            b"1e",
            b"'a'",
            b"{a:1}",
            b"// c\n1",
            b"[1] 2",
            b"\"\n\"",
            b"\"\\x\"",
            b"\"\\u12\"",
            b"tru",
            b"\xff",
            b"\"\xed\xa0\x80\"",
            b"{\0}",
        ];
        for text in texts {
            assert!(check(text).is_err(), "{:?}", String::from_utf8_lossy(text));
        }
        let unclosed = "[".repeat(60_000);
        assert!(check(unclosed.as_bytes()).is_err());
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            ".*".prop_map(Value::from),
        ];
        leaf.prop_recursive(6, 64, 8, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
                prop::collection::hash_map(".*", inner, 0..8)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    /// Texts made of pieces of JSON in any order.
    const ALMOST_JSON: &str = r#"([\[\]{}",:0-9eE.+\-a-f \\u]|true|null|"\\u[0-9a-f]{4}"){0,24}"#;

    proptest! {
        #[test]
        fn what_serde_json_writes_is_json(value in any_value(), pretty in any::<bool>()) {
            let text = if pretty {
                serde_json::to_string_pretty(&value)
            } else {
                serde_json::to_string(&value)
            };
            prop_assert!(check(text.unwrap().as_bytes()).is_ok());
        }

        /// Agrees with serde_json's `Value` on near-JSON texts, except for valid JSON that a
        /// `Value` can't hold.
        #[test]
        fn agrees_with_serde_json(text in ALMOST_JSON) {
            let ours = check(text.as_bytes()).is_ok();
            match serde_json::from_str::<Value>(&text) {
                Ok(_) => prop_assert!(ours),
                Err(error) => {
                    let told = error.to_string();
                    let unholdable = [
                        "number out of range",
                        "surrogate",
                        "unexpected end of hex escape",
                        "recursion limit",
                    ];
                    if !unholdable.iter().any(|words| told.contains(words)) {
                        prop_assert!(!ours, "{told}");
                    }
                }
            }
        }

        #[test]
        fn a_changed_byte_never_panics(
            value in any_value(),
            byte in any::<u8>(),
            at in any::<prop::sample::Index>(),
        ) {
            let mut text = serde_json::to_vec(&value).unwrap();
            let index = at.index(text.len());
            text[index] = byte;
            let agrees = std::str::from_utf8(&text)
                .is_ok_and(|text| serde_json::from_str::<Value>(text).is_ok());
            if agrees {
                prop_assert!(check(&text).is_ok());
            }
        }
    }
}
