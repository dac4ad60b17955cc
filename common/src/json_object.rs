//! Extracts members of an untrusted JSON object: those that are wanted, or all. Values may be
//! nested to any depth; there is no recursion.
//!
//! Names that are not Unicode text (lone surrogate escapes) are skipped like any other unknown
//! name. Of duplicate names the last wins, as in JavaScript and most parsers.

use std::fmt;

use bytes::Bytes;
use serde::{
    Deserializer, Serialize,
    de::{MapAccess, Visitor},
};
use serde_json::value::RawValue;

/// The JSON text of something that is made of texts, numbers, lists and maps by text only, which
/// always serialize.
#[expect(clippy::expect_used, reason = "the callers' types always serialize")]
pub fn text_of(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("texts, numbers, lists and maps always serialize")
}

/// Finds the wanted members of the object in `text`, each as its own JSON text; `None` if `text` is
/// not an object.
pub fn find<'a, const N: usize>(
    text: &'a str,
    wanted: [&str; N],
) -> Option<[Option<&'a RawValue>; N]> {
    let mut found = [None; N];
    each(text, |name, value| {
        if let Some(index) = wanted.iter().position(|wanted| wanted.as_bytes() == name) {
            found[index] = Some(value);
        }
    })?;
    Some(found)
}

/// Maximum names in a pointer that somebody writes: for each, a part of the text is read once more.
const MAX_NAMES: usize = 8;

/// Whether a text is a JSON pointer (RFC 6901) of at most eight names, and not to the whole.
pub fn is_pointer(text: &str) -> bool {
    text.starts_with('/') && text.matches('/').count() <= MAX_NAMES
}

/// The text at a JSON pointer (RFC 6901) of JSON text; `None` if nothing is there. The rest is
/// looked at and not stored, so it may have any number of values.
pub fn at<'a>(text: &'a str, pointer: &str) -> Option<&'a str> {
    pointer
        .split('/')
        .skip(1)
        .try_fold(text.trim(), |whole, step| {
            let step = step.replace("~1", "/").replace("~0", "~");
            match whole.as_bytes().first()? {
                b'{' => find(whole, [&step])?[0].map(RawValue::get),
                b'[' => {
                    // Digits alone, and no zero before others.
                    let at = step.parse::<usize>().ok();
                    let at = at.filter(|at| at.to_string() == step)?;
                    let items: Vec<&RawValue> = serde_json::from_str(whole).ok()?;
                    items.get(at).copied().map(RawValue::get)
                }
                _ => None,
            }
        })
}

/// A member: its name (`None` if that is not Unicode text) and its value as JSON text.
pub type Member<'a> = (Option<String>, &'a RawValue);

/// All members of the object in `text`, in order and with repeated names; `None` if `text` is not
/// an object.
pub fn all(text: &str) -> Option<Vec<Member<'_>>> {
    let mut all = Vec::new();
    each(text, |name, value| {
        all.push((String::from_utf8(name.into()).ok(), value));
    })?;
    Some(all)
}

/// Takes each member of the object in `text`; `None` if `text` is not an object.
fn each<'a>(text: &'a str, take: impl FnMut(Bytes, &'a RawValue)) -> Option<()> {
    let mut json = serde_json::Deserializer::from_str(text);
    json.deserialize_map(EachMember(take)).ok()?;
    json.end().ok()
}

struct EachMember<F>(F);

impl<'a, F: FnMut(Bytes, &'a RawValue)> Visitor<'a> for EachMember<F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<M: MapAccess<'a>>(mut self, mut members: M) -> Result<(), M::Error> {
        // A name is bytes, because it may hold lone surrogates.
        while let Some((name, value)) = members.next_entry::<Bytes, _>()? {
            (self.0)(name, value);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_members_are_given_in_order() {
        let names = |text| {
            let told = all(text)?.into_iter();
            Some(Vec::from_iter(
                told.map(|(name, value)| (name, value.get())),
            ))
        };
        let a = || Some("a".to_owned());
        let expected = vec![(a(), "1"), (None, "[{}]"), (a(), r#""x""#)];
        assert_eq!(names(r#"{"a":1,"\ud800":[{}],"a":"x"}"#), Some(expected));
        assert_eq!(names("{}"), Some(vec![]));
        assert_eq!(names("[]"), None);
        let deep = format!(r#"{{"a":{}{}}}"#, "[".repeat(30_000), "]".repeat(30_000));
        assert_eq!(names(&deep).unwrap().len(), 1);
    }

    fn find_a(text: &str) -> Option<Option<&str>> {
        find(text, ["a"]).map(|[a]| a.map(RawValue::get))
    }

    #[test]
    fn wanted_members_are_found_whatever_is_around_them() {
        let deep = format!(
            r#"{{"x":{}{},"a":1}}"#,
            "[".repeat(30_000),
            "]".repeat(30_000)
        );
        for (text, found) in [
            (&*deep, Some("1")),
            (r#"{"\ud800":1,"a":2}"#, Some("2")),
            (r#"{"a":1,"a":"last"}"#, Some(r#""last""#)),
            (r#"{"\u0061":1}"#, Some("1")),
            (r#"{"a":{"deep":[1,2]}}"#, Some(r#"{"deep":[1,2]}"#)),
            (r#"{"a":1e400}"#, Some("1e400")),
            ("{}", None),
        ] {
            assert_eq!(find_a(text), Some(found), "{text}");
        }
        for text in ["[]", "1", "null", r#""a""#, "", "{", "{} 1"] {
            assert_eq!(find_a(text), None, "{text}");
        }
    }
}
