//! A worker, one step after the other: the statements of `worker/src/executor/`, found by their
//! names and put together as its stores do it.

mod steps;

use letterbox_common::{
    ids::{RunId, UserId, WorkspaceId},
    states::{ActionState, RunState},
};
use letterbox_database::Role;
use letterbox_operator::{CancelOutcome, Operator};
use letterbox_tests::{DEFINITION, World};
use std::time::SystemTime;
use tokio_postgres::{Client, Row, types::ToSql};
use uuid::Uuid;

/// The only action.
const ACTION: &str = "post";
/// Leases, pauses and questions last longer than any of this takes.
const LONG: f64 = super::LONG as f64;

/// A run, and what its action calls.
pub struct Run {
    pub workspace: WorkspaceId,
    pub owner: UserId,
    pub run: Uuid,
    pub account: Uuid,
    workflow: Uuid,
    release: Uuid,
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
}

impl Account {
    pub const ALL: [Self; 4] = [Self::Done, Self::Refused, Self::Busy, Self::Silent];

    pub fn state(self) -> ActionState {
        match self {
            Self::Done => ActionState::Succeeded,
            Self::Refused => ActionState::Failed,
            Self::Busy | Self::Silent => ActionState::Retrying,
        }
    }

    /// Of how many attempts the outcome is known now.
    pub fn settled(self) -> i32 {
        match self {
            Self::Done | Self::Refused => i32::MAX,
            Self::Busy => 1,
            Self::Silent => 0,
        }
    }

    /// How the run ends by it.
    pub fn end(self) -> Option<RunState> {
        match self {
            Self::Done => Some(RunState::Succeeded),
            Self::Refused => Some(RunState::Failed),
            Self::Busy | Self::Silent => None,
        }
    }
}

/// What an attempt is decided by.
pub struct Decided {
    /// What the policy says: `allow` or `approve`.
    pub decision: &'static str,
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
            run: Uuid::now_v7(),
            account: Uuid::from_bytes(*account.account_id.as_bytes()),
            workflow: Uuid::from_bytes(*workflow.as_bytes()),
            release: release.unwrap().get(0),
        }
    }

    /// Orders its cancellation.
    pub async fn cancel(&self, operator: &Operator) -> &'static str {
        let cancelled = operator.cancel_runs(self.workspace, &[self.id()]).await;
        let outcome = cancelled.unwrap()[0].outcome;
        outcome.map_or("over", CancelOutcome::as_str)
    }

    /// Orders a retry.
    pub async fn retry(&self, operator: &Operator) -> &'static str {
        let retried = operator
            .retry_runs(self.workspace, &[self.id()], None)
            .await;
        retried.unwrap()[0].outcome.unwrap().as_str()
    }

    fn id(&self) -> RunId {
        self.run.to_string().parse().unwrap()
    }

    fn request(&self) -> String {
        format!(r#"{{"account_id": "{}"}}"#, self.account)
    }
}

/// A connection with the rights of a worker.
pub struct Worker(Client);

impl Worker {
    pub async fn new(world: &World) -> Self {
        Self(world.session(Role::Worker).await)
    }

    async fn query(&self, name: &str, arguments: &[&(dyn ToSql + Sync)]) -> Vec<Row> {
        let answer = self.0.query(super::of_worker(name).sql, arguments).await;
        answer.unwrap_or_else(|error| panic!("{name}: {error:?}"))
    }

    async fn order(&self, order: &str) {
        self.0.batch_execute(order).await.unwrap();
    }

    /// Records a run that arrives; false if it was recorded before.
    pub async fn record(&self, run: &Run) -> bool {
        let workspace = one(run.workspace);
        self.order("BEGIN").await;
        self.query("lock_usage", &[&workspace]).await;
        let nothing = one(None::<&str>);
        let inserted = self
            .query(
                "insert_runs",
                &[
                    /* $1 workspace_id */ &workspace,
                    /* $2 run_id */ &one(run.run),
                    /* $3 workflow_id */ &one(run.workflow),
                    /* $4 release_id */ &one(run.release),
                    /* $5 received_at */ &one(SystemTime::now()),
                    /* $6 request_id */ &nothing,
                    /* $7 traceparent */ &nothing,
                    /* $8 input */ &one(&b"{}"[..]),
                    /* $9 max_daily_bytes */ &i64::MAX,
                    /* $10 found_by */ &nothing,
                ],
            )
            .await;
        let is_new = !inserted.is_empty();
        self.order("COMMIT").await;
        is_new
    }

    /// Looks whether the run is due, and takes it.
    pub async fn take(&self, run: &Run) -> Option<(i64, Taken)> {
        self.order("BEGIN").await;
        self.query("lock_turns", &[]).await;
        let mut due = self.query("runs_by_time", &[&1_000_i64, &true]).await;
        let lane = (one(run.workspace), one(Uuid::nil()));
        let since = one(SystemTime::UNIX_EPOCH);
        let most = one(10_i64);
        due.extend(
            self.query("ready_runs", &[&lane.0, &lane.1, &since, &most])
                .await,
        );
        let due = due
            .iter()
            .find(|row| row.get::<_, Uuid>("run_id") == run.run);
        let taken = match due.map(|row| row.get::<_, SystemTime>("due_at")) {
            Some(due) => {
                let (workspace, run) = (one(run.workspace), one(run.run));
                self.query("take_runs", &[&workspace, &run, &one(due), &LONG])
                    .await
            }
            None => Vec::new(),
        };
        self.order("COMMIT").await;
        let row = taken.first()?;
        let taken = Taken {
            is_first: row.get("is_first"),
            idle: row.get("idle_turns"),
            is_cancelled: row.get("is_cancelled"),
        };
        Some((row.get("turn"), taken))
    }

    /// Reads the facts of a run, and the record of its action, if it has one.
    pub async fn load(&self, run: &Run) -> (Row, Option<Row>) {
        let (workspace, ids) = (one(run.workspace), one(run.run));
        let facts = self
            .query("load_runs", &[&workspace, &ids, &one(run.account)])
            .await;
        let records = [&workspace as _, &ids as _, &one(true) as _];
        let record = self.query("action_records", &records).await;
        let facts = facts.into_iter().next().expect("the run is there");
        (facts, record.into_iter().next())
    }
}

fn one<T>(value: T) -> Vec<T> {
    vec![value]
}

/// A run, its turn and its action, as arguments.
fn keys(run: &Run, token: i64) -> (Vec<WorkspaceId>, Vec<Uuid>, Vec<i64>, Vec<&'static str>) {
    (one(run.workspace), one(run.run), one(token), one(ACTION))
}
