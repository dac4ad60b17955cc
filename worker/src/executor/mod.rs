//! The executor: takes a run, continues where its record says that it is, and does one action after
//! the other, each recorded before and after. Whatever ends an executor, the next one continues
//! from the record: with the same request, under the same key.
//!
//! Nothing is waited for while a run is leased. A retry, a person's answer, and the end of a dead
//! worker's lease each have a row in the outbox, whose relay wakes the run when it is time.
//!
//! ```text
//! take the lease ─> plan: the next action ─┬─ choose: evaluate it, record it ──────────┐
//!        ^                 ^               ├─ send: facts, policy, approval, request ──┤
//!        │                 │               ├─ delegate: ask, call, as a model says ────┤
//!        │                 │               └─ wait: woken when it is time ─────────────┤
//!        └── woken later   └──────────────── recorded: continue ───────────────────────┘
//! ```

mod answers;
mod delegate;
mod evaluate;
mod load;
mod outbox;
mod permission;
mod plan;
mod prepare;
mod run_in_progress;
mod send;
mod store;
mod verdict;

use std::{
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use letterbox_common::{
    ids::{RunId, WorkspaceId},
    sealing::KeyRing,
    states::{ActionState, RunState},
};
use letterbox_database::{Database, DatabaseError, Fault, Statement};
use letterbox_traces::{SpanKind, child};
use letterbox_workflow::{Condition, actions::Step};
use tokio_util::sync::CancellationToken;

pub(crate) use self::outbox::{Limits, Relay, RelayHints, wake_again};
use self::{
    evaluate::evaluate,
    plan::Next,
    run_in_progress::RunInProgress,
    store::{ActionRecord, ActionUpdate, Lease, Transition, Written},
};
use crate::{egress::Egress, metrics};

/// How long one executor works on a run without a break: the broker does not wait forever for an
/// acknowledgement.
const TIME_SLICE: Duration = Duration::from_secs(300);
/// Longest pause before another try to record what became of a request: to forget it would mean to
/// send it again.
const MAX_RECORD_PAUSE: Duration = Duration::from_secs(1);
/// Holders in a row that may record nothing before a run is given up: what its turns come to is
/// always the same then, or ends their worker.
const MAX_IDLE_TURNS: i32 = 20;

/// Every statement of the executor.
pub(crate) fn statements() -> impl Iterator<Item = &'static [&'static Statement]> {
    store::statements().chain([outbox::STATEMENTS])
}

/// How long things may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timeouts {
    /// How long a worker may be silent about a run before another one takes it over. Longer than
    /// any request takes.
    pub lease: Duration,
    /// Pause before the second attempt at an action; doubled for each further one.
    pub retry: Duration,
    /// How long a person may take to approve an action.
    pub approval: Duration,
}

/// Executes runs. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Executor {
    pub(crate) database: Database,
    pub(crate) keys: KeyRing,
    pub(crate) egress: Egress,
    pub(crate) timeouts: Timeouts,
    /// Told when a run is let go of: there is room for another one.
    pub(crate) relay: RelayHints,
    /// Cancelled when the process is told to stop: no action begins any more.
    pub(crate) stop: CancellationToken,
}

/// The fencing token of whoever advances a run, once it has the lease. Known outside, so that a run
/// whose holder has panicked is given up for that holder only.
pub(crate) type FencingToken = Arc<OnceLock<i32>>;

/// What a step leaves to do for the holder of the lease.
enum Progress {
    /// Something is recorded of an action: continue.
    Recorded {
        action: String,
        record: ActionRecord,
    },
    /// An action has failed, and the run with it, for this reason: continue with what follows that.
    Failing {
        action: String,
        record: ActionRecord,
        reason: String,
    },
    /// The run is over, waits, or belongs to another holder.
    Stop,
}

impl Executor {
    /// Advances a run as far as it can come now. Does nothing when it is over, or leased by
    /// somebody else.
    ///
    /// # Errors
    /// When the database does not answer: trying again is safe.
    pub(crate) async fn advance(
        &self,
        workspace: WorkspaceId,
        run: RunId,
        token: &FencingToken,
    ) -> Result<(), DatabaseError> {
        // Lease.
        let taking = store::take_run(&self.database, workspace, run, self.timeouts.lease);
        let Some(leased) = taking.await? else {
            return Ok(());
        };

        let lease = leased.lease;
        // Nobody else sets it.
        let _ = token.set(lease.fencing_token);
        if leased.is_cancelled {
            // Whatever is recorded, it is cancelled with it.
            return self.end(&lease, Transition::Pause(Duration::ZERO)).await;
        }
        if leased.idle_turns > MAX_IDLE_TURNS {
            let reason = format!("given up: {MAX_IDLE_TURNS} turns in a row recorded no progress");
            return self.end(&lease, Transition::Fail(reason)).await;
        }

        let parent = leased.traceparent.as_deref();
        let mut span = parent.and_then(|parent| child(SpanKind::Internal, "run", parent));
        if let Some(span) = &mut span {
            span.set("letterbox.run_id", run.to_string());
            span.set("letterbox.turn", i64::from(lease.fencing_token));
        }

        // Release and input.
        let mut run = match self.load(leased, span.as_ref()).await? {
            Ok(run) => run,
            Err(reason) => return self.end(&lease, Transition::Fail(reason)).await,
        };

        // One action after the other. When the process stops, another one goes on at once.
        let began = Instant::now();
        while !self.stop.is_cancelled() && began.elapsed() <= TIME_SLICE {
            match self.step(&run).await? {
                Progress::Recorded { action, record } => run.note(action, record),
                Progress::Failing {
                    action,
                    record,
                    reason,
                } => {
                    run.note(action, record);
                    run.begin_failing(reason);
                }
                Progress::Stop => return Ok(()),
            }
        }
        self.end(&lease, Transition::Pause(Duration::ZERO)).await
    }

    /// Ends this holder's turn.
    async fn end(&self, lease: &Lease, transition: Transition) -> Result<(), DatabaseError> {
        let written = store::write_step(&self.database, lease, None, &transition).await?;
        note(lease, written, &transition);
        Ok(())
    }

    /// Marks a run as failed that can't be advanced, ever: because of a bug, or because the
    /// database refuses what would be recorded. Does nothing to a run that somebody else has.
    ///
    /// # Errors
    /// When not even that can be recorded.
    pub(crate) async fn abandon(
        &self,
        workspace: WorkspaceId,
        run: RunId,
        token: &FencingToken,
    ) -> Result<(), DatabaseError> {
        let (reason, token) = (
            "the run can't continue: this is a bug in Letterbox",
            token.get(),
        );
        store::abandon_run(&self.database, workspace, run, token.copied(), reason).await
    }

    /// Does the next action, or ends the run.
    async fn step(&self, run: &RunInProgress) -> Result<Progress, DatabaseError> {
        let next = match run.next(None) {
            Ok(next) => next,
            Err(end) => return self.record(run, None, &end).await.map(|_| Progress::Stop),
        };
        match &next.action.step {
            Step::Choose(condition) => match holds(condition, run).await {
                Ok(holds) => {
                    let update = ActionUpdate {
                        branch: Some(holds.into()),
                        ..next.update(ActionState::Succeeded)
                    };
                    self.done(run, update, None).await
                }
                Err(reason) => {
                    let update = next.update(ActionState::Failed);
                    self.fail(run, update, reason, None).await
                }
            },
            Step::Send(outgoing) => self.send(run, &next, outgoing).await,
            Step::Delegate(agent) => self.delegate(run, &next, agent).await,
            Step::Wait(time) => self.wait(run, &next, *time).await,
        }
    }

    /// Lets go of the run until its time has come.
    async fn wait(
        &self,
        run: &RunInProgress,
        next: &Next<'_>,
        time: Duration,
    ) -> Result<Progress, DatabaseError> {
        let record = run.record_of(next.action);
        let time_left = match record.state {
            Some(ActionState::Waiting) => record.retry_in,
            _ => Some(time),
        };
        match time_left {
            None => {
                self.done(run, next.update(ActionState::Succeeded), None)
                    .await
            }
            Some(time_left) => {
                let update = next.update(ActionState::Waiting);
                self.pause(run, &update, time_left).await
            }
        }
    }

    /// The action succeeded: continue with the next one. `answer` is kept where somebody may use
    /// it.
    async fn done(
        &self,
        run: &RunInProgress,
        update: ActionUpdate<'_>,
        answer: Option<Vec<u8>>,
    ) -> Result<Progress, DatabaseError> {
        let id = &update.action.id;
        let is_kept = update.part_of.is_some() || run.release.uses_answer_of(id);
        let answer = answer.filter(|_| is_kept);
        let sealed = answer
            .as_deref()
            .map(|answer| self.seal_answer(run, id, answer));
        let update = ActionUpdate {
            answer: sealed.flatten(),
            ..update
        };
        let record = ActionRecord {
            answer,
            status: update.status,
            ..ActionRecord::done(update.branch)
        };
        self.go_on(run, &update, record).await
    }

    /// Records something of an action that the run goes on after; ends the run where that was the
    /// last one.
    async fn go_on(
        &self,
        run: &RunInProgress,
        update: &ActionUpdate<'_>,
        record: ActionRecord,
    ) -> Result<Progress, DatabaseError> {
        let id = update.action.id.as_str();
        let end = run.next(Some((id, &record))).err();
        let transition = end.unwrap_or(Transition::Continue(self.timeouts.lease));
        let goes_on = self.record(run, Some(update), &transition).await? && !transition.is_end();
        Ok(match goes_on {
            true => Progress::Recorded {
                action: id.to_owned(),
                record,
            },
            false => Progress::Stop,
        })
    }

    /// The action failed, and the run with it; what follows a failure comes next, once.
    async fn fail(
        &self,
        run: &RunInProgress,
        update: ActionUpdate<'_>,
        reason: String,
        answer: Option<Vec<u8>>,
    ) -> Result<Progress, DatabaseError> {
        let id = &update.action.id;
        let why = format!("{id}: {reason}");
        // The beginning, for whoever looks why.
        let answer = answer.map(answers::excerpt);
        let sealed = answer
            .as_deref()
            .and_then(|answer| self.seal_answer(run, id, answer));
        let update = ActionUpdate {
            error: Some(reason),
            answer: sealed,
            ..update
        };
        let transition = match &run.failing {
            Some(first) => Transition::Fail(format!("{first}; after that, {why}")),
            None if run.release.on_failure.is_empty() => Transition::Fail(why),
            None => Transition::BeginFailing(self.timeouts.lease, why),
        };
        let holds_lease = self.record(run, Some(&update), &transition).await?;
        Ok(match transition {
            Transition::BeginFailing(_, reason) if holds_lease => Progress::Failing {
                action: id.clone(),
                record: ActionRecord {
                    status: update.status,
                    answer,
                    ..ActionRecord::default()
                },
                reason,
            },
            _ => Progress::Stop,
        })
    }

    /// Records the action and lets go of the run; the outbox wakes it.
    async fn pause(
        &self,
        run: &RunInProgress,
        update: &ActionUpdate<'_>,
        pause: Duration,
    ) -> Result<Progress, DatabaseError> {
        let later = Transition::Pause(pause);
        let recording = self.record(run, Some(update), &later);
        recording.await.map(|_| Progress::Stop)
    }

    /// Records a step, and tries again for as long as the database is away: what became of a
    /// request is known here and nowhere else. False when the lease is lost, or the run was
    /// cancelled meanwhile.
    async fn record(
        &self,
        run: &RunInProgress,
        update: Option<&ActionUpdate<'_>>,
        transition: &Transition,
    ) -> Result<bool, DatabaseError> {
        let mut pause = MAX_RECORD_PAUSE / 16;
        let written = loop {
            let written = store::write_step(&self.database, &run.lease, update, transition).await;
            match written {
                Err(error) if error.fault == Fault::Transient => {
                    tracing::warn!(run_id = %run.lease.run, %error, "a step is not recorded yet");
                }
                written => break written?,
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(MAX_RECORD_PAUSE);
        };
        Ok(note(&run.lease, written, transition))
    }
}

/// Whether a condition is true for the values of the run.
async fn holds(condition: &Condition, run: &RunInProgress) -> Result<bool, String> {
    let (condition, context) = (condition.clone(), run.context.clone());
    evaluate(move || condition.holds(&context)).await
}

/// Counts a run that is over, and says why it failed. Gives whether the caller still has the run.
fn note(lease: &Lease, written: Option<Written>, transition: &Transition) -> bool {
    let Some(written) = written else { return false };
    let state = match written.is_cancelled {
        true => RunState::Cancelled,
        false => transition.run_state(),
    };
    if written.is_cancelled || transition.is_end() {
        metrics::RUNS_FINISHED.add([state.as_str()], 1);
    }
    if let Transition::Fail(reason) | Transition::Deny(reason) = transition {
        let workspace_id = lease.workspace;
        tracing::info!(run_id = %lease.run, %workspace_id, %state, %reason, "a run has ended");
    }
    !written.is_cancelled
}
