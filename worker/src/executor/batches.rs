//! The runs in progress on a worker share their statements: many attempts begin, and many
//! transitions are written, in one transaction, each item with its own conditions and its own
//! answer. A batch that fails is divided: one tenant's lock is no other's trouble.

use std::{marker::PhantomData, sync::Arc, time::Duration};

use letterbox_common::{
    batcher::{Asked, BatchLimits, BatchWork, Batcher},
    ids::RunId,
};
use letterbox_database::{Database, DatabaseError, divide};
use tokio_util::task::TaskTracker;
use tracing::Instrument;
use uuid::Uuid;

use super::{
    record::Turn,
    store,
    transition::{Beginning, Transition, Written},
};

/// Items are bounded by the places of a worker, and their bytes by its actions; batches by what a
/// statement can do in time. One batch at a time: what gathers meanwhile is the next one. Fewer
/// transactions cost less; behind a batch of one nobody waits.
const LIMITS: BatchLimits = BatchLimits {
    gather: Duration::from_millis(1),
    ..BatchLimits::SMALL_ITEMS
};

/// What has failed before is done by itself, beside the batches: it may have been at fault.
const ALONE: BatchLimits = BatchLimits {
    max_batch: 1,
    max_in_flight: 2,
    ..LIMITS
};

/// Bytes that an item of a batch carries at most. What carries more is done by itself, too.
const MAX_CARRIED: usize = 128 << 10;

/// Runs that a log line names.
const MAX_NAMED: usize = 4;

/// Writes for the runs in progress.
pub(super) struct Batches {
    /// Begins attempts. `None` if something that one was decided by does not hold any more.
    pub(super) beginnings: Together<Beginning>,
    pub(super) transitions: Together<Transition>,
}

impl Batches {
    /// Starts the tasks that write. They end when all clones are dropped.
    pub(super) fn start(database: &Database, lease: Duration, tasks: &TaskTracker) -> Self {
        Self {
            beginnings: Together::start("beginnings", database, lease, tasks),
            transitions: Together::start("steps", database, lease, tasks),
        }
    }
}

/// The batchers of one kind: for all, and for what is done by itself.
pub(super) struct Together<T: InBatches> {
    all: Batcher<SharedBatch<T>>,
    alone: Batcher<SharedBatch<T>>,
}

impl<T: InBatches> Together<T> {
    fn start(
        name: &'static str,
        database: &Database,
        lease: Duration,
        tasks: &TaskTracker,
    ) -> Self {
        let start = |limits| {
            let work = SharedBatch {
                database: database.clone(),
                lease,
                items: PhantomData,
            };
            Batcher::start(name, limits, work, tasks)
        };
        Self {
            all: start(LIMITS),
            alone: start(ALONE),
        }
    }

    /// Does it for one item.
    ///
    /// # Errors
    /// When the database does not answer: whether it is done is unknown. Asking again is safe.
    pub(super) async fn ask(
        &self,
        item: &Arc<T>,
        has_failed: bool,
    ) -> Result<T::Answer, DatabaseError> {
        let is_alone = has_failed || item.carries() > MAX_CARRIED;
        let batcher = if is_alone { &self.alone } else { &self.all };
        let answer = batcher.ask(item.clone()).await;
        // More is never queued than there are places; a task that panicked ends the process.
        answer.unwrap_or_else(|| Err(DatabaseError::rolled_back("a batch")))
    }
}

/// What is done for many items at once.
pub(super) trait InBatches: Sized + Send + Sync + 'static {
    type Answer: Send + 'static;

    fn turn(&self) -> Turn;

    /// How many bytes of an answer it carries.
    fn carries(&self) -> usize {
        0
    }

    /// Does it for all items, or for none. Returns one answer for each.
    fn store(
        database: &Database,
        items: &[&Self],
        lease: Duration,
    ) -> impl Future<Output = Result<Vec<Self::Answer>, DatabaseError>> + Send;
}

impl InBatches for Beginning {
    type Answer = Option<Uuid>;

    fn turn(&self) -> Turn {
        self.turn
    }

    async fn store(
        database: &Database,
        items: &[&Self],
        lease: Duration,
    ) -> Result<Vec<Self::Answer>, DatabaseError> {
        store::begin::begin(database, items, lease).await
    }
}

impl InBatches for Transition {
    type Answer = Written;

    fn turn(&self) -> Turn {
        self.turn
    }

    fn carries(&self) -> usize {
        self.sealed.as_ref().map_or(0, Vec::len)
    }

    async fn store(
        database: &Database,
        items: &[&Self],
        lease: Duration,
    ) -> Result<Vec<Self::Answer>, DatabaseError> {
        store::write::write(database, items, lease).await
    }
}

/// The work of a batcher: stores its items together, in parts if that fails.
struct SharedBatch<T> {
    database: Database,
    lease: Duration,
    items: PhantomData<T>,
}

impl<T: InBatches> BatchWork for SharedBatch<T> {
    type Item = Arc<T>;
    type Answer = Result<T::Answer, DatabaseError>;

    async fn run(&self, batch: Vec<Asked<Self::Item, Self::Answer>>) {
        let items = batch.into_iter().map(Asked::split).collect();
        // A stack of the parts left to do, the next one on top.
        let mut parts: Vec<Vec<_>> = vec![items];
        while let Some(part) = parts.pop() {
            let items: Vec<&T> = part.iter().map(|(item, _)| &**item).collect();
            // Whatever is logged meanwhile names the runs, or the first of many.
            let runs = items.iter().take(MAX_NAMED).map(|item| item.turn().run);
            let runs: Vec<RunId> = runs.collect();
            let span = tracing::error_span!("batch", ?runs, of = items.len());
            let storing = T::store(&self.database, &items, self.lease).instrument(span);
            match storing.await {
                Ok(answers) => part
                    .into_iter()
                    .zip(answers)
                    .for_each(|((_, asker), answer)| asker.give(Ok(answer))),
                Err(error) => match divide(part, &error, |(item, _)| item.turn().workspace) {
                    Ok(smaller) => parts.extend(smaller),
                    Err(part) => part
                        .into_iter()
                        .for_each(|(_, asker)| asker.give(Err(error.clone()))),
                },
            }
        }
    }
}
