//! Times, as people read them.

use jiff::{SignedDuration, Timestamp, civil::Date, tz::TimeZone};

/// A time in its largest two units.
pub(crate) fn age(seconds: f64) -> String {
    let seconds = seconds.max(0.0) as u64;
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{} h {} min", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

/// How long ago a time is.
pub(crate) fn since(time: Timestamp) -> String {
    age(between(time, Timestamp::now()))
}

/// The seconds from one time to another.
pub(crate) fn between(from: Timestamp, to: Timestamp) -> f64 {
    to.duration_since(from).as_secs_f64()
}

/// A time to the second, in UTC.
pub(crate) fn to_second(time: Timestamp) -> String {
    time.strftime("%Y-%m-%d %H:%M:%S UTC").to_string()
}

/// A moment as people give it: `2026-01-31T08:00:00Z`, a date (its beginning in UTC), `yesterday`
/// or `today` (the same), or how long ago, such as `90m`, `1h` or `7d`.
pub(crate) fn moment(text: &str) -> Result<Timestamp, String> {
    at(text, Timestamp::now()).ok_or_else(|| {
        "must be a time such as 2026-01-31T08:00:00Z, a date, 'yesterday', 'today', or how long \
         ago, such as 90m, 1h or 7d"
            .to_owned()
    })
}

fn at(text: &str, now: Timestamp) -> Option<Timestamp> {
    let date = |date: Date| Some(date.to_zoned(TimeZone::UTC).ok()?.timestamp());
    let today = now.to_zoned(TimeZone::UTC).date();
    match text {
        "today" => return date(today),
        "yesterday" => return date(today.yesterday().ok()?),
        _ => {}
    }
    let units = [('s', 1), ('m', 60), ('h', 3_600), ('d', 86_400)];
    for (unit, seconds) in units {
        if let Some(number) = text
            .strip_suffix(unit)
            .and_then(|text| text.parse::<u32>().ok())
        {
            let ago = SignedDuration::from_secs(i64::from(number) * seconds);
            return now.checked_sub(ago).ok();
        }
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

    #[test]
    fn an_age_is_short() {
        for (seconds, shown) in [
            (0.4, "0 s"),
            (61.0, "1 min 1 s"),
            (7_260.0, "2 h 1 min"),
            (90_000.0, "1 d 1 h"),
            (-3.0, "0 s"),
        ] {
            assert_eq!(age(seconds), shown);
        }
        assert_eq!(to_second(Timestamp::UNIX_EPOCH), "1970-01-01 00:00:00 UTC");
    }
}
