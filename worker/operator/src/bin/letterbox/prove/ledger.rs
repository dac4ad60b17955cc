//! What was acknowledged beside what came out, in the words of RabbitMQ's own suite.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::{Faults, sending::Sent};

/// The names of the events of one run: `prove-`, eight random letters or digits, `-`, a number.
#[derive(Debug, Clone)]
pub(super) struct Numbers {
    prefix: String,
}

impl Numbers {
    pub(super) fn new() -> Self {
        let id = letterbox_common::ids::DeliveryId::generate().to_string();
        // Its end is random.
        Self {
            prefix: format!("prove-{}-", &id[id.len() - 8..]),
        }
    }

    pub(super) fn name(&self, number: u64) -> String {
        format!("{}{number}", self.prefix)
    }

    /// The numbers of the events that a text names, each once.
    pub(super) fn found_in(&self, text: &str) -> BTreeSet<u64> {
        let after = text.split(&self.prefix).skip(1);
        let numbers = after.filter_map(|rest| {
            let end = rest.find(|c: char| !c.is_ascii_digit());
            rest[..end.unwrap_or(rest.len())].parse().ok()
        });
        numbers.collect()
    }
}

/// What has become of everything.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Ledger {
    /// Events that were sent.
    attempts: u64,
    /// Of them, those that were answered with a status of 2xx.
    acknowledged: u64,
    /// Acknowledged, and came out once.
    ok: u64,
    /// Acknowledged, and did not come out.
    lost: u64,
    /// Came out more than once.
    doubled: u64,
    /// Came out, and were never sent.
    unexpected: u64,
    /// Not acknowledged, and came out once all the same.
    recovered: u64,
    /// Came out after one that was sent later.
    reordered: u64,
    requests: u64,
    longest_silence_milliseconds: u64,
    faults: u64,
    failed_faults: u64,
}

impl Ledger {
    pub(super) fn of(sent: &Sent, arrivals: &[u64], faults: &Faults) -> Self {
        let silence = u64::try_from(sent.silence.as_millis()).unwrap_or(u64::MAX);
        let mut ledger = Self {
            requests: sent.requests,
            longest_silence_milliseconds: silence,
            faults: faults.done,
            failed_faults: faults.failed,
            ..Self::default()
        };
        let (mut times, mut latest) = (BTreeMap::<u64, u64>::new(), 0);
        for number in arrivals {
            let times = times.entry(*number).or_default();
            *times += 1;
            ledger.reordered += u64::from(*times == 1 && *number < latest);
            latest = latest.max(*number);
        }
        for (number, is_acknowledged) in &sent.events {
            ledger.attempts += 1;
            ledger.acknowledged += u64::from(*is_acknowledged);
            match (is_acknowledged, times.remove(number).unwrap_or(0)) {
                (true, 0) => ledger.lost += 1,
                (true, 1) => ledger.ok += 1,
                (false, 0) => {}
                (false, 1) => ledger.recovered += 1,
                (_, _) => ledger.doubled += 1,
            }
        }
        ledger.unexpected = times.len() as u64;
        ledger
    }

    /// Whether something was acknowledged, and nothing lost or doubled.
    pub(super) fn is_good(&self) -> bool {
        self.acknowledged > 0 && self.lost + self.doubled + self.unexpected == 0
    }

    pub(super) fn text(&self) -> String {
        let rows = [
            ("attempts", self.attempts, ""),
            ("acknowledged", self.acknowledged, ""),
            ("ok", self.ok, "acknowledged, and came out once"),
            ("lost", self.lost, "acknowledged, and did not come out"),
            ("doubled", self.doubled, "came out more than once"),
            ("unexpected", self.unexpected, "came out, and were not sent"),
            (
                "recovered",
                self.recovered,
                "not acknowledged, and came out",
            ),
            ("reordered", self.reordered, "came out after a later one"),
            ("requests", self.requests, ""),
            (
                "longest silence",
                self.longest_silence_milliseconds,
                "ms without an acknowledgement",
            ),
            ("faults", self.faults, "calls of the command that does harm"),
            (
                "failed faults",
                self.failed_faults,
                "calls of it that failed",
            ),
        ];
        let lines = rows.map(|(name, count, what)| {
            format!("{name:<16}{count:>10}  {what}")
                .trim_end()
                .to_owned()
        });
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_in_whatever_comes_out() {
        let numbers = Numbers::new();
        let (seven, twelve) = (numbers.name(7), numbers.name(12));
        let text = format!(r#"[{{"id":"{twelve}"}}, "{seven}x", "{seven}", "prove-other-3"]"#);
        assert_eq!(numbers.found_in(&text), BTreeSet::from([7, 12]));
    }

    #[test]
    fn what_is_lost_doubled_or_late_is_counted() {
        let events = [
            (1, true),
            (2, true),
            (3, false),
            (4, true),
            (5, false),
            (6, true),
        ];
        let sent = Sent {
            events: events.into(),
            ..Sent::default()
        };
        let ledger = Ledger::of(&sent, &[2, 1, 3, 4, 4, 9], &Faults::default());
        let expected = Ledger {
            attempts: 6,
            acknowledged: 4,
            ok: 2,
            lost: 1,
            doubled: 1,
            unexpected: 1,
            recovered: 1,
            reordered: 1,
            ..Ledger::default()
        };
        assert_eq!(ledger, expected);
        assert!(!ledger.is_good());
    }
}
