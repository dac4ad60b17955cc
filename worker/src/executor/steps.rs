//! The runs in progress on a worker share their statements: many attempts begin, and many steps are
//! written, in one transaction, each item with its own conditions and its own answer. A batch that
//! fails is divided: one tenant's lock is no other's trouble.

use std::{marker::PhantomData, sync::Arc, time::Duration};

use letterbox_common::{
    batcher::{Asked, BatchLimits, BatchWork, Batcher},
    ids::{RunId, WorkspaceId},
};
use letterbox_database::{Database, DatabaseError, divide};
use tokio_util::task::TaskTracker;
use tracing::Instrument;
use uuid::Uuid;

use super::{
    record::{Beginning, Step, Written},
    store,
};

/// Items are bounded by the places of a worker, and their bytes by its actions; batches by what a
/// statement can do in time. One batch at a time: what gathers meanwhile is the next one.
const LIMITS: BatchLimits = BatchLimits::SMALL_ITEMS;

/// What has failed before is done by itself, beside the batches: it may have been at fault.
const ALONE: BatchLimits = BatchLimits {
    max_batch: 1,
    max_in_flight: 2,
    ..LIMITS
};

/// Runs that a log line names.
const MAX_NAMED: usize = 4;

/// Writes for the runs in progress.
pub(super) struct Steps {
    beginnings: Together<Begin>,
    steps: Together<Write>,
}

impl Steps {
    /// Starts the tasks that write. They end when all clones are dropped.
    pub(super) fn start(database: &Database, lease: Duration, tasks: &TaskTracker) -> Self {
        Self {
            beginnings: Together::start("beginnings", database, lease, tasks),
            steps: Together::start("steps", database, lease, tasks),
        }
    }

    /// Begins an attempt. `None` if something that it was decided by does not hold any more.
    ///
    /// # Errors
    /// When the database does not answer: whether it has begun is unknown. Asking again is safe.
    pub(super) async fn begin(
        &self,
        beginning: &Arc<Beginning>,
        has_failed: bool,
    ) -> Result<Option<Uuid>, DatabaseError> {
        self.beginnings.ask(beginning, has_failed).await
    }

    /// Writes a step.
    ///
    /// # Errors
    /// When the database does not answer: whether it is written is unknown. Asking again is safe.
    pub(super) async fn write(
        &self,
        step: &Arc<Step>,
        has_failed: bool,
    ) -> Result<Written, DatabaseError> {
        self.steps.ask(step, has_failed).await
    }
}

/// The batchers of one kind: for all, and for what has failed before.
struct Together<W: InBatches> {
    all: Batcher<Shared<W>>,
    failed: Batcher<Shared<W>>,
}

impl<W: InBatches> Together<W> {
    fn start(
        name: &'static str,
        database: &Database,
        lease: Duration,
        tasks: &TaskTracker,
    ) -> Self {
        let start = |limits| Batcher::start(name, limits, Shared::new(database, lease), tasks);
        Self {
            all: start(LIMITS),
            failed: start(ALONE),
        }
    }

    async fn ask(&self, item: &Arc<W::Item>, has_failed: bool) -> Result<W::Answer, DatabaseError> {
        let batcher = if has_failed { &self.failed } else { &self.all };
        let answer = batcher.ask(item.clone()).await;
        // More is never queued than there are places; a task that panicked ends the process.
        answer.unwrap_or_else(|_| Err(DatabaseError::rolled_back("a batch")))
    }
}

/// What is done with many items at once.
trait InBatches: Send + Sync + 'static {
    type Item: Send + Sync + 'static;
    type Answer: Send + 'static;

    fn run(item: &Self::Item) -> RunId;

    fn workspace(item: &Self::Item) -> WorkspaceId;

    /// Does it for all items, or for none. Returns one answer for each.
    fn store(
        database: &Database,
        items: &[&Self::Item],
        lease: Duration,
    ) -> impl Future<Output = Result<Vec<Self::Answer>, DatabaseError>> + Send;
}

struct Begin;

impl InBatches for Begin {
    type Item = Beginning;
    type Answer = Option<Uuid>;

    fn run(item: &Beginning) -> RunId {
        item.turn.run
    }

    fn workspace(item: &Beginning) -> WorkspaceId {
        item.turn.workspace
    }

    async fn store(
        database: &Database,
        items: &[&Beginning],
        lease: Duration,
    ) -> Result<Vec<Option<Uuid>>, DatabaseError> {
        store::begin::begin(database, items, lease).await
    }
}

struct Write;

impl InBatches for Write {
    type Item = Step;
    type Answer = Written;

    fn run(item: &Step) -> RunId {
        item.turn.run
    }

    fn workspace(item: &Step) -> WorkspaceId {
        item.turn.workspace
    }

    async fn store(
        database: &Database,
        items: &[&Step],
        lease: Duration,
    ) -> Result<Vec<Written>, DatabaseError> {
        store::write::write(database, items, lease).await
    }
}

/// The work of a batcher: stores its items together, in parts if that fails.
struct Shared<W> {
    database: Database,
    lease: Duration,
    work: PhantomData<W>,
}

impl<W> Shared<W> {
    fn new(database: &Database, lease: Duration) -> Self {
        Self {
            database: database.clone(),
            lease,
            work: PhantomData,
        }
    }
}

impl<W: InBatches> BatchWork for Shared<W> {
    type Item = Arc<W::Item>;
    type Answer = Result<W::Answer, DatabaseError>;

    async fn run(&self, batch: Vec<Asked<Self::Item, Self::Answer>>) {
        let items = batch.into_iter().map(Asked::split).collect();
        // A stack of the parts left to do, the next one on top.
        let mut parts: Vec<Vec<_>> = vec![items];
        while let Some(part) = parts.pop() {
            let items: Vec<&W::Item> = part.iter().map(|(item, _)| &**item).collect();
            // Whatever is logged meanwhile names the runs, or the first of many.
            let runs: Vec<RunId> = items
                .iter()
                .take(MAX_NAMED)
                .map(|item| W::run(item))
                .collect();
            let span = tracing::error_span!("batch", ?runs, of = items.len());
            let storing = W::store(&self.database, &items, self.lease).instrument(span);
            match storing.await {
                Ok(answers) => part
                    .into_iter()
                    .zip(answers)
                    .for_each(|((_, asker), answer)| asker.give(Ok(answer))),
                Err(error) => match divide(part, &error, |(item, _)| W::workspace(item)) {
                    Ok(smaller) => parts.extend(smaller),
                    Err(part) => part
                        .into_iter()
                        .for_each(|(_, asker)| asker.give(Err(error.clone()))),
                },
            }
        }
    }
}
