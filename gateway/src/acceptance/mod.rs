//! Claim, publish, settle: the part of a request that must not be split. What waits at one moment
//! goes through it together, in one of a few lanes.
//!
//! A lane works apart from the requests, so a sender that hangs up changes nothing, and a shutdown
//! waits for it. Between any two of its steps the process may die: the protocol, its states, who
//! moves them and what a crash does at each point, is in the README beside this file.

mod delivery;
mod group;
mod lane;
mod submission;

use std::sync::Arc;

use bytes::Bytes;
use letterbox_broker::{Entry, Receipt};
use letterbox_common::{ids::WorkspaceId, process::metrics::CounterUnder};
use tokio_util::task::TaskTracker;

use self::lane::Lane;
pub(crate) use self::{delivery::Delivery, lane::LaneParts, submission::Submission};
use crate::{
    batcher::{Batcher, Limits},
    claims::{ClaimKey, Outcome},
    metrics,
};

/// Items that one lane takes at once: what PostgreSQL and RabbitMQ do best with.
const MAX_BATCH: usize = 256;
const MAX_BATCH_BYTES: usize = 256 << 10;
/// Items, and bytes of items, that are not answered yet. More is refused.
const MAX_QUEUED: usize = 8_192;
const MAX_BYTES: usize = 32 << 20;

/// Something that passed every check and is about to be accepted.
pub(crate) trait IntakeItem: Send + Sync + 'static {
    type Key: ClaimKey;
    type Entry: Entry + Send + Sync;

    /// Names the batcher in metrics.
    const NAME: &'static str;

    /// What is claimed for it.
    fn key(&self) -> Self::Key;

    /// Its tenant.
    fn workspace(&self) -> WorkspaceId;

    /// Of the request that it comes from.
    fn receipt(&self) -> &Receipt;

    /// Length of its body.
    fn length(&self) -> usize;

    /// What is published under the id that its claim has.
    fn into_entry(self, id: <Self::Key as ClaimKey>::Id) -> (Self::Entry, Bytes);
}

/// Accepts items of one kind.
pub(crate) struct Acceptance<I: IntakeItem> {
    lanes: Batcher<Lane<I>>,
    /// How often each outcome came.
    outcomes: Arc<[CounterUnder; Outcome::ALL.len()]>,
}

impl<I: IntakeItem> Acceptance<I> {
    /// Starts `lanes` lanes as tasks of `tasks`.
    pub(crate) fn start(lanes: u16, parts: LaneParts, tasks: &TaskTracker) -> Self {
        let limits = Limits {
            max_queued: MAX_QUEUED,
            max_bytes: MAX_BYTES,
            max_batch: MAX_BATCH,
            max_batch_bytes: MAX_BATCH_BYTES,
            max_in_flight: usize::from(lanes),
        };
        let counter = |outcome: Outcome| metrics::INTAKE.under([I::NAME, outcome.label()]);
        Self {
            lanes: Batcher::start(I::NAME, limits, Lane::new(parts), tasks),
            outcomes: Arc::new(Outcome::ALL.map(counter)),
        }
    }

    /// Puts an item into the next batch. Dropping this future before the batch is taken leaves
    /// nothing behind; later it changes nothing.
    pub(crate) fn accept(&self, item: I) -> impl Future<Output = Outcome> + use<I> {
        let (answer, outcomes) = (self.lanes.ask(item), self.outcomes.clone());
        async move {
            let outcome = answer.await.unwrap_or(Outcome::Unavailable);
            outcomes[outcome as usize].increment(1);
            outcome
        }
    }
}
