//! The executor: executes the runs that `turns` takes. It continues where the record of a run says
//! that it is, and does one action after the other, each recorded before and after. Whatever ends
//! an executor, the next one continues from the record: with the same request, under the same key.
//! `README.md` beside this file is the protocol on one page.
//!
//! Nothing is waited for while a run is in hand, but its recording, and room of its account for a
//! moment. A retry, a delay, a person's answer and the end of a dead worker's lease each have a
//! time in `active_runs`, at which the run is taken again.
//!
//! ```text
//! turns ─> load ─> plan: the next action ─┬─ choose: evaluate it, write it ────────────┐
//!   ^                 ^                   ├─ send: facts, policy, approval, request ───┤
//!   │                 │                   ├─ delegate: ask, call, as a model says ─────┤
//!   │                 │                   └─ wait: taken again when it is time ────────┤
//!   └── let go of     └─────────────────── written: continue ──────────────────────────┘
//! ```

mod answers;
pub mod approvals;
mod batches;
mod budget;
mod conclude;
mod delegate;
mod evaluate;
mod kept_answers;
mod load;
mod parsed;
mod plan;
mod prepare;
pub mod record;
mod run_in_progress;
mod send;
pub mod store;
pub mod transition;
mod trial;
pub mod turns;
mod verdict;

use std::{
    panic::AssertUnwindSafe,
    sync::Arc,
    time::{Duration, Instant},
};

use clap::Args;
use futures_util::FutureExt;
use letterbox_common::{
    cache::Cache,
    ids::WorkspaceId,
    process::settings::{milliseconds, seconds},
    sealing::KeyRing,
    states::{ActionState, RunState},
};
use letterbox_database::{Database, DatabaseError, Fault, Statement};
use letterbox_workflow::{
    Condition,
    actions::{Branch, Step, TIMEOUT},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::{
    batches::Batches,
    budget::Budget,
    parsed::Parsed,
    plan::Next,
    record::{Hindrance, TakenRun, Turn},
    run_in_progress::RunInProgress,
    store::load::Loaded,
    transition::{Change, End, Failure, Outcome, Then, Transition, Written},
    turns::Place,
};
pub(crate) use self::{
    trial::answer_trials,
    turns::{Hand, Limits, TakenAlong, Turns},
};
use crate::{egress::Egress, metrics, outcome, stored_bytes::StoredBytes, worker::Worker};

/// How often the log names an account that could not be used, and how many in that time.
const TELL_EVERY: Duration = Duration::from_secs(60);
const MAX_TOLD: usize = 1_000;
/// How long one worker works on a run without a break: others wait for its place.
const TIME_SLICE: Duration = Duration::from_secs(300);
/// Longest pause before another try while the database is unavailable: what became of a request is
/// known here and nowhere else.
const MAX_PAUSE: Duration = Duration::from_secs(1);
/// How long a request may wait between the commit of its beginning and its sending, and its answer
/// until it is written.
const MARGIN: Duration = Duration::from_secs(15);
/// A lease outlasts a request, and the margin; for one that may take longer it is longer.
pub(crate) const MIN_LEASE: Duration = TIMEOUT.saturating_add(MARGIN);
/// How long a run is left to other workers that this one can't execute.
const LEAVE_FOR: Duration = Duration::from_secs(15);
/// Turns in a row that may record nothing before a run is given up: what they come to is always the
/// same then, or ends their worker.
const MAX_IDLE_TURNS: i32 = 20;

/// Every statement of the executor.
pub(crate) fn statements() -> impl Iterator<Item = &'static [&'static Statement]> {
    store::statements().chain([turns::STATEMENTS])
}

/// How long things may take.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Timeouts {
    /// Time after which another worker takes over a run that its worker has not advanced, in
    /// seconds; at least 35
    #[arg(long = "run-lease", env = "LETTERBOX_RUN_LEASE_SECONDS", value_name = "SECONDS",
          default_value = "60", value_parser = seconds)]
    pub lease: Duration,

    /// Pause before the second attempt at an action, in milliseconds; doubled before each later one
    #[arg(long, env = "LETTERBOX_RETRY_MILLISECONDS", value_name = "MS", default_value = "3500",
        value_parser = milliseconds)]
    pub retry: Duration,

    /// Time that a person has to approve an action, in seconds
    #[arg(long, env = "LETTERBOX_APPROVAL_SECONDS", value_name = "SECONDS", default_value =
        "604800", value_parser = seconds)]
    pub approval: Duration,
}

/// Executes runs.
pub(crate) struct Executor {
    database: Database,
    keys: KeyRing,
    egress: Egress,
    timeouts: Timeouts,
    parsed: Parsed,
    batches: Batches,
    stored_bytes: StoredBytes,
    /// What the answers that templates name may take.
    budget: Budget,
    /// The accounts whose trouble the log has named recently.
    told: Cache<(WorkspaceId, String), ()>,
    /// Cancelled when the process is told to stop: no action begins any more.
    stop: CancellationToken,
}

impl Executor {
    /// An executor that writes with tasks of `writing`, which end when it is dropped.
    pub(crate) fn new(
        worker: Worker,
        timeouts: Timeouts,
        stop: CancellationToken,
        stored_bytes: StoredBytes,
        writing: &TaskTracker,
    ) -> Self {
        Self {
            stored_bytes,
            budget: Budget::new(),
            told: Cache::new(MAX_TOLD, TELL_EVERY),
            parsed: Parsed::new(worker.database.clone()),
            batches: Batches::start(&worker.database, timeouts.lease, writing),
            database: worker.database,
            keys: worker.keys,
            egress: worker.egress,
            timeouts,
            stop,
        }
    }

    /// Executes a run that was taken as far as it can come now. A run that can't be executed fails;
    /// a panic is the failure of this run alone.
    async fn execute(self: Arc<Self>, taken: TakenRun, loaded: Option<Loaded>, place: Place) {
        let executing = self.advance(taken, loaded, &place);
        let error = match AssertUnwindSafe(executing).catch_unwind().await {
            Ok(Ok(())) => return,
            // Told to stop while the database is unavailable: the lease ends by itself.
            Ok(Err(error)) if error.fault == Fault::Transient => return,
            Ok(Err(error)) => error.to_string(),
            Err(_) => "it panicked".to_owned(),
        };
        tracing::error!(%error, "the run can't be executed");
        let reason = "the run can't continue: this is a bug in Letterbox".to_owned();
        // Another turn would end the same way, until the run is given up.
        let _ = self
            .write_of_run(taken.turn, Then::End(End::Failed(reason)), &place)
            .await;
    }

    async fn advance(
        &self,
        taken: TakenRun,
        loaded: Option<Loaded>,
        place: &Place,
    ) -> Result<(), DatabaseError> {
        if taken.is_cancelled {
            // Whatever is written, it is cancelled with it.
            return self.write_of_run(taken.turn, Then::let_go(), place).await;
        }
        if taken.idle_turns > MAX_IDLE_TURNS {
            let reason = format!("given up: {MAX_IDLE_TURNS} turns in a row recorded no progress");
            return self
                .write_of_run(taken.turn, Then::End(End::Failed(reason)), place)
                .await;
        }
        let mut run = match self.load(taken, loaded, place).await {
            Ok(run) => run,
            Err(Hindrance::Lasting(reason)) => {
                return self
                    .write_of_run(taken.turn, Then::End(End::Failed(reason)), place)
                    .await;
            }
            Err(Hindrance::Local(reason)) => {
                return self
                    .write_of_run(taken.turn, left_for(&reason), place)
                    .await;
            }
            Err(Hindrance::Database(error)) => return Err(error),
        };

        // One action after the other. When the process stops, another one goes on at once.
        let began = Instant::now();
        while !self.stop.is_cancelled() && began.elapsed() <= TIME_SLICE {
            let outcome = self.stage(&run).await?;
            if !self.commit(&mut run, outcome).await? {
                return Ok(());
            }
        }
        self.commit(&mut run, Outcome::let_go()).await.map(drop)
    }

    /// What the next action comes to, or how the run ends. Writes nothing of it but the beginning
    /// of an attempt.
    async fn stage(&self, run: &RunInProgress<'_>) -> Result<Outcome, DatabaseError> {
        let next = match run.next(None) {
            Ok(next) => next,
            Err(end) => return Ok(Outcome::Leave(None, Then::End(end))),
        };
        let outcome = match &next.action.step {
            Step::Choose(condition) => self.choose(condition, run, &next).await,
            Step::Send(outgoing) => self.send(run, &next, outgoing).await,
            Step::Delegate(agent) => self.delegate(run, &next, agent).await,
            Step::Wait(time) => Ok(wait(run, &next, *time)),
            Step::Fail(reason) => Err(reason.clone().into()),
        };
        match outcome {
            Ok(outcome) => Ok(outcome),
            Err(Hindrance::Lasting(reason)) => {
                let failure = Failure::unsent(reason, false);
                Ok(Outcome::failed(run.key(&next), failure))
            }
            Err(Hindrance::Local(reason)) => Ok(Outcome::Leave(None, left_for(&reason))),
            Err(Hindrance::Database(error)) => Err(error),
        }
    }

    /// Chooses a branch by the values of the run.
    async fn choose(
        &self,
        condition: &Condition,
        run: &RunInProgress<'_>,
        next: &Next<'_>,
    ) -> Result<Outcome, Hindrance> {
        let values = self.values(run, &next.action.references).await?;
        let condition = condition.clone();
        let context = values.context.clone();
        let holds = run.evaluate(next.action, move || condition.holds(&context));
        let branch: Branch = holds.await?.into();
        Ok(Outcome::GoOn(run.key(next), Change::Chose(branch)))
    }

    /// Writes what a stage came to, and says what that changes for others: the only place that
    /// writes about a run in hand. Returns whether this worker goes on with it.
    async fn commit(
        &self,
        run: &mut RunInProgress<'_>,
        outcome: Outcome,
    ) -> Result<bool, DatabaseError> {
        let (mut action, then) = match outcome {
            Outcome::GoOn(key, change) => (Some((key, change)), None),
            Outcome::Fail(action, why) => (action, Some(run.after_failure(why))),
            Outcome::Leave(action, then) => (action, Some(then)),
        };
        let (sealed, record) = self.kept(run, &mut action);
        let behind = record.as_ref().map(|(id, record)| (&**id, record));
        let then = then.unwrap_or_else(|| match run.next(behind) {
            Ok(_) => Then::Continue,
            Err(end) => Then::End(end),
        });
        let unwritten = run.unwritten.get_mut();
        let before = unwritten.take();
        if before.is_none() && matches!(then, Then::Continue) {
            *unwritten = action.take_if(|(_, change)| change.may_wait());
            if unwritten.is_some()
                && let Some((id, record)) = record
            {
                run.note(id, record);
                return Ok(true);
            }
        }
        let transition = Arc::new(Transition {
            turn: run.turn,
            before,
            action,
            sealed,
            then,
        });
        if !transition.goes_on() {
            // From here on another run may call its account: this one asks nothing any more.
            run.place.calls_no_more();
        }
        run.place.recorded().await;
        let written = self.write(&transition).await?;
        if matches!(&transition.then, Then::Release(after, _) if after.is_zero()) {
            run.place.look_again();
        }
        if !transition.goes_on() || written != Written::Recorded {
            return Ok(false);
        }
        if let Some((action, record)) = record {
            run.note(action, record);
        }
        if let Then::BeginFailing(why) = &transition.then {
            run.begin_failing(why.clone());
        }
        Ok(true)
    }

    /// Writes what becomes of a run that can't be loaded.
    async fn write_of_run(
        &self,
        turn: Turn,
        then: Then,
        place: &Place,
    ) -> Result<(), DatabaseError> {
        place.recorded().await;
        let transition = Transition::of_run(turn, None, then);
        self.write(&transition).await.map(drop)
    }

    /// Writes a transition, and tries again for as long as the database is unavailable.
    async fn write(&self, transition: &Arc<Transition>) -> Result<Written, DatabaseError> {
        let mut pauses = outcome::pauses();
        let mut has_failed = false;
        let written = loop {
            match self.batches.transitions.ask(transition, has_failed).await {
                Err(error) if error.fault == Fault::Transient => {
                    tracing::warn!(%error, "a step is not recorded yet");
                    has_failed = true;
                }
                written => break written?,
            }
            let pause = pauses.next().unwrap_or(MAX_PAUSE).min(MAX_PAUSE);
            tokio::time::sleep(pause).await;
        };
        count_end(written, &transition.then);
        Ok(written)
    }

    /// Asks the database, again for as long as it is unavailable: a run that was taken stays in
    /// hand. Gives up when the process is told to stop.
    async fn persist<T, F>(&self, ask: impl Fn() -> F) -> Result<T, DatabaseError>
    where
        F: Future<Output = Result<T, DatabaseError>>,
    {
        let mut pauses = outcome::pauses();
        loop {
            match ask().await {
                Err(error) if error.fault == Fault::Transient && !self.stop.is_cancelled() => {}
                result => return result,
            }
            let pause = pauses.next().unwrap_or(MAX_PAUSE).min(MAX_PAUSE);
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.stop.cancelled() => {}
            }
        }
    }
}

/// Lets go of the run until its time has come.
fn wait(run: &RunInProgress<'_>, next: &Next<'_>, time: Duration) -> Outcome {
    let record = run.record_of(next.action);
    let time_left = match record.state {
        Some(ActionState::Waiting) => record.retry_in,
        _ => Some(time),
    };
    let key = run.key(next);
    match time_left {
        None => Outcome::GoOn(key, Change::Waited),
        Some(time) => {
            let change = Some((key, Change::Waiting(time)));
            Outcome::Leave(change, Then::Release(time, None))
        }
    }
}

/// What becomes of a run that this worker can't execute.
fn left_for(reason: &str) -> Then {
    tracing::error!(%reason, "a run is left to other workers");
    Then::Release(LEAVE_FOR, None)
}

/// Counts a run that is over, and says why it failed.
fn count_end(written: Written, then: &Then) {
    let state = match (written, then) {
        (Written::NotOurs, _) => return,
        (Written::Cancelled, _) => RunState::Cancelled,
        (Written::Recorded, Then::End(End::Succeeded)) => RunState::Succeeded,
        (Written::Recorded, Then::End(End::Failed(_))) => RunState::Failed,
        (Written::Recorded, Then::End(End::Denied(_))) => RunState::Denied,
        (Written::Recorded, _) => return,
    };
    metrics::RUNS_FINISHED.add([state.as_str()], 1);
    if let Then::End(End::Failed(reason) | End::Denied(reason)) = then {
        tracing::info!(%state, %reason, "a run has ended");
    }
}
