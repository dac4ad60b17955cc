//! One lane: takes a batch of items from the claim to the answers.
//!
//! The items go out as a few messages of bounded size. Each is an open batch of its own, published
//! and settled independently of the others.

use std::{
    marker::PhantomData,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use letterbox_broker::Entry;
use letterbox_database::{DatabaseError, divide};
use letterbox_traces::{SpanKind, batch};

use super::{
    group::{Group, HeldGroup, WaitingItem, item_bytes},
    item::IntakeItem,
};
use crate::{
    claims::{Answers, Claims, Door, Outcome},
    open_batches::{Outlet, Settlements, Spill},
    work_queues::WorkQueues,
};
use letterbox_common::{
    batcher::{Asked, BatchWork},
    fail_point::fails,
};

/// How long a batch whose claim fails is divided: nobody waits for an answer any more, and the lane
/// has others to do. Long enough for the others of a few tenants whose claims take their time.
const MAX_DIVIDING: Duration = Duration::from_secs(30);

/// The parts that all lanes share.
#[derive(Clone)]
pub(crate) struct LaneParts {
    pub(crate) claims: Claims,
    pub(crate) outlet: Arc<Outlet>,
    pub(crate) spill: Arc<Spill>,
    pub(crate) settlements: Arc<Settlements>,
    pub(crate) work_queues: Arc<WorkQueues>,
}

/// Records batches of items of one kind.
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

    fn party(item: &I) -> Option<u128> {
        Some(u128::from_be_bytes(*item.workspace().as_bytes()))
    }

    async fn run(&self, batch: Vec<Asked<I, Outcome>>) {
        let groups = Group::gather(batch, self.parts.work_queues.count());
        let mut open = Vec::new();
        let mut closed = Vec::new();
        for group in groups {
            let key = I::Entry::QUEUES.routing_key(group.queue);
            let spill = &self.parts.spill;
            let is_open = self.parts.outlet.may_take(&key) || spill.has_room();
            if is_open && !spill.is_shared() {
                open.push(group);
                continue;
            }
            let (kept, refused) = group.split(|item| is_open && spill.has_share(item.workspace()));
            open.extend(kept);
            closed.extend(refused);
        }
        // Together: a queue that takes nothing must not delay the messages for the others.
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

    /// Claims, publishes and answers. A batch whose claim fails is divided, so that a row that
    /// somebody keeps locked is that tenant's trouble alone.
    async fn accept(&self, groups: Vec<Group<I>>) {
        let began = Instant::now();
        let mut parts = vec![groups];
        while let Some(groups) = parts.pop().filter(|groups| !groups.is_empty()) {
            let error = match self.claim(&groups).await {
                Ok(claimed) => {
                    let claimed = groups.into_iter().map(|group| group.claimed(&claimed));
                    // A batch into which nothing was claimed has no row to settle.
                    let held = claimed.filter(|group| !group.is_empty());
                    self.publish(held.collect()).await;
                    continue;
                }
                Err(error) => error,
            };
            // The claim may have committed unseen. Its lease ends, so that a retry can take over.
            let settlements = &self.parts.settlements;
            settlements.fail(groups.iter().map(|group| group.batch));
            let workspace = |(_, one): &(_, WaitingItem<I>)| one.item.workspace();
            match divide(Group::items(groups), &error, workspace) {
                Ok(smaller) => parts.extend(smaller.into_iter().map(Group::regroup)),
                Err(items) => unavailable(items.into_iter().map(|(_, waiting)| waiting)),
            }
            if began.elapsed() > MAX_DIVIDING {
                unavailable(parts.drain(..).flatten().flat_map(|group| group.items));
            }
        }
    }

    async fn claim(&self, groups: &[Group<I>]) -> Result<Answers<I::Door>, DatabaseError> {
        let wanted: Vec<_> = groups
            .iter()
            .flat_map(|group| group.items.iter().map(|waiting| (waiting.key, group.batch)))
            .collect();
        let items = groups.iter().flat_map(|group| &group.items);
        let contexts = items.map(|waiting| waiting.item.receipt().traceparent.as_str());
        let mut span = batch(
            SpanKind::Internal,
            || format!("claim {}", I::Door::KIND),
            contexts,
        );
        let claimed = self.parts.claims.claim(&wanted).await;
        if let (Some(span), Err(_)) = (&mut span, &claimed) {
            span.fail("the database did not answer");
        }
        claimed
    }

    /// Refuses items without claiming them: a claim that can't be published would stay open. Items
    /// that were recorded before are still answered as duplicates.
    async fn refuse(&self, items: Vec<WaitingItem<I>>) {
        if items.is_empty() {
            return;
        }
        let keys: Vec<_> = items.iter().map(|waiting| waiting.key).collect();
        // While the database is away as well, all of them are refused.
        let found = self.parts.claims.find(&keys).await.unwrap_or_default();
        for waiting in items {
            let outcome = found.get(&waiting.key).copied();
            waiting.answer(outcome.unwrap_or(Outcome::Unavailable));
        }
    }

    /// Publishes each message, spills those that are not confirmed, and answers the callers.
    async fn publish(&self, groups: Vec<HeldGroup>) {
        let publishing = groups.into_iter().map(|group| async move {
            let published = self.parts.outlet.publish(&group.message).await;
            match published {
                Ok(()) => {
                    // Before the answer, so that a repeat after it is a duplicate.
                    self.parts.settlements.confirm(group.message.batch);
                    let is_lost = fails(&["answer.before"]).await;
                    group.answer(match is_lost {
                        false => Outcome::First,
                        true => Outcome::Unavailable,
                    });
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
        let kept = self.parts.spill.keep(&messages).await;
        // A spilled message is as durable as a queued one.
        let (kept, left): (Vec<_>, Vec<_>) = left
            .into_iter()
            .partition(|group| kept.contains(&group.message.batch));
        kept.into_iter()
            .for_each(|group| group.answer(Outcome::First));
        // If the spill has committed unseen, what is in it is stored all the same.
        let settlements = &self.parts.settlements;
        settlements.fail(left.iter().map(|group| group.message.batch));
        left.into_iter()
            .for_each(|group| group.answer(Outcome::Unavailable));
    }
}

/// Asks the callers of items to try again later.
fn unavailable<I: IntakeItem>(items: impl IntoIterator<Item = WaitingItem<I>>) {
    items
        .into_iter()
        .for_each(|waiting| waiting.answer(Outcome::Unavailable));
}
