//! The lookup ids by which an index finds submitted values. The same value in the same field of one
//! workspace always has the same id, and an id by itself reveals nothing.

use serde_json::Value;
use sha2::{Digest, Sha256};
use unicode_normalization::UnicodeNormalization;
use uuid::Uuid;

use super::ascii_address;
use crate::{ids::WorkspaceId, json_object};

/// Maximum characters of a text that can be found.
pub const MAX_LOOKUP_TEXT: usize = 200;

/// The ids of the values in a payload, the JSON text of an object. Long texts have none.
pub fn lookup_ids(workspace: WorkspaceId, payload: &str) -> Vec<Uuid> {
    let members = json_object::all(payload).unwrap_or_default();
    let ids = members.into_iter().filter_map(|(key, value)| {
        let value = match serde_json::from_str(value.get()).ok()? {
            Value::String(text) if text.chars().count() > MAX_LOOKUP_TEXT => return None,
            Value::String(text) => LookupKind::Text(text),
            Value::Number(number) => LookupKind::Number(number.as_f64()?),
            Value::Bool(ticked) => LookupKind::Ticked(ticked),
            Value::Null | Value::Array(_) | Value::Object(_) => return None,
        };
        Some(value.id(workspace, &key?))
    });
    ids.collect()
}

/// The ids of every value that `text` may mean in a field: a text, a number, or `true` or `false`
/// for a checkbox.
pub fn meant_ids(workspace: WorkspaceId, key: &str, text: &str) -> Vec<Uuid> {
    let kinds = [
        Some(LookupKind::Text(text.to_owned())),
        text.parse().ok().map(LookupKind::Number),
        text.parse().ok().map(LookupKind::Ticked),
    ];
    let kinds = kinds.into_iter().flatten();
    kinds.map(|kind| kind.id(workspace, key)).collect()
}

/// The ids of what a person may have written so in a field to say who they are: a text, or a number
/// that is long enough to be theirs.
pub fn personal_ids(workspace: WorkspaceId, key: &str, text: &str) -> Vec<Uuid> {
    let is_long = text.bytes().filter(u8::is_ascii_digit).count() >= 5;
    let number = text.parse().ok().filter(|_| is_long);
    let kinds = [
        Some(LookupKind::Text(text.to_owned())),
        number.map(LookupKind::Number),
    ];
    let kinds = kinds.into_iter().flatten();
    kinds.map(|kind| kind.id(workspace, key)).collect()
}

enum LookupKind {
    Text(String),
    Number(f64),
    Ticked(bool),
}

impl LookupKind {
    fn id(&self, workspace: WorkspaceId, key: &str) -> Uuid {
        let (kind, value) = match self {
            Self::Text(text) => ("text", folded(text).into_bytes()),
            // Turns -0 into 0.
            Self::Number(number) => ("number", (number + 0.0).to_be_bytes().to_vec()),
            Self::Ticked(ticked) => ("ticked", vec![u8::from(*ticked)]),
        };
        let workspace = &workspace.as_bytes()[..];
        let parts = [workspace, key.as_bytes(), kind.as_bytes(), &value];
        let hash = Sha256::digest(parts.join(&0));
        Uuid::from_bytes(std::array::from_fn(|at| hash[at]))
    }
}

/// A text as people mean it: its case, its composition and the spaces around it don't matter, nor
/// in which letters the domain of an address is written.
fn folded(text: &str) -> String {
    let composed: String = ascii_address(text.trim()).nfkc().collect();
    composed.to_lowercase().nfc().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_submitted_is_found_by_what_a_person_writes() {
        let one = WorkspaceId::generate();
        let other = WorkspaceId::generate();
        let payload = r#"{"email": "ada@example.com", "seats": 7.0, "news": true, "note": "7",
            "name": "zoë"}"#;
        let ids = lookup_ids(one, payload);
        assert_eq!(ids.len(), 5);
        let finds = |workspace, key, text| {
            let meant = meant_ids(workspace, key, text);
            meant.iter().any(|id| ids.contains(id))
        };
        for (key, text) in [
            ("email", "ada@example.com"),
            ("email", " ADA@Example.com"),
            ("name", "Zoe\u{308}"),
            ("seats", "7"),
            ("seats", "7.00"),
            ("seats", "70e-1"),
            ("news", "true"),
            ("note", "7"),
        ] {
            assert!(finds(one, key, text), "{key} {text}");
            assert!(!finds(other, key, text), "{key} {text}");
        }
        for (key, text) in [
            ("email", "ada"),
            ("seats", "8"),
            ("news", "false"),
            ("note", "7.0"),
            ("nothing", "7"),
        ] {
            assert!(!finds(one, key, text), "{key} {text}");
        }
    }

    #[test]
    fn what_is_long_or_no_object_is_not_found() {
        let workspace = WorkspaceId::generate();
        let long = serde_json::json!({"a": "x".repeat(201), "b": ["x"], "c": null}).to_string();
        for payload in [long.as_str(), "[]", "", "\u{0}"] {
            assert!(lookup_ids(workspace, payload).is_empty());
        }
    }
}
