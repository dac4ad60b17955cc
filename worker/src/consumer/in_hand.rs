//! The entries that the consumers hold unfinished, for the age of the oldest one.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use parking_lot::Mutex;

/// The unfinished entries of each queue. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct InHand(Arc<Mutex<Queues>>);

#[derive(Debug, Default)]
struct Queues {
    /// For every queue that ever held entries, the times of receipt of those it holds now.
    held: BTreeMap<String, BTreeMap<u64, Timestamp>>,
    last: u64,
}

/// A guard: its entries count as unfinished until it is dropped.
#[derive(Debug)]
pub(super) struct Hold {
    in_hand: InHand,
    queue: String,
    number: u64,
}

impl InHand {
    /// Counts entries as unfinished, the oldest of which was received at `oldest`. `None` if that
    /// is unknown.
    pub(super) fn hold(&self, queue: &str, oldest: Option<Timestamp>) -> Option<Hold> {
        let oldest = oldest?;
        let mut queues = self.0.lock();
        queues.last += 1;
        let number = queues.last;
        let held = queues.held.entry(queue.to_owned()).or_default();
        held.insert(number, oldest);
        Some(Hold {
            in_hand: self.clone(),
            queue: queue.to_owned(),
            number,
        })
    }

    /// The time at which the oldest unfinished entry of each queue was received; `None` for a
    /// queue without any.
    pub(crate) fn oldest(&self) -> Vec<(String, Option<Timestamp>)> {
        let queues = self.0.lock();
        let oldest = queues.held.iter();
        oldest
            .map(|(queue, held)| (queue.clone(), held.values().min().copied()))
            .collect()
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut queues = self.in_hand.0.lock();
        if let Some(held) = queues.held.get_mut(&self.queue) {
            held.remove(&self.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_of_what_is_in_hand_counts_until_it_is_let_go() {
        let in_hand = InHand::default();
        let second = jiff::SignedDuration::from_secs(1);
        let first = Timestamp::UNIX_EPOCH;
        let later = first + second;
        assert!(in_hand.hold("a", None).is_none());
        let young = in_hand.hold("a", Some(later));
        let old = in_hand.hold("a", Some(first));
        let other = in_hand.hold("b", Some(later));
        let oldest = |a, b| vec![("a".to_owned(), a), ("b".to_owned(), b)];
        assert_eq!(in_hand.oldest(), oldest(Some(first), Some(later)));
        drop((old, other));
        assert_eq!(in_hand.oldest(), oldest(Some(later), None));
        drop(young);
        assert_eq!(in_hand.oldest(), oldest(None, None));
    }
}
