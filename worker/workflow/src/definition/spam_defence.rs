//! The defence of a form against programs that fill it in.

use serde_json::Value;

use crate::diagnostics::Diagnostics;

/// Seconds that nobody needs less than to fill in a form.
const USUAL_SECONDS: i16 = 2;
const MOST_SECONDS: i16 = 60;

/// Checks `spam_defence`. Gives the seconds that filling in the form takes at least; None where
/// the form has no defence.
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
