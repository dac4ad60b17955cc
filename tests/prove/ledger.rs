//! The ledger: one line for each door and fault, and whether it is a good one.

use std::collections::HashMap;

use letterbox_trials::Counts;

use crate::{
    doors::{self, Door, Found, Line, Sent},
    stack::Stack,
};

/// The cells of a line.
fn cells(counts: &Counts, again: u64) -> String {
    let Counts {
        attempts,
        acknowledged,
        ok,
        lost,
        doubled,
        unexpected,
        recovered,
    } = counts;
    format!(
        "{attempts:>8}{acknowledged:>8}{ok:>8}{lost:>6}{doubled:>6}{unexpected:>7}\
         {recovered:>7}{again:>7}"
    )
}

/// What one fault has come to.
#[derive(Debug, Clone, Default)]
pub struct Entry {
    pub fault: String,
    /// What the names of all that was sent begin with.
    pub prefix: String,
    pub sent: HashMap<Door, Sent>,
    pub lines: Vec<Line>,
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
        let is_good = self.lines.iter().all(|line| line.counts.is_good());
        is_good && self.fired > 0 && self.complaints.is_empty()
    }

    /// All doors together.
    pub fn sum(&self) -> Counts {
        let mut sum = Counts::default();
        self.lines.iter().for_each(|line| sum += line.counts);
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
        for (at, line) in entry.lines.iter().enumerate() {
            let fault = if at == 0 { entry.fault.as_str() } else { "" };
            let ends = match at {
                0 => format!("{:>7}{:>11}", entry.fired, entry.silence_ms),
                _ => String::new(),
            };
            println!(
                "{mark} {fault:<WIDTH$}{:<12}{}{ends}",
                line.door.name(),
                cells(&line.counts, line.again)
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
            let now = match found.get(&entry.prefix) {
                Some(found) => doors::count(found, &entry.sent),
                None => doors::count(&Found::default(), &entry.sent),
            };
            for (before, now) in entry.lines.iter().zip(now) {
                if now.counts != before.counts {
                    let (fault, door) = (&entry.fault, now.door.name());
                    println!("! {fault}, {door}: counted again, it is {:?}", now.counts);
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
        let (mut all, mut all_again) = (Counts::default(), 0);
        for door in Door::ALL {
            let of_door = self.entries.iter().flat_map(|entry| &entry.lines);
            let of_door = of_door.filter(|line| line.door == *door);
            let (mut sum, mut again) = (Counts::default(), 0);
            for line in of_door {
                sum += line.counts;
                again += line.again;
            }
            println!(
                "  {:<WIDTH$}{:<12}{}",
                "all",
                door.name(),
                cells(&sum, again)
            );
            all += sum;
            all_again += again;
        }
        let fired: u64 = self.entries.iter().map(|entry| entry.fired).sum();
        let silence = self.entries.iter().map(|entry| entry.silence_ms).max();
        println!(
            "  {:<WIDTH$}{:<12}{}{fired:>7}{:>11}",
            "all",
            "all",
            cells(&all, all_again),
            silence.unwrap_or_default()
        );
        !self.entries.is_empty() && self.entries.iter().all(Entry::is_good)
    }
}
