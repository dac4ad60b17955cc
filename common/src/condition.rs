//! Conditions on a JSON body, which hold if the member at a pointer equals a text.

use std::{fmt, str::FromStr};

use crate::{as_text::serde_as_text, json_object};

/// Maximum bytes of a condition.
const MAX_BYTES: usize = 500;

/// A member equals a text: `/data/status=paid`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// A JSON pointer (RFC 6901) without `=`.
    pointer: String,
    /// What a text says; of a number, `true`, `false` and `null` the JSON.
    text: String,
}

/// The text is no condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "must be a JSON pointer of at most 8 names, = and a text, such as /data/status=paid, of at \
     most 500 bytes"
)]
pub struct InvalidCondition;

impl Condition {
    /// Whether it holds for this body, which must be an object. There is no recursion.
    pub fn holds(&self, body: &[u8]) -> bool {
        let object = std::str::from_utf8(body).map(str::trim_start);
        let object = object.ok().filter(|text| text.starts_with('{'));
        let Some(found) = object.and_then(|text| json_object::at(text, &self.pointer)) else {
            return false;
        };
        match found.starts_with('"') {
            true => serde_json::from_str(found).is_ok_and(|text: String| text == self.text),
            false => found == self.text && !found.starts_with(['{', '[']),
        }
    }
}

impl FromStr for Condition {
    type Err = InvalidCondition;

    fn from_str(text: &str) -> Result<Self, InvalidCondition> {
        let (pointer, wanted) = text.split_once('=').ok_or(InvalidCondition)?;
        let is_good = json_object::is_pointer(pointer) && text.len() <= MAX_BYTES;
        // PostgreSQL's text can't hold U+0000.
        match is_good && !text.contains('\0') {
            true => Ok(Self {
                pointer: pointer.to_owned(),
                text: wanted.to_owned(),
            }),
            false => Err(InvalidCondition),
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.pointer, self.text)
    }
}

serde_as_text!(Condition);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_holds_for_what_equals_it() {
        let deep = format!(
            r#"{{"x":{}{},"a":1}}"#,
            "[".repeat(32_000),
            "]".repeat(32_000)
        );
        for (condition, body, expected) in [
            ("/a/b=paid", r#" {"a":{"b":"p\u0061id"}}"#, true),
            ("/a/b=paid", r#"{"a":{"b":"paid "}}"#, false),
            ("/a/b=paid", r#"{"a":"paid"}"#, false),
            ("/a=x=y", r#"{"a":"x=y"}"#, true),
            ("/a=", r#"{"a":""}"#, true),
            ("/a~1b=1", r#"{"a/b":1}"#, true),
            ("/a=1", r#"{"a":1.0}"#, false),
            ("/a=true", r#"{"a":true}"#, true),
            ("/a=null", r#"{"a":null}"#, true),
            ("/a/1=2", r#"{"a":[1,2]}"#, true),
            ("/a={}", r#"{"a":{}}"#, false),
            ("/0=1", "[1]", false),
            ("/a=1", "1", false),
            ("/a=1", "", false),
            ("/a=1", &deep, true),
        ] {
            let condition: Condition = condition.parse().unwrap();
            assert_eq!(condition.holds(body.as_bytes()), expected, "{condition}");
        }
        let long = format!("/a={}", "x".repeat(500));
        for text in [
            "",
            "a=1",
            "/a",
            "=1",
            "/a=\0",
            "/1/2/3/4/5/6/7/8/9=1",
            &long,
        ] {
            assert_eq!(text.parse::<Condition>(), Err(InvalidCondition), "{text}");
        }
    }
}
