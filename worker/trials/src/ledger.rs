//! Compares acknowledged events with those that came out, in the terms of RabbitMQ's own suite.

use std::{collections::HashMap, hash::Hash, ops::AddAssign};

use serde::Serialize;

/// What became of what was sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Things that were sent.
    pub attempts: u64,
    /// Of them, those that were accepted.
    pub acknowledged: u64,
    /// Acknowledged, and came out once.
    pub ok: u64,
    /// Acknowledged, and did not come out.
    pub lost: u64,
    /// Came out more than once.
    pub doubled: u64,
    /// Came out, and were never sent.
    pub unexpected: u64,
    /// Not acknowledged, and came out once all the same: the sender was told to try again.
    pub recovered: u64,
}

impl Counts {
    /// Compares what was sent, and whether it was acknowledged, with how often each came out.
    pub fn of<'a, N: Eq + Hash + 'a>(
        sent: impl IntoIterator<Item = (&'a N, &'a bool)>,
        times: &HashMap<N, u64>,
    ) -> Self {
        let mut counts = Self::default();
        let mut expected = 0;
        for (name, is_acknowledged) in sent {
            let times = times.get(name).copied();
            expected += times.map_or(0, |_| 1);
            counts.attempts += 1;
            counts.acknowledged += u64::from(*is_acknowledged);
            match (is_acknowledged, times.unwrap_or(0)) {
                (true, 0) => counts.lost += 1,
                (true, 1) => counts.ok += 1,
                (false, 0) => {}
                (false, 1) => counts.recovered += 1,
                (_, _) => counts.doubled += 1,
            }
        }
        counts.unexpected = (times.len() - expected) as u64;
        counts
    }

    /// Whether something was acknowledged, and nothing is lost, doubled or unexpected.
    pub fn is_good(&self) -> bool {
        self.acknowledged > 0 && self.lost + self.doubled + self.unexpected == 0
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.attempts += other.attempts;
        self.acknowledged += other.acknowledged;
        self.ok += other.ok;
        self.lost += other.lost;
        self.doubled += other.doubled;
        self.unexpected += other.unexpected;
        self.recovered += other.recovered;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lost_doubled_or_unexpected_is_counted() {
        let sent = [
            ("once", true),
            ("gone", true),
            ("twice", true),
            ("saved", false),
            ("refused", false),
            ("twice too", false),
        ];
        let times = [
            ("once", 1),
            ("twice", 2),
            ("saved", 1),
            ("twice too", 3),
            ("new", 1),
        ];
        let counts = Counts::of(&HashMap::from(sent), &HashMap::from(times));
        let expected = Counts {
            attempts: 6,
            acknowledged: 3,
            ok: 1,
            lost: 1,
            doubled: 2,
            unexpected: 1,
            recovered: 1,
        };
        assert_eq!(counts, expected);
        assert!(!counts.is_good());
    }
}
