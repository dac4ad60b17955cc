//! The executor: takes a run, continues where its record says that it is, and does one action after
//! the other, each recorded before and after. Whatever ends an executor, the next one continues
//! from the record: with the same request, under the same key.
//!
//! Nothing is waited for while a run is leased. A retry, a person's answer, and the end of a dead
//! worker's lease each have a row in the outbox, whose relay wakes the run when it is time.
//!
//! ```text
//! take the lease ─> plan: the next action ─┬─ choose: evaluate it, record it ──────────┐
//!        ^                 ^               └─ send: facts, policy, approval, request ──┤
//!        └── woken later   └──────────────── recorded: continue ───────────────────────┘
//! ```

mod outbox;
mod permission;
mod plan;
mod send;
mod store;
mod verdict;

use std::{
    collections::HashMap,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use letterbox_common::{
    ids::{AccountId, RunId, UserId, WorkspaceId},
    sealing::KeyRing,
    states::ActionState,
};
use letterbox_database::{Database, DatabaseError, Fault, Statement};
use letterbox_workflow::{
    TemplateContext,
    actions::{Action, Branch, Step},
    release,
};
use tokio::task::block_in_place;
use tokio_util::sync::CancellationToken;

pub(crate) use self::outbox::{Limits, Relay, RelayHints, wake_again};
use self::store::{ActionRecord, ActionUpdate, Lease, LeasedRun, Transition};
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

/// A run that this executor holds the lease of.
struct RunInProgress {
    lease: Lease,
    /// The user under whose identity it runs.
    owner: UserId,
    /// The account that it may call: the relay counts how many do.
    account: Option<AccountId>,
    context: TemplateContext,
    actions: Vec<Action>,
    records: HashMap<String, ActionRecord>,
}

/// What a step leaves to do for the holder of the lease.
enum Progress {
    /// An action is done: continue with the next one.
    Done {
        action: String,
        branch: Option<Branch>,
    },
    /// The run is over, waits, or belongs to another holder.
    Stop,
}

impl RunInProgress {
    /// What is recorded of an action; an empty record before its first step.
    fn record_of(&self, action: &Action) -> ActionRecord {
        self.records.get(&action.id).cloned().unwrap_or_default()
    }
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
            return store::cancel_run(&self.database, &lease).await.map(drop);
        }
        if leased.idle_turns > MAX_IDLE_TURNS {
            let reason = format!("given up: {MAX_IDLE_TURNS} turns in a row came to nothing");
            return self.end(&lease, Transition::Fail(reason)).await;
        }

        // Release and input.
        let mut run = match self.load(leased).await? {
            Ok(run) => run,
            Err(reason) => return self.end(&lease, Transition::Fail(reason)).await,
        };

        // One action after the other. When the process stops, another one goes on at once.
        let began = Instant::now();
        while !self.stop.is_cancelled() && began.elapsed() <= TIME_SLICE {
            match self.step(&run).await? {
                Progress::Done { action, branch } => {
                    run.records.insert(action, ActionRecord::done(branch));
                }
                Progress::Stop => return Ok(()),
            }
        }
        self.end(&lease, Transition::Pause(Duration::ZERO)).await
    }

    /// Ends this holder's turn.
    async fn end(&self, lease: &Lease, transition: Transition) -> Result<(), DatabaseError> {
        let written = store::write_step(&self.database, lease, None, &transition).await?;
        note_end(written.is_some(), &transition);
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

    /// The actions, values and records of a run; or why it can't be executed.
    async fn load(
        &self,
        leased: LeasedRun,
    ) -> Result<Result<RunInProgress, String>, DatabaseError> {
        let Lease { workspace, run, .. } = leased.lease;
        let actions = match release::load(&leased.actions) {
            Ok(actions) => actions,
            Err(error) => {
                let release_id = leased.release;
                tracing::error!(run_id = %run, %release_id, %error, "a release can't be loaded");
                return Ok(Err(error.to_string()));
            }
        };
        let input = String::from_utf8_lossy(&leased.input);
        let received_at = format!("{:.3}", leased.received_at);
        let context = match TemplateContext::of_run(&input, &run.to_string(), &received_at) {
            Ok(context) => context,
            Err(error) => return Ok(Err(format!("the input can't be read: {error}"))),
        };
        let records = store::action_records(&self.database, workspace, run).await?;
        Ok(Ok(RunInProgress {
            lease: leased.lease,
            owner: leased.owner,
            account: leased.account,
            context,
            actions,
            records,
        }))
    }

    /// Does the next action, or ends the run.
    async fn step(&self, run: &RunInProgress) -> Result<Progress, DatabaseError> {
        let Some(next) = plan::next(&run.actions, &run.records) else {
            return self
                .record(run, None, &Transition::Succeed)
                .await
                .map(|_| Progress::Stop);
        };
        match &next.action.step {
            Step::Choose(condition) => match block_in_place(|| condition.holds(&run.context)) {
                Ok(holds) => {
                    let update = next.update(ActionState::Succeeded);
                    self.done(run, update, Some(holds.into()), None).await
                }
                Err(error) => {
                    let update = next.update(ActionState::Failed);
                    self.fail(run, update, error.to_string(), None).await
                }
            },
            Step::Send(outgoing) => self.send(run, &next, outgoing.as_ref()).await,
        }
    }

    /// The action succeeded: continue with the next one.
    async fn done(
        &self,
        run: &RunInProgress,
        update: ActionUpdate<'_>,
        branch: Option<Branch>,
        status: Option<u16>,
    ) -> Result<Progress, DatabaseError> {
        let update = ActionUpdate {
            branch,
            status,
            ..update
        };
        let going_on = Transition::Continue(self.timeouts.lease);
        Ok(match self.record(run, Some(&update), &going_on).await? {
            true => Progress::Done {
                action: update.action.id.clone(),
                branch,
            },
            false => Progress::Stop,
        })
    }

    /// The action failed, and the run with it.
    async fn fail(
        &self,
        run: &RunInProgress,
        update: ActionUpdate<'_>,
        reason: String,
        status: Option<u16>,
    ) -> Result<Progress, DatabaseError> {
        let failed = Transition::Fail(format!("{}: {reason}", update.action.id));
        let update = ActionUpdate {
            status,
            error: Some(reason),
            ..update
        };
        self.record(run, Some(&update), &failed)
            .await
            .map(|_| Progress::Stop)
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
        note_end(written.is_some(), transition);
        let Some(written) = written else {
            return Ok(false);
        };
        // What is over stays so; else this was the last step.
        if written.is_cancelled && !transition.is_end() {
            store::cancel_run(&self.database, &run.lease).await?;
            return Ok(false);
        }
        Ok(true)
    }
}

/// Counts a run that is over.
fn note_end(holds_lease: bool, transition: &Transition) {
    if holds_lease && transition.is_end() {
        metrics::RUNS_FINISHED.add([transition.run_state().as_str()], 1);
    }
}
