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
    time::{Duration, Instant},
};

use letterbox_common::{
    ids::{RunId, UserId, WorkspaceId},
    sealing::KeyRing,
    states::{ActionState, RunState},
};
use letterbox_database::{Database, DatabaseError, Fault, Statement};
use letterbox_workflow::{
    TemplateContext,
    actions::{Action, Branch, Step},
    release,
};

pub(crate) use self::outbox::{relay, wake_again};
use self::{
    plan::Next,
    store::{ActionRecord, ActionUpdate, Lease, LeasedRun, Transition},
};
use crate::{egress::Egress, metrics};

/// How long one executor works on a run without a break: the broker does not wait forever for an
/// acknowledgement.
const TIME_SLICE: Duration = Duration::from_secs(300);
/// Pauses before another try to record what became of a request: to forget it would mean to send
/// it again.
const RECORD_PAUSES: [Duration; 5] = [
    Duration::from_millis(100),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(3),
    Duration::from_secs(5),
];

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
}

/// A run that this executor holds the lease of.
struct RunInProgress {
    lease: Lease,
    /// The user under whose identity it runs.
    owner: UserId,
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
    ) -> Result<(), DatabaseError> {
        // Lease.
        let taking = store::take_run(&self.database, workspace, run, self.timeouts.lease);
        let Some(leased) = taking.await? else {
            return Ok(());
        };

        // Release and input.
        let lease = leased.lease;
        let mut run = match self.load(leased).await? {
            Ok(run) => run,
            Err(reason) => {
                let failed = Transition::Fail(reason);
                return store::write_step(&self.database, &lease, None, &failed)
                    .await
                    .map(drop);
            }
        };

        // One action after the other.
        let began = Instant::now();
        while let Progress::Done { action, branch } = self.step(&run).await? {
            run.records.insert(action, ActionRecord::done(branch));
            if began.elapsed() > TIME_SLICE {
                let later = Transition::Pause(Duration::ZERO);
                return store::write_step(&self.database, &lease, None, &later)
                    .await
                    .map(drop);
            }
        }
        Ok(())
    }

    /// Marks a run as failed that can't be advanced, ever: because of a bug, or because the
    /// database refuses what would be recorded.
    ///
    /// # Errors
    /// When not even that can be recorded.
    pub(crate) async fn abandon(
        &self,
        workspace: WorkspaceId,
        run: RunId,
    ) -> Result<(), DatabaseError> {
        let reason = "the run can't continue: this is a bug in Letterbox";
        store::abandon_run(&self.database, workspace, run, reason).await
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
        let (lease, owner) = (leased.lease, leased.owner);
        Ok(Ok(RunInProgress {
            lease,
            owner,
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
            Step::Choose(condition) => match condition.holds(&run.context) {
                Ok(holds) => self.done(run, &next, Some(holds.into()), None).await,
                Err(error) => self.fail(run, &next, error.to_string(), None).await,
            },
            Step::Send(outgoing) => self.send(run, &next, outgoing.as_ref()).await,
        }
    }

    /// The action succeeded: continue with the next one.
    async fn done(
        &self,
        run: &RunInProgress,
        next: &Next<'_>,
        branch: Option<Branch>,
        status: Option<u16>,
    ) -> Result<Progress, DatabaseError> {
        let update = ActionUpdate {
            branch,
            status,
            ..next.update(ActionState::Succeeded)
        };
        let going_on = Transition::Continue(self.timeouts.lease);
        Ok(match self.record(run, Some(&update), &going_on).await? {
            true => Progress::Done {
                action: next.action.id.clone(),
                branch,
            },
            false => Progress::Stop,
        })
    }

    /// The action failed, and the run with it.
    async fn fail(
        &self,
        run: &RunInProgress,
        next: &Next<'_>,
        reason: String,
        status: Option<u16>,
    ) -> Result<Progress, DatabaseError> {
        let failed = Transition::Fail(format!("{}: {reason}", next.action.id));
        let error = Some(reason);
        let update = ActionUpdate {
            status,
            error,
            ..next.update(ActionState::Failed)
        };
        self.record(run, Some(&update), &failed)
            .await
            .map(|_| Progress::Stop)
    }

    /// Records a step, and tries again while the database is away. False when the lease is lost.
    async fn record(
        &self,
        run: &RunInProgress,
        update: Option<&ActionUpdate<'_>>,
        transition: &Transition,
    ) -> Result<bool, DatabaseError> {
        let write = || store::write_step(&self.database, &run.lease, update, transition);
        let mut written = write().await;
        for pause in RECORD_PAUSES {
            if !matches!(&written, Err(error) if error.fault == Fault::Transient) {
                break;
            }
            tokio::time::sleep(pause).await;
            written = write().await;
        }
        let holds_lease = written?.is_some();
        let state = transition.run_state();
        let over = matches!(
            state,
            RunState::Succeeded | RunState::Failed | RunState::Denied
        );
        if holds_lease && over {
            metrics::RUNS_FINISHED.add([state.as_str()], 1);
        }
        Ok(holds_lease)
    }
}
