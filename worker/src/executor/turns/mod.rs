//! Turns: a worker that has free places takes due runs from PostgreSQL and executes them.
//! Workspaces take turns, and no account is called more often at once than it may be, over all
//! workers.
//!
//! A run that this worker records is taken by the transaction that records it, if nothing else
//! waits, and its first attempt may begin with it. One that it lets go of is looked for at once,
//! others within 100 ms. What is beyond the limits waits in the database, where it costs nothing.

pub mod fairness;
mod hand;
mod look;
pub mod store;

use std::{
    collections::HashMap,
    mem,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::{FutureExt, future::BoxFuture, poll};
use letterbox_common::ids::{RunId, WorkspaceId};
use letterbox_database::{DatabaseError, Transaction, Work};
use tokio::{
    runtime::Handle,
    sync::{Mutex, MutexGuard},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::Instrument;

pub(crate) use self::{fairness::Limits, hand::Hand};
use self::{
    hand::{Begun, Recording},
    look::{Look, LookMemory, Looked},
};
pub(super) use self::{
    hand::{Call, Place},
    store::STATEMENTS,
};
use super::{
    Executor,
    record::TakenRun,
    store::{
        begin::BeginAttempts,
        load::{self, AllLoaded, Loaded},
    },
    transition::{Beginning, Change, Then, Transition, Written},
};
use crate::{metrics, worker::Worker};

/// How often to look for runs that others have recorded, or whose time has come.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How often to report that this worker is alive while it takes nothing.
const REPORT_EVERY: Duration = Duration::from_secs(5);
/// Maximum number of runs that go to their lanes at once where more have come due than a look takes
/// up.
const FLOOD: usize = 10_000;
/// When to let go of runs of which it is unknown whether they were taken, in seconds.
const UNSEEN_PAUSES: [u64; 3] = [1, 5, 15];
/// After how long no further run is executed in a transaction that holds the lock of the turns.
const MOMENT: Duration = Duration::from_millis(2);
/// Pause while the database is unavailable.
const OUTAGE_PAUSE: Duration = Duration::from_secs(1);

/// Runs in progress that are not known to be recorded yet.
type EarlyRuns = HashMap<(WorkspaceId, RunId), EarlyRun>;

/// A run that is executed as far as it comes without its recording.
struct EarlyRun {
    recording: Arc<Recording>,
    executing: BoxFuture<'static, ()>,
    /// What it begins with its recording.
    beginning: Option<Arc<Beginning>>,
    begun: Option<Begun>,
}

/// Takes runs and starts them.
pub(crate) struct Turns {
    pub(crate) worker: Worker,
    pub(crate) executor: Arc<Executor>,
    pub(crate) limits: Limits,
    pub(crate) hand: Hand,
    /// The runs in progress, which outlast whoever started them.
    pub(crate) tasks: TaskTracker,
    /// Of this worker one looks at a time, until what it has taken is in hand.
    pub(crate) memory: Mutex<LookMemory>,
}

/// Runs that were taken by the transaction that has recorded them.
pub(crate) struct TakenAlong<'t> {
    turns: &'t Turns,
    looked: Option<Looked>,
    /// Those that are in progress already; given up before another one looks.
    early: EarlyRuns,
    memory: MutexGuard<'t, LookMemory>,
}

impl TakenAlong<'_> {
    /// Starts them, once that transaction is committed. Returns whether others are left.
    pub(crate) fn start(mut self) -> bool {
        if let Some(looked) = self.looked.take() {
            let early = mem::take(&mut self.early);
            self.turns.start(looked, early, &mut self.memory);
        }
        self.memory.has_more
    }
}

impl Drop for TakenAlong<'_> {
    /// Whether it is committed is unknown: lets go of them, again and again until that is seen.
    /// What has begun with it was not sent.
    fn drop(&mut self) {
        let (Some(looked), Ok(runtime)) = (self.looked.take(), Handle::try_current()) else {
            return;
        };
        for one in looked.taken {
            let early = self.early.remove(&one.turn.key());
            let withdrawn = early.and_then(|early| {
                let begun = early.beginning?;
                let change = Change::WithdrawnUnseen(begun.attempt());
                Some((begun.action.clone(), change))
            });
            let letting_go = Transition::of_run(one.turn, withdrawn, Then::let_go());
            let executor = self.turns.executor.clone();
            let letting_go = async move {
                for pause in UNSEEN_PAUSES {
                    let stop = executor.stop.cancelled();
                    let _ = tokio::time::timeout(Duration::from_secs(pause), stop).await;
                    let written = executor.write(&letting_go).await;
                    let is_seen = written.is_ok_and(|written| written != Written::NotOurs);
                    if executor.stop.is_cancelled() || is_seen {
                        return;
                    }
                }
            };
            self.turns.tasks.spawn_on(letting_go, &runtime);
        }
    }
}

impl Turns {
    /// Takes runs that this transaction has just recorded, if this worker could take all of them,
    /// nothing else waits, and nobody else looks.
    pub(crate) async fn take_along(
        &self,
        transaction: &Transaction<'_>,
        workspaces: &[WorkspaceId],
        runs: &[RunId],
    ) -> Result<Option<TakenAlong<'_>>, DatabaseError> {
        let Ok(mut memory) = self.memory.try_lock() else {
            return Ok(None);
        };
        let is_calm = !memory.has_more && !memory.is_full;
        if !is_calm || runs.len() > self.hand.free() || self.executor.stop.is_cancelled() {
            return Ok(None);
        }
        let look = self.next_look(&memory);
        // Unless all are taken, and start, the next look is one that takes whatever waits.
        memory.has_more = true;
        let looked = Box::pin(look.take_recorded(transaction, workspaces, runs)).await?;
        let Some((looked, loaded)) = looked else {
            return Ok(None);
        };
        let early = self.execute_early(transaction, &looked.taken, loaded);
        let early = early.await?;
        Ok(Some(TakenAlong {
            turns: self,
            memory,
            looked: Some(looked),
            early,
        }))
    }

    /// Executes runs in their first turn as far as they come without waiting, for a moment, and
    /// begins the attempts that they are about to begin.
    async fn execute_early(
        &self,
        transaction: &Transaction<'_>,
        taken: &[TakenRun],
        mut loaded: AllLoaded,
    ) -> Result<EarlyRuns, DatabaseError> {
        let since = Instant::now();
        let mut early = EarlyRuns::new();
        for one in taken.iter().filter(|one| one.is_first) {
            let key = one.turn.key();
            let Some(loaded) = loaded.remove(&key).filter(|_| since.elapsed() < MOMENT) else {
                continue;
            };
            let recording = Arc::<Recording>::default();
            let known = Some(recording.clone());
            let place = self.hand.take(one.turn, one.account, known);
            let mut executing = executing(self.executor.clone(), *one, Some(loaded), place).boxed();
            if poll!(&mut executing).is_pending() {
                let beginning = recording.beginning.lock().take();
                let begun = None;
                let run = EarlyRun {
                    recording,
                    executing,
                    beginning,
                    begun,
                };
                early.insert(key, run);
            }
        }
        let runs = early.values_mut().filter_map(|run| {
            let beginning: &Beginning = run.beginning.as_ref()?;
            Some((beginning, &mut run.begun))
        });
        let (beginnings, runs): (Vec<_>, Vec<_>) = runs.unzip();
        if !beginnings.is_empty() {
            let begin = BeginAttempts {
                beginnings: &beginnings,
                lease: self.executor.timeouts.lease,
            };
            let begun = begin.run(transaction).await?;
            for (run, begun) in runs.into_iter().zip(begun.into_iter().flatten()) {
                *run = Some(begun);
            }
        }
        Ok(early)
    }

    /// Takes runs until `stop`. Those in progress go on as tasks.
    pub(crate) async fn run(&self, stop: CancellationToken) {
        while !stop.is_cancelled() {
            let mut memory = self.memory.lock().await;
            if stop.is_cancelled() {
                return;
            }
            let looked = Box::pin(self.look(&mut memory)).await;
            let (is_full, has_more) = (memory.is_full, memory.has_more);
            drop(memory);
            let pause = match looked {
                Ok(()) if is_full => {
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
                () = self.hand.more(has_more), if pause == LOOK_EVERY => {}
                () = stop.cancelled() => {}
            }
        }
    }

    /// Takes the runs whose turn it is, as many as there are free places, and starts them.
    async fn look(&self, memory: &mut LookMemory) -> Result<(), DatabaseError> {
        let look = self.next_look(memory);
        if look.free == 0 && look.is_reported {
            (memory.has_more, memory.is_full) = (true, false);
            return Ok(());
        }
        match self.worker.database.transaction("take_runs", &look).await {
            Ok(looked) => {
                if let Some(looked) = looked {
                    self.start(looked, EarlyRuns::new(), memory);
                }
                Ok(())
            }
            Err(error) => {
                // Whether it was committed is unknown: then the leases end by themselves.
                memory.reported = None;
                Err(error)
            }
        }
    }

    fn next_look(&self, memory: &LookMemory) -> Look<'_> {
        let reported = memory.reported;
        Look {
            worker: self.worker.id,
            name: &self.worker.name,
            places: self.hand.places(),
            free: self.hand.free(),
            lease: self.executor.timeouts.lease,
            limits: self.limits,
            in_hand: self.hand.runs(),
            answered: self.hand.answered(),
            is_reported: reported.is_some_and(|at| at.elapsed() < REPORT_EVERY),
            memory: memory.clone(),
        }
    }

    /// Goes on with those of the runs taken that are in progress already; loads the others together
    /// and executes each. Each is a task of its own.
    fn start(&self, looked: Looked, mut early: EarlyRuns, memory: &mut LookMemory) {
        *memory = looked.memory;
        metrics::RUNS_TAKEN.increment(looked.taken.len() as u64);
        let mut others: Vec<(TakenRun, Place)> = Vec::new();
        for one in looked.taken {
            match early.remove(&one.turn.key()) {
                Some(run) => {
                    let _ = run.recording.committed.set(run.begun);
                    self.tasks.spawn(run.executing);
                }
                None => others.push((one, self.hand.take(one.turn, one.account, None))),
            }
        }
        if others.is_empty() {
            return;
        }
        let executor = self.executor.clone();
        let tasks = self.tasks.clone();
        self.tasks.spawn(async move {
            let runs: Vec<TakenRun> = others.iter().map(|(one, _)| *one).collect();
            // Where that fails, each run finds out by itself.
            let loaded = load::load(&executor.database, &runs).await;
            let mut loaded = loaded.unwrap_or_default();
            for (one, place) in others {
                let loaded = loaded.remove(&one.turn.key());
                tasks.spawn(executing(executor.clone(), one, loaded, place));
            }
        });
    }

    /// Forgets this worker, so that nobody counts on it.
    pub(crate) async fn forget(worker: Worker) {
        // Where this fails, others notice by the time of its last report.
        let _ = store::forget_worker(&worker.database, worker.id).await;
    }
}

/// Executes a run that was taken.
fn executing(
    executor: Arc<Executor>,
    one: TakenRun,
    loaded: Option<Loaded>,
    place: Place,
) -> impl Future<Output = ()> + Send + 'static {
    // Every line that is logged meanwhile names the run, whatever the level.
    let (run_id, workspace_id) = (one.turn.run, one.turn.workspace);
    let span = tracing::error_span!("run", %run_id, %workspace_id);
    executor.execute(one, loaded, place).instrument(span)
}
