//! Times, as people give them.

use jiff::{SignedDuration, Timestamp, civil::Date, tz::TimeZone};

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

/// A number of seconds, minutes, hours or days, such as `90m`.
#[must_use]
pub fn span(text: &str) -> Option<SignedDuration> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return None,
    };
    let number: u32 = number.parse().ok()?;
    Some(SignedDuration::from_secs(i64::from(number) * seconds))
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
            ("1", None),
            ("-1h", None),
            ("soon", None),
        ] {
            let expected = expected.map(|time| time.parse().unwrap());
            assert_eq!(at(text, now), expected, "{text}");
        }
    }
}
