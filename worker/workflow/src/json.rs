//! Parsing JSON from outside. It must be UTF-8 as a whole. Bytes do not bound what it takes once it
//! is parsed, up to 25 times as much (`[[],[],…]`): the number of its values does.

use letterbox_common::json_object;
use serde_json::{Value, value::RawValue};

/// Maximum bytes that are read of an answer, unless its action says otherwise; the rest is cut.
pub const MAX_ANSWER: usize = 64 << 10;
/// Maximum values of one text.
pub(crate) const MAX_VALUES: usize = 10_000;

/// What begins a reason that is kept in place of JSON: it begins no text, and so no JSON.
pub(crate) const REASON: &str = "\0";

/// The reason that is kept in place of JSON, if it is one.
pub(crate) fn reason(kept: &[u8]) -> Option<String> {
    let reason = kept.strip_prefix(REASON.as_bytes())?;
    Some(String::from_utf8_lossy(reason).into_owned())
}

/// Parses JSON text, with or without a byte order mark. `None` if it isn't valid, or has more than
/// [`MAX_VALUES`] values.
pub(crate) fn parse(bytes: &[u8]) -> Option<Value> {
    let text = text(bytes).filter(|_| values(bytes) <= MAX_VALUES)?;
    serde_json::from_str(text).ok()
}

fn text(bytes: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(bytes).ok()?;
    Some(text.strip_prefix('\u{feff}').unwrap_or(text))
}

/// The text at a JSON pointer (RFC 6901), `None` if nothing is there. The rest is looked at and not
/// stored, so it may have any number of values. Fails if the whole is no JSON.
pub(crate) fn part<'j>(bytes: &'j [u8], pointer: &str) -> Result<Option<&'j str>, NoJson> {
    let whole = text(bytes).and_then(|text| serde_json::from_str::<&RawValue>(text).ok());
    Ok(json_object::at(whole.ok_or(NoJson)?.get(), pointer))
}

/// The text is no JSON.
pub(crate) struct NoJson;

/// How many values JSON text has, or a few more: each but the first follows a bracket or a comma
/// outside of strings, or is the value of a name that does.
pub(crate) fn values(text: &[u8]) -> usize {
    let mut values = 1;
    let mut is_in_string = false;
    let mut is_escaped = false;
    for byte in text {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = is_in_string,
            b'"' => is_in_string = !is_in_string,
            b'[' | b'{' | b',' if !is_in_string => values += 1,
            _ => {}
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_bounded() {
        for (text, expected) in [
            ("1", 1),
            ("\"[,{\\\",[\"", 1),
            ("[1,2,3]", 4),
            (r#"{"a":[],"b":{"c":"\\"}}"#, 5),
        ] {
            assert_eq!(values(text.as_bytes()), expected, "{text}");
        }
        let list = |items: usize| format!("[{}[]]", "[],".repeat(items - 1));
        assert!(parse(list(MAX_VALUES / 2 - 1).as_bytes()).is_some());
        assert!(parse(list(MAX_VALUES / 2).as_bytes()).is_none());
        assert_eq!(parse("\u{feff}7".as_bytes()), Some(7.into()));
        assert!(parse(b"\xff").is_none() && parse(b"[1,]").is_none());
    }
}
