//! The refusals that wait to be written, in two bounded sets. Webhooks that were found share one
//! set evenly. The other is for addresses that were not found: a sender can make up any number of
//! them, so sharing it evenly would help no one, and would take time by which a sender could tell.

use std::collections::HashMap;

use jiff::Timestamp;
use letterbox_common::webhook::{DeliveryFault, WebhookAddress};

/// Maximum refusals of one webhook.
const MAX_EACH: usize = 32;
/// Maximum refusals in one set.
const MAX_TOGETHER: usize = 256;

/// Finds what more there is to say of a refused delivery, in more time than a request has.
pub(crate) type SecondLook = Box<dyn FnOnce() -> Option<String> + Send + Sync>;

/// A refused delivery.
pub(super) struct Refused {
    pub(super) address: WebhookAddress,
    pub(super) at: Timestamp,
    pub(super) reason: DeliveryFault,
    pub(super) detail: Option<String>,
    pub(super) second_look: Option<SecondLook>,
    pub(super) request_id: Option<String>,
}

#[derive(Default)]
pub(super) struct KeptFaults {
    found: Room,
    others: Room,
}

#[derive(Default)]
struct Room {
    of_each: HashMap<WebhookAddress, Vec<Refused>>,
    count: usize,
}

impl KeptFaults {
    /// Keeps a refusal if there is room.
    pub(super) fn add(&mut self, refused: Refused, is_found: bool) {
        if is_found {
            self.found.add_evenly(refused);
        } else {
            self.others.add(refused);
        }
    }

    /// All kept refusals, those of each webhook in the order in which they came.
    pub(super) fn into_refused(self) -> Vec<Refused> {
        let rooms = [self.found, self.others].into_iter();
        let refused = rooms.flat_map(|room| room.of_each.into_values().flatten());
        refused.collect()
    }
}

impl Room {
    fn add(&mut self, refused: Refused) {
        if self.count < MAX_TOGETHER && self.kept_of(refused.address) < MAX_EACH {
            let of_it = self.of_each.entry(refused.address).or_default();
            of_it.push(refused);
            self.count += 1;
        }
    }

    /// Like [`Self::add`], but a full set makes room by dropping the last refusal of the webhook
    /// that has most, if that one keeps at least as many as this one gets.
    fn add_evenly(&mut self, refused: Refused) {
        let kept = self.kept_of(refused.address);
        if self.count == MAX_TOGETHER && kept < MAX_EACH {
            let all = self.of_each.values_mut();
            let most = all.max_by_key(|refused| refused.len());
            if let Some(most) = most.filter(|most| most.len() > kept + 1) {
                most.pop();
                self.count -= 1;
            }
        }
        self.add(refused);
    }

    fn kept_of(&self, address: WebhookAddress) -> usize {
        self.of_each.get(&address).map_or(0, Vec::len)
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use letterbox_common::webhook::DeliveryFault;

    use super::*;

    fn refused(address: WebhookAddress) -> Refused {
        Refused {
            address,
            at: Timestamp::UNIX_EPOCH,
            reason: DeliveryFault::Digest,
            detail: None,
            second_look: None,
            request_id: None,
        }
    }

    #[test]
    fn a_flood_hides_nothing_of_others() {
        let flooded: Vec<_> = (0..20).map(|_| WebhookAddress::generate()).collect();
        let quiet = WebhookAddress::generate();
        let mut kept = KeptFaults::default();
        for _ in 0..1_000 {
            kept.add(refused(WebhookAddress::generate()), false);
            flooded.iter().for_each(|one| kept.add(refused(*one), true));
        }
        for _ in 0..3 {
            kept.add(refused(quiet), true);
        }
        let kept = kept.into_refused();
        let of = |address| kept.iter().filter(|one| one.address == address).count();
        assert_eq!(of(quiet), 3);
        assert!(flooded.iter().all(|one| (12..=13).contains(&of(*one))));
        assert_eq!(kept.len(), 2 * MAX_TOGETHER);
    }

    #[test]
    fn one_webhook_has_its_share_only() {
        let flooded = WebhookAddress::generate();
        let mut kept = KeptFaults::default();
        (0..1_000).for_each(|_| kept.add(refused(flooded), true));
        assert_eq!(kept.into_refused().len(), MAX_EACH);
    }
}
