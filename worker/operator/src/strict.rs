//! JSON without two members of one name: readers differ in which of them they take.

use std::collections::BTreeSet;

use letterbox_common::json_object;
use serde_json::{Value, value::RawValue};

/// The name of a member whose text serde_json reads as JSON once more.
const RAW_VALUE: &str = "$serde_json::private::RawValue";

/// Reads a JSON text. An error says what is wrong with it.
pub(crate) fn strict_json(text: &str) -> Result<Value, String> {
    // How deep it is, is checked by this.
    let value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    match refused(text) {
        Some(name) if name == RAW_VALUE => Err(format!("no member may be called {name:?}")),
        Some(name) => Err(format!("the member {name:?} is there twice")),
        None => Ok(value),
    }
}

/// The name of a member that is there twice, or must not be, at any depth.
fn refused(json: &str) -> Option<String> {
    if let Some(members) = json_object::all(json) {
        let mut names = BTreeSet::new();
        return members.into_iter().find_map(|(name, value)| {
            let is_fine = names.insert(name.clone()) && name.as_deref() != Some(RAW_VALUE);
            name.filter(|_| !is_fine).or_else(|| refused(value.get()))
        });
    }
    let items: Vec<&RawValue> = serde_json::from_str(json).ok()?;
    items.into_iter().find_map(|item| refused(item.get()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_member_is_there_twice() {
        let text = r#"{"a": [{"b": 1}, {"b": [2.5, "x", null, true]}], "b": {}}"#;
        let value: Value = serde_json::from_str(text).unwrap();
        assert_eq!(strict_json(text), Ok(value));
        for twice in [
            r#"{"a": 1, "a": 1}"#,
            r#"[1, {"b": [{"a": {}, "\u0061": 2}]}]"#,
        ] {
            let told = Err("the member \"a\" is there twice".to_owned());
            assert_eq!(strict_json(twice), told, "{twice}");
        }
        let hidden = format!(r#"{{"{RAW_VALUE}": "{{\"a\": 1, \"a\": 2}}"}}"#);
        assert!(strict_json(&hidden).is_err());
        assert!(strict_json("{").is_err());
    }
}
