//! Times, as people give them.

use jiff::{SignedDuration, Span, SpanRelativeTo, Timestamp, civil::Date, tz::TimeZone};

/// A moment as people give it: `2026-01-31T08:00:00Z`, a date (its beginning in UTC), `yesterday`
/// or `today` (the same), or how long ago, such as `90m`, `1h` or `7d`.
///
/// # Errors
/// Says what would be one.
pub fn moment(text: &str) -> Result<Timestamp, &'static str> {
    at(text, Timestamp::now()).ok_or(
        "must be a time such as 2026-01-31T08:00:00Z, a date, 'yesterday', 'today', or how long \
         ago, such as 90m, 1h or 7d",
    )
}

/// A time such as `90m`, `1h 30m` or `7d`.
pub fn span(text: &str) -> Option<SignedDuration> {
    // A time of day is none.
    let span: Span = text.parse().ok().filter(|_| !text.contains(':'))?;
    let span = span.to_duration(SpanRelativeTo::days_are_24_hours()).ok()?;
    Some(span).filter(|span| !span.is_negative())
}

fn at(text: &str, now: Timestamp) -> Option<Timestamp> {
    let date = |date: Date| Some(date.to_zoned(TimeZone::UTC).ok()?.timestamp());
    let today = now.to_zoned(TimeZone::UTC).date();
    match text {
        "today" => return date(today),
        "yesterday" => return date(today.yesterday().ok()?),
        _ => {}
    }
    if let Some(ago) = span(text) {
        return now.checked_sub(ago).ok();
    }
    let whole_date = || text.parse::<Date>().ok().filter(|_| text.len() == 10);
    text.parse().ok().or_else(|| date(whole_date()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_given_as_people_do() {
        let now: Timestamp = "2026-03-01T12:00:00Z".parse().unwrap();
        for (text, expected) in [
            ("2026-01-31T08:00:00Z", Some("2026-01-31T08:00:00Z")),
            ("2026-01-31", Some("2026-01-31T00:00:00Z")),
            ("today", Some("2026-03-01T00:00:00Z")),
            ("yesterday", Some("2026-02-28T00:00:00Z")),
            ("90m", Some("2026-03-01T10:30:00Z")),
            ("7d", Some("2026-02-22T12:00:00Z")),
            ("1h 30m", Some("2026-03-01T10:30:00Z")),
            ("08:00:00", None),
            ("1", None),
            ("-1h", None),
            ("soon", None),
        ] {
            let expected = expected.map(|time| time.parse().unwrap());
            assert_eq!(at(text, now), expected, "{text}");
        }
    }
}
