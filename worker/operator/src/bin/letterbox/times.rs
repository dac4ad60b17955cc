//! Times, as people read them.

use jiff::Timestamp;

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

#[cfg(test)]
mod tests {
    use super::*;

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
