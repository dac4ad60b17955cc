//! Turns: a worker that has free places takes due runs from PostgreSQL and executes them.
//! Workspaces take turns, and no account is called more often at once than it may be, over all
//! workers.
//!
//! A run that this worker records or lets go of is looked for at once, others within 100 ms. What
//! is beyond the limits waits in the database, where it costs nothing.

pub mod fairness;
mod hand;
mod look;
pub mod store;

use std::{sync::Arc, time::Duration};

use letterbox_database::DatabaseError;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::Instrument;

use self::look::{Look, LookMemory};
pub(crate) use self::{fairness::Limits, hand::Hand};
pub(super) use self::{
    hand::{Call, Place},
    store::STATEMENTS,
};
use super::{Executor, record::TakenRun, store::load};
use crate::{metrics, worker::Worker};

/// How often to look for runs that others have recorded, or whose time has come.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How often to report that this worker is alive while it takes nothing.
const REPORT_EVERY: Duration = Duration::from_secs(5);
/// Maximum number of runs that go to their lanes at once where more have come due than a look takes
/// up.
const FLOOD: usize = 10_000;
/// Pause while the database is unavailable.
const OUTAGE_PAUSE: Duration = Duration::from_secs(1);

/// Takes runs and starts them.
pub(crate) struct Turns {
    pub(crate) worker: Worker,
    pub(crate) executor: Arc<Executor>,
    pub(crate) limits: Limits,
    pub(crate) hand: Hand,
    /// The runs in progress, which outlast whoever started them.
    pub(crate) tasks: TaskTracker,
}

impl Turns {
    /// Takes runs until `stop`. Those in progress go on as tasks.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let mut memory = LookMemory::default();
        while !stop.is_cancelled() {
            let pause = match self.look(&mut memory).await {
                Ok(()) if memory.is_full => {
                    match store::let_due_wait(&self.worker.database, FLOOD as i64).await {
                        // What is due and can't move is locked.
                        Ok(0) => LOOK_EVERY,
                        Ok(_) => continue,
                        Err(_) => OUTAGE_PAUSE,
                    }
                }
                Ok(()) => LOOK_EVERY,
                Err(_) => OUTAGE_PAUSE,
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.hand.more(memory.has_more), if pause == LOOK_EVERY => {}
                () = stop.cancelled() => {}
            }
        }
    }

    /// Takes the runs whose turn it is, as many as there are free places, and starts them.
    async fn look(&self, memory: &mut LookMemory) -> Result<(), DatabaseError> {
        let is_reported = memory
            .reported
            .is_some_and(|at| at.elapsed() < REPORT_EVERY);
        let free = self.hand.free();
        let answered = self.hand.answered();
        if free == 0 && is_reported {
            (memory.has_more, memory.is_full) = (true, false);
            return Ok(());
        }
        let look = Look {
            worker: self.worker.id,
            name: &self.worker.name,
            places: self.hand.places(),
            free,
            lease: self.executor.timeouts.lease,
            limits: self.limits,
            in_hand: self.hand.runs(),
            answered,
            is_reported,
            memory,
        };
        let looked = match self.worker.database.transaction("take_runs", &look).await {
            Ok(Some(looked)) => looked,
            Ok(None) => return Ok(()),
            Err(error) => {
                // Whether it was committed is unknown: then the leases end by themselves.
                memory.reported = None;
                return Err(error);
            }
        };
        *memory = looked.memory;
        if !looked.taken.is_empty() {
            metrics::RUNS_TAKEN.increment(looked.taken.len() as u64);
            self.start(looked.taken);
        }
        Ok(())
    }

    /// Loads runs together and executes each as a task of its own.
    fn start(&self, taken: Vec<TakenRun>) {
        let executor = self.executor.clone();
        let tasks = self.tasks.clone();
        let take = |one: TakenRun| (one, self.hand.take(one.turn, one.account));
        let taken: Vec<(TakenRun, Place)> = taken.into_iter().map(take).collect();
        self.tasks.spawn(async move {
            let runs: Vec<TakenRun> = taken.iter().map(|(one, _)| *one).collect();
            // Where that fails, each run finds out by itself.
            let loading = load::load(&executor.database, &runs).await;
            let mut loaded = loading.unwrap_or_default();
            for (one, place) in taken {
                let run_id = one.turn.run;
                let workspace_id = one.turn.workspace;
                // Every line that is logged meanwhile names the run, whatever the level.
                let span = tracing::error_span!("run", %run_id, %workspace_id);
                let loaded = loaded.remove(&one.turn.key());
                let executing = executor.clone().execute(one, loaded, place);
                tasks.spawn(executing.instrument(span));
            }
        });
    }

    /// Forgets this worker, so that nobody counts on it.
    pub(crate) async fn forget(worker: Worker) {
        // Where this fails, others notice by the time of its last report.
        let _ = store::forget_worker(&worker.database, worker.id).await;
    }
}
