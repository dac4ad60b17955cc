//! The spam defence of a form.

use serde_json::Value;

use crate::diagnostics::Diagnostics;

/// The default minimum: no person fills in a form faster.
const USUAL_SECONDS: i16 = 2;
const MOST_SECONDS: i16 = 60;

/// Checks `spam_defence`. Returns the minimum seconds to fill in the form; `None` if the form has
/// no defence.
pub(super) fn check(diagnostics: &mut Diagnostics, value: Option<&Value>) -> Option<i16> {
    let members = diagnostics.object(value?, "spam_defence")?;
    diagnostics.only(members, "spam_defence", &["least_seconds"]);
    let Some(given) = members.get("least_seconds") else {
        return Some(USUAL_SECONDS);
    };
    let seconds = given
        .as_i64()
        .and_then(|seconds| i16::try_from(seconds).ok());
    let seconds = seconds.filter(|seconds| (0..=MOST_SECONDS).contains(seconds));
    if seconds.is_none() {
        diagnostics.add(
            "spam_defence.least_seconds",
            format_args!("must be a whole number from 0 to {MOST_SECONDS}"),
        );
    }
    seconds
}
