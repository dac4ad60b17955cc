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
    match repeated(text) {
        Some(name) => Err(format!("the member {name:?} is there twice")),
        None => Ok(value),
    }
}

/// The name of a member that is there twice, at any depth.
fn repeated(json: &str) -> Option<String> {
    if let Some(members) = json_object::all(json) {
        let mut names = BTreeSet::new();
        return members.into_iter().find_map(|(name, value)| {
            // Of which serde_json makes something else than what is written.
            let is_new = names.insert(name.clone()) && name.as_deref() != Some(RAW_VALUE);
            name.filter(|_| !is_new).or_else(|| repeated(value.get()))
        });
    }
    let items: Vec<&RawValue> = serde_json::from_str(json).ok()?;
    items.into_iter().find_map(|item| repeated(item.get()))
}
