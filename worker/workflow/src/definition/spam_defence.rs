//! The spam defence of a form.

use serde_json::Value;

use crate::diagnostics::Diagnostics;

/// The default minimum: no person fills in a form faster.
const USUAL_SECONDS: i16 = 2;
const MOST_SECONDS: i16 = 60;
/// The one member.
const LEAST: &str = "least_seconds";

/// Checks `spam_defence`. Returns the minimum seconds to fill in the form; `None` if the form has
/// no defence.
pub(super) fn check(diagnostics: &mut Diagnostics, value: Option<&Value>) -> Option<i16> {
    let mut members = diagnostics.fields(value?, "spam_defence")?;
    let given = members.get(LEAST);
    members.refuse_others();
    let Some(given) = given else {
        return Some(USUAL_SECONDS);
    };
    let seconds = given.as_i64().and_then(|given| i16::try_from(given).ok());
    let seconds = seconds.filter(|seconds| (0..=MOST_SECONDS).contains(seconds));
    if seconds.is_none() {
        let problem = format_args!("must be a whole number from 0 to {MOST_SECONDS}");
        members.add(LEAST, problem);
    }
    seconds
}
