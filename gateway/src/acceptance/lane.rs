//! One lane: a batch from its claim to its answers.
//!
//! The batch goes out as a few messages of bounded size, each of which is claimed, published and
//! settled by itself: what becomes of one changes nothing for the others.

use std::{marker::PhantomData, sync::Arc};

use futures_util::future::join_all;
use letterbox_broker::Entry;
use letterbox_traces::{Kind, batch};

use super::{
    IntakeItem,
    group::{Group, HeldGroup, item_bytes},
};
use crate::{
    batcher::{Asked, BatchWork},
    claims::{Claims, Outcome},
    open_batches::{BatchId, Outlet, Settlements, Spill},
    work_queues::WorkQueues,
};

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
    type Answer = Outcome;

    fn bytes(item: &I) -> usize {
        item_bytes(item)
    }

    async fn run(&self, batch: Vec<Asked<I, Outcome>>) {
        let groups = Group::gather(batch, self.parts.work_queues.count());
        let (open, closed) = groups
            .into_iter()
            .partition(|group| self.has_way_out(group));
        tokio::join!(self.accept(open), self.refuse(closed));
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

    /// Whether a message would be published or spilled, as far as is known.
    fn has_way_out(&self, group: &Group<I>) -> bool {
        let key = I::Entry::QUEUES.routing_key(group.queue);
        self.parts.outlet.may_take(&key) || self.parts.spill.has_room()
    }

    async fn accept(&self, groups: Vec<Group<I>>) {
        if groups.is_empty() {
            return;
        }
        let wanted: Vec<_> = groups
            .iter()
            .flat_map(|group| group.items.iter().map(|waiting| (waiting.key, group.batch)))
            .collect();
        let items = groups.iter().flat_map(|group| &group.items);
        let contexts = items.map(|waiting| waiting.item.receipt().traceparent.as_str());
        let mut span = batch(Kind::Internal, || format!("claim {}", I::NAME), contexts);
        let Ok(claimed) = self.parts.claims.claim(&wanted).await else {
            if let Some(span) = &mut span {
                span.fail("the database did not answer");
            }
            // It may have claimed all the same.
            self.fail(groups.iter().map(|group| group.batch));
            groups
                .into_iter()
                .for_each(|group| group.answer(Outcome::Unavailable));
            return;
        };
        drop(span);
        let claimed = groups.into_iter().map(|group| group.claimed(&claimed));
        // A batch of which nothing is held is not open.
        let held = claimed.filter(|group| !group.is_empty());
        self.publish(held.collect()).await;
    }

    /// Refuses before anything is claimed: a claim that can't be published would stay open. What
    /// was recorded before is a duplicate all the same.
    async fn refuse(&self, groups: Vec<Group<I>>) {
        if groups.is_empty() {
            return;
        }
        let items: Vec<_> = groups.into_iter().flat_map(|group| group.items).collect();
        let keys: Vec<_> = items.iter().map(|waiting| waiting.key).collect();
        let found = self.parts.claims.find(&keys).await.unwrap_or_default();
        for waiting in items {
            let outcome = found.get(&waiting.key).copied();
            waiting.answer(outcome.unwrap_or(Outcome::Unavailable));
        }
    }

    /// Publishes each message, spills those that are not confirmed, and answers.
    async fn publish(&self, groups: Vec<HeldGroup>) {
        let publishing = groups.into_iter().map(|group| async move {
            let published = self.parts.outlet.publish(&group.message).await;
            match published {
                Ok(()) => {
                    self.parts.settlements.confirm(group.message.batch);
                    group.answer(Outcome::First);
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
            Ok(()) => Outcome::First,
            Err(error) => {
                tracing::debug!(%error, "not spilled");
                self.fail(messages.iter().map(|message| message.batch));
                Outcome::Unavailable
            }
        };
        left.into_iter().for_each(|group| group.answer(outcome));
    }

    fn fail(&self, batches: impl IntoIterator<Item = BatchId>) {
        self.parts.settlements.fail(batches);
    }
}
