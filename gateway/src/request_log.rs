//! The log of refused requests: one line for each, up to a number per second, because anyone can
//! send requests that are refused, and logs take space.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tracing::Level;

/// Maximum lines in a second.
const MAX_LINES: u32 = 100;
const SECOND: Duration = Duration::from_secs(1);

/// Writes refusals to the log.
pub(crate) struct RequestLog {
    refused: Mutex<Second>,
    /// Server errors, counted apart so that a flood of refusals can't hide them.
    failed: Mutex<Second>,
}

/// The lines of one second.
struct Second {
    began: Instant,
    lines: u32,
    left_out: u64,
}

impl RequestLog {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            refused: Mutex::new(Second::beginning(now)),
            failed: Mutex::new(Second::beginning(now)),
        }
    }

    /// Writes a line about a refused request, unless there were too many. At the level `debug` all
    /// are written.
    pub(crate) fn refused(&self, now: Instant, route: &str, status: u16, request_id: &str) {
        if tracing::enabled!(Level::DEBUG) || self.has_room(now, status) {
            tracing::info!(route, status, request_id, "refused");
        }
    }

    fn has_room(&self, now: Instant, status: u16) -> bool {
        let seconds = match status {
            500.. => &self.failed,
            _ => &self.refused,
        };
        let mut second = seconds.lock();
        if now.saturating_duration_since(second.began) >= SECOND {
            let left_out = second.left_out;
            if left_out > 0 {
                tracing::info!(left_out, "more was refused than is logged");
            }
            *second = Second::beginning(now);
        }
        let has_room = second.lines < MAX_LINES;
        match has_room {
            true => second.lines += 1,
            false => second.left_out += 1,
        }
        has_room
    }
}

impl Second {
    fn beginning(now: Instant) -> Self {
        Self {
            began: now,
            lines: 0,
            left_out: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_second_has_room_for_a_hundred() {
        let began = Instant::now();
        let log = RequestLog::new(began);
        let lines = |now| (0..300).filter(|_| log.has_room(now, 404)).count();
        assert_eq!(lines(began), 100);
        assert_eq!(lines(began + SECOND / 2), 0);
        assert!(log.has_room(began, 503), "others do not hide a failure");
        assert_eq!(lines(began + SECOND), 100);
        assert_eq!(lines(began), 0, "a clock that was read earlier");
    }
}
