//! JSON that came from outside, as it should be: UTF-8, all of it.

use serde_json::Value;

/// Parses JSON text; none where it is not.
pub(crate) fn parse(bytes: &[u8]) -> Option<Value> {
    serde_json::from_str(std::str::from_utf8(bytes).ok()?).ok()
}
