//! The refusals of a moment that are kept: the first ones of each webhook, in the order they came.
//! Webhooks that were found have a room of their own.

use std::collections::HashMap;

use letterbox_common::webhook::WebhookAddress;

use super::Refused;

/// Refusals of one webhook.
const MAX_EACH: usize = 32;
/// Refusals in one room.
const MAX_TOGETHER: usize = 256;

#[derive(Default)]
pub(super) struct Kept {
    found: Room,
    others: Room,
}

#[derive(Default)]
struct Room {
    refused: Vec<Refused>,
    of_each: HashMap<WebhookAddress, usize>,
}

impl Kept {
    /// Keeps a refusal, if there is room.
    pub(super) fn add(&mut self, refused: Refused, is_found: bool) {
        match is_found {
            true => self.found.add(refused),
            false => self.others.add(refused),
        }
    }

    /// All that were kept.
    pub(super) fn into_refused(self) -> Vec<Refused> {
        let mut refused = self.found.refused;
        refused.extend(self.others.refused);
        refused
    }
}

impl Room {
    fn add(&mut self, refused: Refused) {
        if self.refused.len() < MAX_TOGETHER {
            let of_this = self.of_each.entry(refused.address).or_default();
            if *of_this < MAX_EACH {
                *of_this += 1;
                self.refused.push(refused);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use letterbox_common::webhook::DeliveryFault;

    use super::*;

    #[test]
    fn a_flood_hides_nothing_of_others() {
        let refused = |address| Refused {
            address,
            at: Timestamp::UNIX_EPOCH,
            reason: DeliveryFault::Digest,
            request_id: None,
        };
        let (flooded, quiet) = (WebhookAddress::generate(), WebhookAddress::generate());
        let mut kept = Kept::default();
        for _ in 0..1_000 {
            kept.add(refused(WebhookAddress::generate()), false);
            kept.add(refused(flooded), true);
        }
        kept.add(refused(quiet), true);
        let kept = kept.into_refused();
        let of = |address| kept.iter().filter(|one| one.address == address).count();
        assert_eq!((of(flooded), of(quiet)), (MAX_EACH, 1));
        assert_eq!(kept.len(), MAX_EACH + 1 + MAX_TOGETHER);
    }
}
