//! A worker, one step after the other, by the stores of `worker/src/executor/`.

use letterbox_common::{
    ids::{AccountId, ReleaseId, RunId, UserId, WorkflowId, WorkspaceId},
    states::{ActionState, RunState},
};
use letterbox_database::{Database, DatabaseError, DatabaseSettings, Role, Transaction, Work};
use letterbox_operator::{CancelOutcome, Operator};
use letterbox_tests::{DEFINITION, World};
use letterbox_worker::executor::{
    record::{ActionRecord, RunFacts, TakenRun, Turn},
    store::{begin, load, write},
    transition::{
        self, ActionKey, Answer, AttemptEnd, Beginning, Change, End, Failure, Then, Transition,
    },
    turns::{fairness::Lane, store as turns},
};
use letterbox_workflow::{Decision, Ruling, Taint};
use std::time::{Duration, SystemTime};
use tokio_postgres::Client;
use uuid::Uuid;

/// The only action.
const ACTION: &str = "post";
/// Leases, pauses and questions last longer than any of this takes.
pub const LEASE: Duration = Duration::from_secs(super::LONG);

/// A run, and what its action calls.
pub struct Run {
    pub workspace: WorkspaceId,
    pub owner: UserId,
    pub run: RunId,
    pub account: AccountId,
    workflow: WorkflowId,
    release: ReleaseId,
}

/// What comes with a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    pub is_first: bool,
    pub idle: i32,
    pub is_cancelled: bool,
}

/// What came of a step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Written {
    /// The turn lasted.
    pub is_held: bool,
    /// The run is cancelled, because that was ordered.
    pub is_cancelled: bool,
    /// The answer to the attempt counts.
    pub is_counted: bool,
}

/// What an account says about an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Account {
    Done,
    /// Not done, for good.
    Refused,
    /// Not done, for now.
    Busy,
    /// Nothing: it may have been done.
    Silent,
    /// Nothing, for it was asked nothing.
    Unasked,
    /// The same, in an attempt that may not have begun.
    Unseen,
}

impl Account {
    pub const ALL: [Self; 6] = [
        Self::Done,
        Self::Refused,
        Self::Busy,
        Self::Silent,
        Self::Unasked,
        Self::Unseen,
    ];

    pub fn state(self) -> ActionState {
        match self {
            Self::Done => ActionState::Succeeded,
            Self::Refused => ActionState::Failed,
            Self::Busy | Self::Silent | Self::Unasked | Self::Unseen => ActionState::Retrying,
        }
    }

    /// Of how many attempts the outcome is known now.
    pub fn settled(self) -> i32 {
        match self {
            Self::Done | Self::Refused => i32::MAX,
            Self::Busy | Self::Unasked | Self::Unseen => 1,
            Self::Silent => 0,
        }
    }

    fn attempt_end(self) -> AttemptEnd {
        match self {
            Self::Done | Self::Refused => AttemptEnd::Answered,
            Self::Busy | Self::Unasked | Self::Unseen => AttemptEnd::NotDone,
            Self::Silent => AttemptEnd::Unknown,
        }
    }

    /// How the run ends by it.
    pub fn end(self) -> Option<RunState> {
        match self {
            Self::Done => Some(RunState::Succeeded),
            Self::Refused => Some(RunState::Failed),
            Self::Busy | Self::Silent | Self::Unasked | Self::Unseen => None,
        }
    }
}

/// What an attempt is decided by.
pub struct Decided {
    pub decision: Decision,
    pub policy: i32,
    pub was_asked: bool,
    pub begun: i32,
    pub answered: i32,
}

impl Run {
    /// A run that nobody has recorded yet.
    pub async fn new(world: &World, operator: &Operator) -> Self {
        let (workspace, owner) = super::workspace(operator).await;
        let workflow = operator.create_workflow(workspace, owner, "Contact", DEFINITION);
        let workflow = workflow.await.unwrap().workflow_id;
        operator.deploy(workflow, None).await.unwrap();
        let account = world
            .connect(workspace, owner, "crm", "http://127.0.0.1:1")
            .await;
        let release = "SELECT live_release_id FROM workflows WHERE workflow_id = $1";
        let release = world.database.query_one(release, &[&workflow]).await;
        Self {
            workspace,
            owner,
            run: RunId::generate(),
            account: account.account_id,
            workflow,
            release: release.unwrap().get(0),
        }
    }

    /// Orders its cancellation.
    pub async fn cancel(&self, operator: &Operator) -> &'static str {
        let cancelled = operator.cancel_runs(self.workspace, &[self.run]).await;
        let outcome = cancelled.unwrap()[0].outcome;
        outcome.map_or("over", CancelOutcome::as_str)
    }

    /// Orders a retry.
    pub async fn retry(&self, operator: &Operator) -> &'static str {
        let retried = operator.retry_runs(self.workspace, &[self.run], None).await;
        retried.unwrap()[0].outcome.unwrap().as_str()
    }

    pub fn decided(&self, by: &Decided) -> transition::Decided {
        transition::Decided {
            ruling: Ruling {
                decision: by.decision,
                rule: None,
            },
            policy_version: by.policy,
            request: format!(r#"{{"account_id": "{}"}}"#, self.account),
        }
    }

    pub fn failure(&self, answer: Option<Answer>) -> Failure {
        Failure {
            reason: "because".to_owned(),
            answer,
            is_told: false,
        }
    }

    fn turn(&self, token: i64) -> Turn {
        Turn {
            workspace: self.workspace,
            run: self.run,
            token,
        }
    }
}

fn key(begun: i32, answered: i32) -> ActionKey {
    ActionKey {
        id: ACTION.to_owned(),
        kind: "http.request",
        part_of: None,
        taint: Taint::default(),
        begun,
        answered,
    }
}

/// Two connections with the rights of a worker: of its stores, and one for any statement.
pub struct Worker(Database, Client);

impl Worker {
    pub async fn new(world: &World) -> Self {
        let target = world.database_url.parse().unwrap();
        let database = Database::new(&target, &DatabaseSettings::SINGLE, Role::Worker, "test");
        Self(database.unwrap(), world.session(Role::Worker).await)
    }

    /// Records a run that arrives; false if it was recorded before.
    pub async fn record(&self, run: &Run) -> bool {
        let statement = |name| super::of_worker(name).sql;
        let (workspace, nothing) = (vec![run.workspace], vec![None::<&str>]);
        self.1.batch_execute("BEGIN").await.unwrap();
        let locked = self.1.query(statement("lock_usage"), &[&workspace]).await;
        locked.unwrap();
        let inserted = self
            .1
            .query(
                statement("insert_runs"),
                &[
                    /* $1 workspace_id */ &workspace,
                    /* $2 run_id */ &vec![run.run],
                    /* $3 workflow_id */ &vec![run.workflow],
                    /* $4 release_id */ &vec![run.release],
                    /* $5 received_at */ &vec![SystemTime::now()],
                    /* $6 request_id */ &nothing,
                    /* $7 traceparent */ &nothing,
                    /* $8 input */ &vec![&b"{}"[..]],
                    /* $9 max_daily_bytes */ &i64::MAX,
                    /* $10 found_by */ &nothing,
                ],
            )
            .await;
        self.1.batch_execute("COMMIT").await.unwrap();
        !inserted.unwrap().is_empty()
    }

    /// Looks whether the run is due, and takes it.
    pub async fn take(&self, run: &Run) -> Option<(i64, Taken)> {
        let taken = self.0.transaction("take_runs", &Take(run)).await.unwrap()?;
        let with = Taken {
            is_first: taken.is_first,
            idle: taken.idle_turns,
            is_cancelled: taken.is_cancelled,
        };
        Some((taken.turn.token, with))
    }

    /// Reads the facts of a run, and the record of its action, if it has one.
    pub async fn load(&self, run: &Run) -> (RunFacts, Option<ActionRecord>) {
        let taken = TakenRun {
            turn: run.turn(0),
            is_first: false,
            idle_turns: 0,
            is_cancelled: false,
            account: Some(run.account),
        };
        let mut loaded = load::load(&self.0, &[taken]).await.unwrap();
        let (facts, mut records) = loaded.remove(&taken.turn.key()).expect("the run is there");
        (facts, records.remove(ACTION))
    }

    /// Begins an attempt: the key to send it with.
    pub async fn begin(&self, run: &Run, token: i64, by: &Decided) -> Option<Uuid> {
        let beginning = Beginning {
            turn: run.turn(token),
            action: key(by.begun, by.answered),
            account: run.account,
            decided: run.decided(by),
            timeout: Duration::from_secs(20),
            was_asked: by.was_asked,
            before: None,
        };
        begin::begin(&self.0, &[&beginning], LEASE).await.unwrap()[0]
    }

    async fn step(
        &self,
        run: &Run,
        token: i64,
        action: Option<(ActionKey, Change)>,
        then: Then,
    ) -> Written {
        let turn = run.turn(token);
        let step = Transition {
            turn,
            before: None,
            action,
            sealed: None,
            then,
        };
        let written = write::write(&self.0, &[&step], LEASE).await.unwrap()[0];
        Written {
            is_held: written != transition::Written::NotOurs,
            is_cancelled: written == transition::Written::Cancelled,
            is_counted: false,
        }
    }

    /// Writes what the account has said about an attempt.
    pub async fn write(&self, run: &Run, token: i64, attempt: i32, said: Account) -> Written {
        let answer = Answer {
            attempt,
            end: said.attempt_end(),
            status: None,
            body: None,
            failed_with: None,
        };
        let (change, then) = match said {
            Account::Done => {
                let branch = None;
                (
                    Change::Answered { answer, branch },
                    Then::End(End::Succeeded),
                )
            }
            Account::Refused => {
                let end = End::Failed("because".to_owned());
                (Change::Failed(run.failure(Some(answer))), Then::End(end))
            }
            Account::Unasked => (Change::Withdrawn(attempt), Then::Release(LEASE, None)),
            Account::Unseen => {
                let change = Change::WithdrawnUnseen(attempt);
                (change, Then::Release(LEASE, None))
            }
            Account::Busy | Account::Silent => {
                let (error, pause) = ("because".to_owned(), LEASE);
                let change = Change::Retry {
                    answer,
                    error,
                    pause,
                };
                (change, Then::Release(LEASE, None))
            }
        };
        let answered = async || self.load(run).await.1.map_or(0, |record| record.answered);
        let before = answered().await;
        let written = self.step(run, token, Some((key(0, 0), change)), then).await;
        Written {
            is_counted: before < attempt && answered().await == attempt,
            ..written
        }
    }

    /// Writes what has happened to the action otherwise.
    pub async fn change(
        &self,
        run: &Run,
        token: i64,
        by: &Decided,
        change: Change,
        then: Then,
    ) -> Written {
        let action = (key(by.begun, by.answered), change);
        self.step(run, token, Some(action), then).await
    }

    /// Renews the lease.
    pub async fn keep(&self, run: &Run, token: i64) {
        self.step(run, token, None, Then::Continue).await;
    }

    /// Lets go of the run.
    pub async fn let_go(&self, run: &Run, token: i64) -> Written {
        let then = Then::Release(Duration::ZERO, None);
        self.step(run, token, None, then).await
    }

    /// Ends the run.
    pub async fn end(&self, run: &Run, token: i64, end: End) {
        self.step(run, token, None, Then::End(end)).await;
    }
}

/// Takes a run, if it is due.
struct Take<'r>(&'r Run);

impl Work for Take<'_> {
    type Output = TakenRun;

    async fn run(&self, transaction: &Transaction<'_>) -> Result<Option<TakenRun>, DatabaseError> {
        let lane = Lane {
            workspace: self.0.workspace,
            account: None,
        };
        turns::lock_turns(transaction).await?;
        let seen = turns::see(transaction, Uuid::nil(), Default::default(), 1_000, 1, true).await?;
        let lanes = [(lane, SystemTime::UNIX_EPOCH, 10)];
        let ready = turns::first_runs(transaction, &lanes).await?;
        let due = seen.due.into_iter().chain(ready);
        let due: Vec<_> = due.filter(|one| one.run == self.0.run).collect();
        let taken = turns::take(transaction, &due, &[], None, LEASE).await?;
        Ok(taken.into_iter().next())
    }
}
