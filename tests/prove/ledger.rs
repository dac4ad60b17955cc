//! The ledger: one line for each door and fault, and whether it is a good one.

use std::collections::HashMap;

use crate::{
    doors::{self, Door, Found},
    stack::Stack,
};

/// What was sent at one door, by the name that each thing carries, and whether it was accepted.
pub type Sent = HashMap<String, bool>;

/// What became of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub attempts: u64,
    pub acknowledged: u64,
    /// Acknowledged, and done once.
    pub ok: u64,
    /// Acknowledged, and not done.
    pub lost: u64,
    /// Done more than once.
    pub duplicated: u64,
    /// Done although it was never sent, or not allowed.
    pub unexpected: u64,
    /// Not acknowledged, and done once: the sender was told to try again.
    pub recovered: u64,
    /// Sent again under the key by which its receiver knows it.
    pub again: u64,
}

impl Counts {
    /// Compares what was sent with how often each thing was done.
    pub fn of(sent: &Sent, done: &HashMap<String, u64>) -> Self {
        let mut counts = Self::default();
        for (name, is_acknowledged) in sent {
            counts.attempts += 1;
            counts.acknowledged += u64::from(*is_acknowledged);
            match (is_acknowledged, done.get(name).copied().unwrap_or(0)) {
                (true, 0) => counts.lost += 1,
                (true, 1) => counts.ok += 1,
                (false, 0) => {}
                (false, 1) => counts.recovered += 1,
                (_, _) => counts.duplicated += 1,
            }
        }
        let unsent = done.keys().filter(|name| !sent.contains_key(*name));
        counts.unexpected = unsent.count() as u64;
        counts
    }

    fn add(&mut self, other: Self) {
        self.attempts += other.attempts;
        self.acknowledged += other.acknowledged;
        self.ok += other.ok;
        self.lost += other.lost;
        self.duplicated += other.duplicated;
        self.unexpected += other.unexpected;
        self.recovered += other.recovered;
        self.again += other.again;
    }

    /// Whether something was accepted, and nothing is lost, doubled or unexpected.
    pub fn is_good(&self) -> bool {
        self.acknowledged > 0 && self.lost + self.duplicated + self.unexpected == 0
    }

    fn cells(&self) -> String {
        let Self {
            attempts,
            acknowledged,
            ok,
            lost,
            duplicated,
            unexpected,
            recovered,
            again,
        } = self;
        format!(
            "{attempts:>8}{acknowledged:>8}{ok:>8}{lost:>6}{duplicated:>6}{unexpected:>7}\
             {recovered:>7}{again:>7}"
        )
    }
}

/// What one fault has come to.
#[derive(Debug, Clone, Default)]
pub struct Entry {
    pub fault: String,
    /// What the names of all that was sent begin with.
    pub prefix: String,
    pub sent: HashMap<Door, Sent>,
    pub counts: Vec<(Door, Counts)>,
    /// How often the fault happened, as far as it could be seen.
    pub fired: u64,
    /// The longest time in which nothing was accepted at any door.
    pub silence_ms: u128,
    /// What else is wrong.
    pub complaints: Vec<String>,
}

impl Entry {
    /// Whether everything is as it should be, and the fault was there.
    pub fn is_good(&self) -> bool {
        let is_good = self.counts.iter().all(|(_, counts)| counts.is_good());
        is_good && self.fired > 0 && self.complaints.is_empty()
    }

    /// All doors together.
    pub fn sum(&self) -> Counts {
        let mut sum = Counts::default();
        self.counts.iter().for_each(|(_, counts)| sum.add(*counts));
        sum
    }
}

/// All of them.
#[derive(Debug, Default)]
pub struct Ledger {
    entries: Vec<Entry>,
}

const WIDTH: usize = 44;

impl Ledger {
    pub fn print_head(&self) {
        println!(
            "  {:<WIDTH$}{:<13}attempts  acked      ok  lost  dupl unexp. recov.  again  fired  \
             silent ms",
            "fault", "door"
        );
    }

    /// Keeps an entry that is printed elsewhere.
    pub fn keep(&mut self, entry: Entry) {
        self.entries.push(entry);
    }

    /// Prints the lines of an entry, and keeps it.
    pub fn note(&mut self, entry: Entry) {
        let mark = if entry.is_good() { ' ' } else { '!' };
        for (at, (door, counts)) in entry.counts.iter().enumerate() {
            let fault = if at == 0 { entry.fault.as_str() } else { "" };
            let ends = match at {
                0 => format!("{:>7}{:>11}", entry.fired, entry.silence_ms),
                _ => String::new(),
            };
            println!(
                "{mark} {fault:<WIDTH$}{:<12}{}{ends}",
                door.name(),
                counts.cells()
            );
        }
        for complaint in &entry.complaints {
            println!("! {complaint}");
        }
        self.keep(entry);
    }

    /// Counts everything once more: something may have been done again long after its fault.
    /// Whether it could be counted.
    pub async fn count_again(&mut self, stack: &Stack) -> bool {
        let Some(found) = Found::of_all(stack).await else {
            println!("! nothing could be counted again");
            return false;
        };
        for entry in &mut self.entries {
            let counts = match found.get(&entry.prefix) {
                Some(found) => doors::count(found, &entry.sent),
                None => doors::count(&Found::default(), &entry.sent),
            };
            for ((door, before), (_, now)) in entry.counts.iter().zip(counts) {
                let same = Counts {
                    again: before.again,
                    ..now
                };
                if same != *before {
                    let (fault, door) = (&entry.fault, door.name());
                    println!("! {fault}, {door}: counted again, it is {now:?}");
                    entry
                        .complaints
                        .push("counted again, it differs".to_owned());
                }
            }
        }
        true
    }

    /// Prints the sum of all; whether there are any, and all are good.
    pub fn print_sum(&self) -> bool {
        println!();
        let mut all = Counts::default();
        for door in Door::ALL {
            let mut sum = Counts::default();
            let of_door = self.entries.iter().flat_map(|entry| &entry.counts);
            of_door
                .filter(|(other, _)| other == door)
                .for_each(|(_, counts)| sum.add(*counts));
            println!("  {:<WIDTH$}{:<12}{}", "all", door.name(), sum.cells());
            all.add(sum);
        }
        let fired: u64 = self.entries.iter().map(|entry| entry.fired).sum();
        let silence = self.entries.iter().map(|entry| entry.silence_ms).max();
        println!(
            "  {:<WIDTH$}{:<12}{}{fired:>7}{:>11}",
            "all",
            "all",
            all.cells(),
            silence.unwrap_or_default()
        );
        !self.entries.is_empty() && self.entries.iter().all(Entry::is_good)
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
        let sent: Sent = sent.map(|(name, is)| (name.to_owned(), is)).into();
        let done = [
            ("once", 1),
            ("twice", 2),
            ("saved", 1),
            ("twice too", 3),
            ("new", 1),
        ];
        let done = done.map(|(name, count)| (name.to_owned(), count)).into();
        let counts = Counts::of(&sent, &done);
        let expected = Counts {
            attempts: 6,
            acknowledged: 3,
            ok: 1,
            lost: 1,
            duplicated: 2,
            unexpected: 1,
            recovered: 1,
            again: 0,
        };
        assert_eq!(counts, expected);
        assert!(!counts.is_good());
    }
}
