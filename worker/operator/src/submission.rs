//! Submitted values, digit for digit: a number is shown as it came, not as a double.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, value::RawValue};

use crate::lossy;

/// A submission as JSON text: values by the keys of their fields.
#[derive(Debug, Clone, Serialize)]
#[serde(transparent)]
pub struct Submission(Box<RawValue>);

impl Submission {
    /// A submission as it is stored, unless it is null; what is not JSON becomes a JSON string.
    pub fn stored(input: Option<&[u8]>) -> Option<Self> {
        let text = lossy(input?);
        let quoted = |text: &str| RawValue::from_string(Value::from(text).to_string());
        let raw = RawValue::from_string(text.clone()).or_else(|_| quoted(&text));
        raw.ok().map(Self)
    }

    /// Its values by their keys, as people read them; `None` if it is no object.
    pub fn members(&self) -> Option<BTreeMap<String, String>> {
        let members: BTreeMap<String, Box<RawValue>> = serde_json::from_str(self.0.get()).ok()?;
        let members = members.into_iter().map(|(key, value)| {
            let text = serde_json::from_str::<String>(value.get());
            (key, text.unwrap_or_else(|_| value.get().to_owned()))
        });
        Some(members.collect())
    }

    /// Its values for a program that does not need every digit.
    pub fn value(&self) -> Value {
        crate::json(self.0.get())
    }
}
