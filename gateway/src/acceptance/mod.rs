//! Claim, publish, settle: the part of a request that must not be split. The items that wait at one
//! moment go through it together, in one of a few lanes.
//!
//! Lanes are tasks of their own, so a sender that hangs up changes nothing, and a shutdown waits
//! for them. The process may die between any two steps: the README beside this file describes the
//! protocol, its states, who moves them, and the effect of a crash at each point.

mod delivery;
mod group;
mod item;
mod lane;
mod submission;

use std::{sync::Arc, time::Duration};

use letterbox_common::process::metrics::CounterUnder;
use tokio_util::task::TaskTracker;

pub(crate) use self::{delivery::Delivery, lane::LaneParts, submission::Submission};
use self::{item::IntakeItem, lane::Lane};
use crate::{
    claims::{Door, Outcome},
    metrics,
};
use letterbox_common::batcher::{BatchLimits, Batcher};

/// Maximum items that one lane takes at once: the size that suits PostgreSQL and RabbitMQ best.
const MAX_BATCH: usize = 256;
const MAX_BATCH_BYTES: usize = 256 << 10;
/// Maximum items that wait for a lane, and bytes of unanswered items, a quarter of them for each
/// workspace. More is refused.
const MAX_QUEUED: usize = 16_384;
const MAX_BYTES: usize = 64 << 20;

/// Records items of one kind.
pub(crate) struct Acceptance<I: IntakeItem> {
    lanes: Batcher<Lane<I>>,
    /// Counts each outcome, in their order.
    outcomes: Arc<[CounterUnder]>,
}

impl<I: IntakeItem> Acceptance<I> {
    /// Starts `lanes` lanes as tasks of `tasks`.
    pub(crate) fn start(lanes: u16, parts: LaneParts, tasks: &TaskTracker) -> Self {
        let limits = BatchLimits {
            max_queued: MAX_QUEUED,
            max_bytes: MAX_BYTES,
            max_batch: MAX_BATCH,
            max_batch_bytes: MAX_BATCH_BYTES,
            max_in_flight: usize::from(lanes),
            gather: Duration::ZERO,
        };
        let name = I::Door::KIND.as_str();
        let counter = |outcome: &Outcome| metrics::INTAKE.under([name, outcome.as_str()]);
        Self {
            lanes: Batcher::start(name, limits, Lane::new(parts), tasks),
            outcomes: Outcome::ALL.iter().map(counter).collect(),
        }
    }

    /// Puts an item into the next batch and waits for its outcome. Dropping this future before the
    /// batch is taken withdraws the item; later it changes nothing.
    pub(crate) fn accept(&self, item: I) -> impl Future<Output = Outcome> + use<I> {
        let answer = self.lanes.ask(item);
        let outcomes = self.outcomes.clone();
        async move {
            let outcome = answer.await.unwrap_or(Outcome::Unavailable);
            outcomes[outcome as usize].increment(1);
            outcome
        }
    }
}
