//! Sorts the batch of a lane into messages of bounded size, and keeps the waiting callers beside
//! their items.

use std::collections::{HashMap, hash_map::Entry as Slot};

use bytes::Bytes;
use letterbox_broker::{BatchBody, Entry, MAX_LINE, spans, topology::QueueFamily};
use letterbox_traces::Span;

use super::item::IntakeItem;
use crate::{
    claims::{Answers, ClaimKey, Outcome},
    open_batches::{BatchId, Spillable},
};
use letterbox_common::batcher::{Answer, Asked};

/// Maximum entries of a message. More would gain little, and messages should stay readable in the
/// dashboard.
const MAX_MESSAGE_ENTRIES: usize = 32;
/// Maximum bytes of a message; a single entry may have more.
const MAX_MESSAGE_BYTES: usize = 128 << 10;

/// The estimated size of an item in a message.
pub(super) fn item_bytes<I: IntakeItem>(item: &I) -> usize {
    item.length() + MAX_LINE
}

/// One distinct item, and all callers that wait for it.
pub(super) struct WaitingItem<I: IntakeItem> {
    pub(super) key: ClaimKey<I::Door>,
    pub(super) item: I,
    first: Answer<Outcome>,
    /// Callers with an equal item in the same batch.
    repeats: Vec<Answer<Outcome>>,
}

impl<I: IntakeItem> WaitingItem<I> {
    /// Gives all callers the same answer.
    pub(super) fn answer(self, answer: Outcome) {
        self.first.give(answer);
        self.repeats
            .into_iter()
            .for_each(|repeat| repeat.give(answer));
    }
}

/// Items that go into one message.
pub(super) struct Group<I: IntakeItem> {
    pub(super) batch: BatchId,
    pub(super) queue: u16,
    bytes: usize,
    pub(super) items: Vec<WaitingItem<I>>,
}

impl<I: IntakeItem> Group<I> {
    /// Sorts a batch into groups. The first of equal items stands for all of them.
    pub(super) fn gather(batch: Vec<Asked<I, Outcome>>, work_queues: u16) -> Vec<Self> {
        let mut groups: Vec<Self> = Vec::new();
        // The group that is being filled, by queue, and the place of each key.
        let mut open = HashMap::new();
        let mut places = HashMap::new();
        for (item, answer) in batch.into_iter().map(Asked::split) {
            let key = item.key();
            let place = match places.entry(key) {
                // Claimed once: the repeat waits for the answer of the first.
                Slot::Occupied(place) => {
                    let (group, index): (usize, usize) = *place.get();
                    groups[group].items[index].repeats.push(answer);
                    continue;
                }
                Slot::Vacant(place) => place,
            };
            let queue = QueueFamily::number_for(item.workspace(), work_queues);
            let waiting = WaitingItem {
                key,
                item,
                first: answer,
                repeats: Vec::new(),
            };
            place.insert(Self::put(&mut groups, &mut open, queue, waiting));
        }
        groups
    }

    /// Sorts items with their queues into new groups.
    pub(super) fn regroup(items: Vec<(u16, WaitingItem<I>)>) -> Vec<Self> {
        let mut groups = Vec::new();
        let mut open = HashMap::new();
        for (queue, waiting) in items {
            Self::put(&mut groups, &mut open, queue, waiting);
        }
        groups
    }

    /// The items of groups, with their queues.
    pub(super) fn items(groups: Vec<Self>) -> Vec<(u16, WaitingItem<I>)> {
        let items = groups.into_iter().flat_map(|group| {
            let queue = group.queue;
            group.items.into_iter().map(move |one| (queue, one))
        });
        items.collect()
    }

    /// Adds an item to the group of its queue that is being filled; returns its place.
    fn put(
        groups: &mut Vec<Self>,
        open: &mut HashMap<u16, usize>,
        queue: u16,
        waiting: WaitingItem<I>,
    ) -> (usize, usize) {
        let bytes = item_bytes(&waiting.item);
        let fits = |index: &usize| groups[*index].has_room_for(bytes);
        let index = match open.get(&queue).copied().filter(fits) {
            Some(index) => index,
            None => {
                groups.push(Self::new(queue));
                open.insert(queue, groups.len() - 1);
                groups.len() - 1
            }
        };
        let group = &mut groups[index];
        group.bytes += bytes;
        group.items.push(waiting);
        (index, group.items.len() - 1)
    }

    /// Separates the items for which `keep` is false; `None` if no others are left.
    pub(super) fn split(
        mut self,
        keep: impl Fn(&I) -> bool,
    ) -> (Option<Self>, Vec<WaitingItem<I>>) {
        let items = std::mem::take(&mut self.items);
        let (kept, separated) = items.into_iter().partition(|one| keep(&one.item));
        self.items = kept;
        ((!self.items.is_empty()).then_some(self), separated)
    }

    fn new(queue: u16) -> Self {
        Self {
            batch: BatchId::generate(),
            queue,
            bytes: 0,
            items: Vec::new(),
        }
    }

    fn has_room_for(&self, bytes: usize) -> bool {
        self.items.len() < MAX_MESSAGE_ENTRIES && self.bytes + bytes <= MAX_MESSAGE_BYTES
    }

    /// Answers the callers whose keys are not held here; the held items become a message.
    pub(super) fn claimed(self, answers: &Answers<I::Door>) -> HeldGroup {
        let mut entries = Vec::new();
        let mut held = HeldAnswers::default();
        for waiting in self.items {
            match answers.get(&waiting.key) {
                Some(Ok(id)) => {
                    entries.push(waiting.item.into_entry(*id));
                    held.firsts.push(waiting.first);
                    held.repeats.extend(waiting.repeats);
                }
                Some(Err(outcome)) => waiting.answer(*outcome),
                // Without an answer about a key nothing may be promised.
                None => waiting.answer(Outcome::Unavailable),
            }
        }
        HeldGroup::new(self.batch, self.queue, &entries, held)
    }
}

/// The callers that wait for the outcome of a message.
#[derive(Default)]
struct HeldAnswers {
    firsts: Vec<Answer<Outcome>>,
    repeats: Vec<Answer<Outcome>>,
}

/// A message, and the callers that wait for its outcome.
pub(super) struct HeldGroup {
    pub(super) message: Spillable,
    answers: HeldAnswers,
    span: Option<Span>,
}

impl HeldGroup {
    /// Whether no item is held.
    pub(super) fn is_empty(&self) -> bool {
        self.answers.firsts.is_empty()
    }

    fn new<E: Entry>(
        batch: BatchId,
        queue: u16,
        entries: &[(E, Bytes)],
        answers: HeldAnswers,
    ) -> Self {
        let message = Spillable {
            batch,
            routing_key: E::QUEUES.routing_key(queue),
            body: BatchBody::encode(entries),
        };
        let contexts = entries.iter().map(|(entry, _)| entry.receipt());
        let contexts = contexts.map(|receipt| receipt.traceparent.as_str());
        Self {
            span: spans::publishing(&message.routing_key, contexts),
            message,
            answers,
        }
    }

    /// Answers all callers. Once an item is recorded, its repeats in the batch are duplicates.
    pub(super) fn answer(mut self, answer: Outcome) {
        if let (Outcome::Unavailable, Some(span)) = (answer, &mut self.span) {
            span.fail("neither published nor spilled");
        }
        let repeated = match answer {
            Outcome::First => Outcome::Duplicate,
            other => other,
        };
        let HeldAnswers { firsts, repeats } = self.answers;
        firsts.into_iter().for_each(|first| first.give(answer));
        repeats.into_iter().for_each(|one| one.give(repeated));
    }
}
