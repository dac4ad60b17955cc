//! Extracts members of an untrusted JSON object: those that are wanted, or all. Values may be
//! nested to any depth; there is no recursion.
//!
//! Names that are not Unicode text (lone surrogate escapes) are skipped like any other unknown
//! name. Of duplicate names the last wins, as in JavaScript and most parsers.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, Error, IgnoredAny, MapAccess, Visitor},
};
use serde_json::value::RawValue;

/// Finds the wanted members of the object in `text`, each as its own JSON text; `None` if `text` is
/// not an object.
#[must_use]
pub fn find<'a, const N: usize>(
    text: &'a str,
    wanted: [&str; N],
) -> Option<[Option<&'a RawValue>; N]> {
    let mut json = serde_json::Deserializer::from_str(text);
    let found = WantedMembers(wanted).deserialize(&mut json).ok()?;
    json.end().is_ok().then_some(found)
}

/// Maximum names in a pointer that somebody writes: for each, a part of the text is read once more.
const MAX_NAMES: usize = 8;

/// Whether a text is a JSON pointer (RFC 6901) of at most eight names, and not to the whole.
#[must_use]
pub fn is_pointer(text: &str) -> bool {
    text.starts_with('/') && text.matches('/').count() <= MAX_NAMES
}

/// The text at a JSON pointer (RFC 6901) of JSON text; `None` if nothing is there. The rest is
/// looked at and not stored, so it may have any number of values.
#[must_use]
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
#[must_use]
pub fn all(text: &str) -> Option<Vec<Member<'_>>> {
    let mut json = serde_json::Deserializer::from_str(text);
    let members = json.deserialize_map(All).ok()?;
    json.end().is_ok().then_some(members)
}

struct All;

impl<'a> Visitor<'a> for All {
    type Value = Vec<Member<'a>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<M: MapAccess<'a>>(self, mut members: M) -> Result<Self::Value, M::Error> {
        let mut all = Vec::new();
        while let Some((Name(name), value)) = members.next_entry()? {
            all.push((String::from_utf8(name).ok(), value));
        }
        Ok(all)
    }
}

struct WantedMembers<'n, const N: usize>([&'n str; N]);

impl<'a, const N: usize> DeserializeSeed<'a> for WantedMembers<'_, N> {
    type Value = [Option<&'a RawValue>; N];
    fn deserialize<D: Deserializer<'a>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_map(self)
    }
}

impl<'a, const N: usize> Visitor<'a> for WantedMembers<'_, N> {
    type Value = [Option<&'a RawValue>; N];

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<M: MapAccess<'a>>(self, mut members: M) -> Result<Self::Value, M::Error> {
        let mut found = [None; N];
        while let Some(Name(name)) = members.next_key()? {
            match self.0.iter().position(|wanted| wanted.as_bytes() == name) {
                Some(index) => found[index] = Some(members.next_value()?),
                None => drop(members.next_value::<IgnoredAny>()?),
            }
        }
        Ok(found)
    }
}

/// The name of a member, as bytes because it may hold lone surrogates.
struct Name(Vec<u8>);

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        struct Bytes;
        impl Visitor<'_> for Bytes {
            type Value = Name;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name")
            }
            fn visit_bytes<E: Error>(self, name: &[u8]) -> Result<Name, E> {
                Ok(Name(name.to_vec()))
            }
            fn visit_str<E: Error>(self, name: &str) -> Result<Name, E> {
                Ok(Name(name.as_bytes().to_vec()))
            }
        }
        json.deserialize_bytes(Bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_members_are_given_in_order() {
        let names = |text| {
            all(text).map(|all| {
                all.into_iter()
                    .map(|(name, value)| (name, value.get()))
                    .collect::<Vec<_>>()
            })
        };
        let a = || Some("a".to_owned());
        assert_eq!(
            names(r#"{"a":1,"\ud800":[{}],"a":"x"}"#),
            Some(vec![(a(), "1"), (None, "[{}]"), (a(), r#""x""#)])
        );
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
        assert_eq!(find_a(&deep), Some(Some("1")));
        assert_eq!(find_a(r#"{"\ud800":1,"a":2}"#), Some(Some("2")));
        assert_eq!(find_a(r#"{"a":1,"a":"last"}"#), Some(Some(r#""last""#)));
        assert_eq!(find_a(r#"{"\u0061":1}"#), Some(Some("1")));
        assert_eq!(
            find_a(r#"{"a":{"deep":[1,2]}}"#),
            Some(Some(r#"{"deep":[1,2]}"#))
        );
        assert_eq!(find_a(r#"{"a":1e400}"#), Some(Some("1e400")));
        assert_eq!(find_a("{}"), Some(None));
        for text in ["[]", "1", "null", r#""a""#, "", "{", "{} 1"] {
            assert_eq!(find_a(text), None, "{text}");
        }
    }
}
