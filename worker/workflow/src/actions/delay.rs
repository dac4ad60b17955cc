//! `delay`: the run continues after a time. It occupies no worker meanwhile.

use std::time::Duration;

use jiff::{SignedDuration, Span, SpanRelativeTo};

use super::{ActionKind, Step};
use crate::diagnostics::Fields;

pub(super) const KIND: ActionKind = ActionKind {
    name: "delay",
    steering: None,
    sends: false,
    parse: |fields| Some(Step::Wait(parse(fields))),
};

const MAX_TEXT: usize = 100;
const MIN: SignedDuration = SignedDuration::from_secs(1);
const MAX: Duration = Duration::from_secs(366 * 24 * 3600);

fn parse(fields: &mut Fields<'_, '_>) -> Duration {
    let problem = "must be a duration of 1 second to 366 days, such as PT2H or P3D";
    duration(fields, "for", MAX, problem).unwrap_or_default()
}

/// Parses a member that is an ISO 8601 duration of a second up to `most`.
pub(super) fn duration(
    fields: &mut Fields<'_, '_>,
    name: &str,
    most: Duration,
    problem: &str,
) -> Option<Duration> {
    let parsed = iso_duration(&fields.text(name, MAX_TEXT)).filter(|parsed| *parsed <= most);
    if parsed.is_none() {
        fields.add(name, problem);
    }
    parsed
}

/// Parses an ISO 8601 duration of a second or more. A day has 24 hours, a week 7 days.
fn iso_duration(text: &str) -> Option<Duration> {
    if !text.starts_with('P') {
        return None;
    }
    let span: Span = text.parse().ok()?;
    let duration = span.to_duration(SpanRelativeTo::days_are_24_hours()).ok()?;
    (duration >= MIN).then(|| duration.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_those_of_iso_8601() {
        for (text, seconds) in [
            ("PT2H", Some(7_200)),
            ("PT1S", Some(1)),
            ("PT90M", Some(5_400)),
            ("P3D", Some(259_200)),
            ("P2W", Some(1_209_600)),
            ("P1DT12H", Some(129_600)),
            ("P366D", Some(31_622_400)),
            ("PT0S", None),
            ("P367D", None),
            ("-PT1H", None),
            ("P1M", None),
            ("P1Y", None),
            ("2h", None),
            ("2 hours", None),
            ("3600", None),
            ("", None),
        ] {
            let parsed = iso_duration(text).filter(|one| *one <= MAX);
            let parsed = parsed.map(|duration| duration.as_secs());
            assert_eq!(parsed, seconds, "{text}");
        }
    }
}
