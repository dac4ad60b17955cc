//! One lane: a batch from its claim to its answers.
//!
//! The batch goes out as a few messages of bounded size, each of which is claimed, published and
//! settled by itself: what becomes of one changes nothing for the others.

use std::{
    collections::{HashMap, hash_map::Entry as Slot},
    marker::PhantomData,
    sync::Arc,
};

use bytes::Bytes;
use futures_util::future::join_all;
use letterbox_broker::{BatchBody, Entry, MAX_LINE, topology::QueueFamily};

use super::{Accepted, IntakeItem};
use crate::{
    batcher::{Answer, Asked, BatchWork},
    claims::{ClaimKey, Claimed, Claims},
    open_batches::{BatchId, Outlet, Settlements, Spill, Spillable},
    work_queues::WorkQueues,
};

/// Entries of one message. More gain little, and a message should be readable in the dashboard.
const MAX_MESSAGE_ENTRIES: usize = 32;
/// Bytes of one message; a single entry may have more.
const MAX_MESSAGE_BYTES: usize = 128 << 10;

/// What all lanes work with.
#[derive(Clone)]
pub(crate) struct LaneParts {
    pub(crate) claims: Claims,
    pub(crate) outlet: Arc<Outlet>,
    pub(crate) spill: Arc<Spill>,
    pub(crate) settlements: Arc<Settlements>,
    pub(crate) work_queues: Arc<WorkQueues>,
}

/// Does batches of one kind of items.
pub(crate) struct Lane<I> {
    parts: LaneParts,
    kind: PhantomData<fn(I)>,
}

impl<I: IntakeItem> BatchWork for Lane<I> {
    type Item = I;
    type Answer = Accepted;

    fn bytes(item: &I) -> usize {
        item.length() + MAX_LINE
    }

    async fn run(&self, batch: Vec<Asked<I, Accepted>>) {
        let groups = Group::gather(batch, self.parts.work_queues.count());
        let wanted: Vec<_> = groups
            .iter()
            .flat_map(|group| group.items.iter().map(|waiting| (waiting.key, group.batch)))
            .collect();
        let Ok(claimed) = self.parts.claims.claim(&wanted).await else {
            // It may have claimed all the same.
            self.fail(groups.iter().map(|group| group.batch));
            groups
                .into_iter()
                .for_each(|group| group.answer(Accepted::Unavailable));
            return;
        };
        let mut claimed = claimed.into_iter();
        let claimed = groups.into_iter().map(|group| group.claimed(&mut claimed));
        let held: Vec<_> = claimed.filter_map(|group| self.keep_held(group)).collect();
        self.publish(held).await;
    }

    fn idle(&self) {
        self.parts.settlements.write_now();
    }
}

impl<I: IntakeItem> Lane<I> {
    pub(super) fn new(parts: LaneParts) -> Self {
        Self {
            parts,
            kind: PhantomData,
        }
    }

    /// A batch of which nothing is held has nothing to publish: it is over.
    fn keep_held(&self, group: HeldGroup) -> Option<HeldGroup> {
        if group.answers.is_empty() {
            self.parts.settlements.confirm(group.message.batch);
            return None;
        }
        Some(group)
    }

    /// Publishes each message, spills those that are not confirmed, and answers.
    async fn publish(&self, groups: Vec<HeldGroup>) {
        let publishing = groups.into_iter().map(|group| async move {
            let published = self.parts.outlet.publish(&group.message).await;
            match published {
                Ok(()) => {
                    self.parts.settlements.confirm(group.message.batch);
                    group.answer(Accepted::First);
                    None
                }
                Err(_) => Some(group),
            }
        });
        let left: Vec<_> = join_all(publishing).await.into_iter().flatten().collect();
        if left.is_empty() {
            return;
        }
        let messages: Vec<_> = left.iter().map(|group| group.message.clone()).collect();
        let outcome = match self.parts.spill.keep(&messages).await {
            Ok(()) => Accepted::First,
            Err(error) => {
                tracing::debug!(%error, "not spilled");
                self.fail(messages.iter().map(|message| message.batch));
                Accepted::Unavailable
            }
        };
        left.into_iter().for_each(|group| group.answer(outcome));
    }

    fn fail(&self, batches: impl IntoIterator<Item = BatchId>) {
        self.parts.settlements.fail(batches);
    }
}

/// One distinct item, and everybody who waits for it.
struct Waiting<I: IntakeItem> {
    key: I::Key,
    item: I,
    first: Answer<Accepted>,
    /// Sent the same at the same moment.
    repeats: Vec<Answer<Accepted>>,
}

/// Items that go into one message.
struct Group<I: IntakeItem> {
    batch: BatchId,
    queue: u16,
    bytes: usize,
    items: Vec<Waiting<I>>,
}

impl<I: IntakeItem> Group<I> {
    /// Sorts a batch into messages. Of equal items the first stands for all.
    fn gather(batch: Vec<Asked<I, Accepted>>, work_queues: u16) -> Vec<Self> {
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
            let bytes = Lane::<I>::bytes(&item);
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

    fn answer(self, answer: Accepted) {
        for waiting in self.items {
            waiting.first.give(answer);
            waiting
                .repeats
                .into_iter()
                .for_each(|repeat| repeat.give(answer));
        }
    }

    /// Answers those who hold nothing; what is held becomes a message. Takes an answer for each
    /// item.
    fn claimed(
        self,
        answers: &mut impl Iterator<Item = Claimed<<I::Key as ClaimKey>::Id>>,
    ) -> HeldGroup {
        let (mut entries, mut held) = (Vec::new(), HeldAnswers::default());
        for (waiting, claimed) in self.items.into_iter().zip(answers) {
            let Waiting {
                item,
                first,
                repeats,
                ..
            } = waiting;
            let answer = match claimed {
                Claimed::Held(id) => {
                    entries.push(item.into_entry(id));
                    held.firsts.push(first);
                    held.repeats.extend(repeats);
                    continue;
                }
                Claimed::InProgress => Accepted::InProgress,
                Claimed::Duplicate => Accepted::Duplicate,
                Claimed::Gone => Accepted::Gone,
            };
            first.give(answer);
            repeats.into_iter().for_each(|repeat| repeat.give(answer));
        }
        HeldGroup::new(self.batch, self.queue, &entries, held)
    }
}

/// Those who wait for what becomes of a message.
#[derive(Default)]
struct HeldAnswers {
    firsts: Vec<Answer<Accepted>>,
    repeats: Vec<Answer<Accepted>>,
}

impl HeldAnswers {
    fn is_empty(&self) -> bool {
        self.firsts.is_empty()
    }
}

/// A message, and those who wait for what becomes of it.
struct HeldGroup {
    message: Spillable,
    answers: HeldAnswers,
}

impl HeldGroup {
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
        Self { message, answers }
    }

    /// Answers everybody. What was repeated in one batch is a duplicate, once it is recorded.
    fn answer(self, answer: Accepted) {
        let repeated = match answer {
            Accepted::First => Accepted::Duplicate,
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
