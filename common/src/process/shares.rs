//! Shares: of what a process has for all, each party has at most so much at once, so that none of
//! them takes all of it.

use std::{collections::HashMap, hash::Hash, sync::Arc};

use parking_lot::Mutex;
type Taken<P> = Arc<Mutex<HashMap<P, usize>>>;

/// What the parties have.
#[derive(Debug)]
pub struct Shares<P> {
    most: usize,
    taken: Taken<P>,
}

impl<P: Eq + Hash + Copy> Shares<P> {
    /// Shares of so much.
    #[must_use]
    pub fn of(most: usize) -> Self {
        Self {
            most,
            taken: Taken::default(),
        }
    }

    /// One more for a party; `None` if it has its share already.
    pub fn take(&self, party: P) -> Option<Share<P>> {
        let mut parties = self.taken.lock();
        let taken = parties.entry(party).or_default();
        if *taken >= self.most {
            return None;
        }
        *taken += 1;
        Some(Share {
            party,
            taken: self.taken.clone(),
        })
    }
}

/// A part of a party's share, until it is dropped.
#[derive(Debug)]
pub struct Share<P: Eq + Hash> {
    party: P,
    taken: Taken<P>,
}

impl<P: Eq + Hash> Drop for Share<P> {
    fn drop(&mut self) {
        let mut parties = self.taken.lock();
        if let Some(taken) = parties.get_mut(&self.party) {
            *taken -= 1;
            if *taken == 0 {
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
        assert!(shares.taken.lock().is_empty());
    }
}
