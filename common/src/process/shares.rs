//! Shares: of what a process has for all, each party has at most so much at once, so that none of
//! them takes all of it: so many items, perhaps of so many bytes together.

use std::{collections::HashMap, hash::Hash, sync::Arc};

use parking_lot::Mutex;

/// What the parties have.
#[derive(Debug)]
pub struct Shares<P> {
    most: Held,
    held: HeldByParties<P>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Held {
    items: usize,
    bytes: usize,
}

type HeldByParties<P> = Arc<Mutex<HashMap<P, Held>>>;

impl<P: Eq + Hash + Copy> Shares<P> {
    /// Shares of so many items.
    pub fn of(items: usize) -> Self {
        Self::of_sized(items, usize::MAX)
    }

    /// Shares of so many items, which have so many bytes together.
    pub fn of_sized(items: usize, bytes: usize) -> Self {
        Self {
            most: Held { items, bytes },
            held: HeldByParties::default(),
        }
    }

    /// One more for a party; `None` if it has its share already.
    pub fn take(&self, party: P) -> Option<Share<P>> {
        self.take_sized(party, 0)
    }

    /// One more of so many bytes for a party; `None` if that is more than its share.
    pub fn take_sized(&self, party: P, bytes: usize) -> Option<Share<P>> {
        let mut parties = self.held.lock();
        let held = parties.entry(party).or_default();
        if held.items >= self.most.items || held.bytes + bytes > self.most.bytes {
            return None;
        }
        held.items += 1;
        held.bytes += bytes;
        Some(Share {
            party,
            bytes,
            held: self.held.clone(),
        })
    }
}

/// A part of a party's share, until it is dropped.
#[derive(Debug)]
pub struct Share<P: Eq + Hash> {
    party: P,
    bytes: usize,
    held: HeldByParties<P>,
}

impl<P: Eq + Hash> Drop for Share<P> {
    fn drop(&mut self) {
        let mut parties = self.held.lock();
        if let Some(held) = parties.get_mut(&self.party) {
            held.items -= 1;
            held.bytes -= self.bytes;
            if held.items == 0 {
                parties.remove(&self.party);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_party_has_its_share_and_leaves_nothing_behind() {
        let shares = Shares::of(2);
        let first = shares.take("one").unwrap();
        let second = shares.take("one").unwrap();
        assert!(shares.take("one").is_none());
        let other = shares.take("other").unwrap();
        drop(first);
        let again = shares.take("one").unwrap();
        assert!(shares.take("one").is_none());
        drop((second, other, again));
        assert!(shares.held.lock().is_empty());
    }
}
