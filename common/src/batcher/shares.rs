//! Shares: of what may wait in a batcher, one party has at most a quarter, so that the flood of one
//! is not refused to others.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;
/// The part of a batcher that one party may have.
const SHARE: usize = 4;

/// What the parties have in a batcher.
#[derive(Debug)]
pub(super) struct Shares {
    most: TakenShares,
    taken: Mutex<HashMap<u128, TakenShares>>,
}

#[derive(Debug, Clone, Copy, Default)]
struct TakenShares {
    items: usize,
    bytes: usize,
}

/// The place of one item in the share of its party, until it is dropped.
#[derive(Debug)]
pub(super) struct SharePlace {
    shares: Arc<Shares>,
    party: u128,
    bytes: usize,
}

impl Shares {
    pub(super) fn of(items: usize, bytes: usize) -> Self {
        Self {
            most: TakenShares {
                items: items.div_ceil(SHARE),
                bytes: bytes.div_ceil(SHARE),
            },
            taken: Mutex::default(),
        }
    }

    /// Takes a place for an item of so many bytes; `None` if the party has its share already.
    pub(super) fn take(self: &Arc<Self>, party: u128, bytes: usize) -> Option<SharePlace> {
        let mut parties = self.taken.lock();
        let taken = parties.entry(party).or_default();
        if taken.items >= self.most.items || taken.bytes + bytes > self.most.bytes {
            return None;
        }
        taken.items += 1;
        taken.bytes += bytes;
        Some(SharePlace {
            shares: self.clone(),
            party,
            bytes,
        })
    }
}

impl Drop for SharePlace {
    fn drop(&mut self) {
        let mut parties = self.shares.taken.lock();
        if let Some(taken) = parties.get_mut(&self.party) {
            taken.items -= 1;
            taken.bytes -= self.bytes;
            if taken.items == 0 {
                parties.remove(&self.party);
            }
        }
    }
}
