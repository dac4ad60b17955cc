//! Sorts what a lane has taken into messages of bounded size, and keeps those who wait for an
//! answer beside what they wait for.

use std::collections::{HashMap, hash_map::Entry as Slot};

use bytes::Bytes;
use letterbox_broker::{BatchBody, Entry, MAX_LINE, spans, topology::QueueFamily};
use letterbox_traces::Span;

use super::IntakeItem;
use crate::{
    batcher::{Answer, Asked},
    claims::{Answers, Outcome},
    open_batches::{BatchId, Spillable},
};

/// Entries of one message. More gain little, and a message should be readable in the dashboard.
const MAX_MESSAGE_ENTRIES: usize = 32;
/// Bytes of one message; a single entry may have more.
const MAX_MESSAGE_BYTES: usize = 128 << 10;

/// What an item takes of a message, before it is encoded.
pub(super) fn item_bytes<I: IntakeItem>(item: &I) -> usize {
    item.length() + MAX_LINE
}

/// One distinct item, and everybody who waits for it.
pub(super) struct Waiting<I: IntakeItem> {
    pub(super) key: I::Key,
    pub(super) item: I,
    first: Answer<Outcome>,
    /// Sent the same at the same moment.
    repeats: Vec<Answer<Outcome>>,
}

impl<I: IntakeItem> Waiting<I> {
    /// Answers everybody alike.
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
    pub(super) items: Vec<Waiting<I>>,
}

impl<I: IntakeItem> Group<I> {
    /// Sorts a batch into messages. Of equal items the first stands for all.
    pub(super) fn gather(batch: Vec<Asked<I, Outcome>>, work_queues: u16) -> Vec<Self> {
        let mut groups: Vec<Self> = Vec::new();
        // The group that is being filled, by queue; and where each key is.
        let (mut open, mut places) = (HashMap::new(), HashMap::new());
        for (item, answer) in batch.into_iter().map(Asked::split) {
            let key = item.key();
            let place = match places.entry(key) {
                Slot::Occupied(place) => {
                    let (group, index): (usize, usize) = *place.get();
                    groups[group].items[index].repeats.push(answer);
                    continue;
                }
                Slot::Vacant(place) => place,
            };
            let queue = QueueFamily::number_for(item.workspace(), work_queues);
            let bytes = item_bytes(&item);
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
            place.insert((index, group.items.len()));
            group.bytes += bytes;
            group.items.push(Waiting {
                key,
                item,
                first: answer,
                repeats: Vec::new(),
            });
        }
        groups
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

    pub(super) fn answer(self, answer: Outcome) {
        self.items
            .into_iter()
            .for_each(|waiting| waiting.answer(answer));
    }

    /// Answers those who hold nothing; what is held becomes a message.
    pub(super) fn claimed(self, answers: &Answers<I::Key>) -> HeldGroup {
        let (mut entries, mut held) = (Vec::new(), HeldAnswers::default());
        for waiting in self.items {
            match answers.get(&waiting.key) {
                Some(Ok(id)) => {
                    entries.push(waiting.item.into_entry(*id));
                    held.firsts.push(waiting.first);
                    held.repeats.extend(waiting.repeats);
                }
                Some(Err(outcome)) => waiting.answer(*outcome),
                None => waiting.answer(Outcome::Unavailable),
            }
        }
        HeldGroup::new(self.batch, self.queue, &entries, held)
    }
}

/// Those who wait for what becomes of a message.
#[derive(Default)]
struct HeldAnswers {
    firsts: Vec<Answer<Outcome>>,
    repeats: Vec<Answer<Outcome>>,
}

/// A message, and those who wait for what becomes of it.
pub(super) struct HeldGroup {
    pub(super) message: Spillable,
    answers: HeldAnswers,
    span: Option<Span>,
}

impl HeldGroup {
    /// Whether nothing is held.
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

    /// Answers everybody. What was repeated in one batch is a duplicate, once it is recorded.
    pub(super) fn answer(mut self, answer: Outcome) {
        if let (Outcome::Unavailable, Some(span)) = (answer, &mut self.span) {
            span.fail("neither published nor kept");
        }
        let repeated = match answer {
            Outcome::First => Outcome::Duplicate,
            other => other,
        };
        self.answers
            .firsts
            .into_iter()
            .for_each(|first| first.give(answer));
        self.answers
            .repeats
            .into_iter()
            .for_each(|repeat| repeat.give(repeated));
    }
}
