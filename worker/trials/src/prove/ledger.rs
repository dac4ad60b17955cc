//! The ledger of a run of the prover: the counts, and what only its events can tell.

use std::collections::HashMap;

use serde::Serialize;

use super::{harm::HarmFaults, sending::Sent};
use crate::Counts;

/// The outcome of all events.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub struct Ledger {
    #[serde(flatten)]
    counts: Counts,
    /// Came out after one that was sent later.
    reordered: u64,
    requests: u64,
    longest_silence_milliseconds: u64,
    faults: u64,
    failed_faults: u64,
    /// Whether faults were asked for, and none was there.
    #[serde(skip)]
    is_unharmed: bool,
}

impl Ledger {
    pub(super) fn of(sent: &Sent, arrivals: &[u64], faults: &HarmFaults) -> Self {
        let (mut times, mut latest, mut reordered) = (HashMap::<u64, u64>::new(), 0, 0);
        for number in arrivals {
            let times = times.entry(*number).or_default();
            *times += 1;
            reordered += u64::from(*times == 1 && *number < latest);
            latest = latest.max(*number);
        }
        Self {
            counts: Counts::of(&sent.events, &times),
            reordered,
            requests: sent.requests,
            longest_silence_milliseconds: u64::try_from(sent.silence.as_millis())
                .unwrap_or(u64::MAX),
            faults: faults.done,
            failed_faults: faults.failed,
            is_unharmed: faults.are_wanted && faults.done == 0,
        }
    }

    /// Whether something was acknowledged, and nothing lost or doubled. A fault that did not happen
    /// shows nothing.
    pub fn is_good(&self) -> bool {
        self.counts.is_good() && !self.is_unharmed
    }

    /// A line for each number.
    pub fn text(&self) -> String {
        let all = &self.counts;
        let (silence, failed) = (self.longest_silence_milliseconds, self.failed_faults);
        let rows = [
            ("attempts", all.attempts, ""),
            ("acknowledged", all.acknowledged, ""),
            ("ok", all.ok, "acknowledged, and came out once"),
            ("lost", all.lost, "acknowledged, and did not come out"),
            ("doubled", all.doubled, "came out more than once"),
            ("unexpected", all.unexpected, "came out, and were not sent"),
            ("recovered", all.recovered, "not acknowledged, and came out"),
            ("reordered", self.reordered, "came out after a later one"),
            ("requests", self.requests, ""),
            ("longest silence", silence, "ms without an acknowledgement"),
            ("faults", self.faults, "calls of the command that does harm"),
            ("failed faults", failed, "calls of it that failed"),
        ];
        let lines = rows.map(|(name, count, what)| {
            let line = format!("{name:<16}{count:>10}  {what}");
            line.trim_end().to_owned()
        });
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_late_is_counted() {
        let sent = Sent {
            events: [1, 2, 3, 4].map(|number| (number, true)).into(),
            ..Sent::default()
        };
        let ledger = Ledger::of(&sent, &[2, 1, 3, 4, 4], &HarmFaults::default());
        assert_eq!((ledger.reordered, ledger.counts.doubled), (1, 1));
        assert!(!ledger.is_good());
    }
}
