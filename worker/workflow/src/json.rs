//! Strict parsing of JSON from outside: it must be UTF-8 as a whole.

use serde_json::Value;

/// Parses JSON text. `None` if it isn't valid.
pub(crate) fn parse(bytes: &[u8]) -> Option<Value> {
    serde_json::from_str(std::str::from_utf8(bytes).ok()?).ok()
}
