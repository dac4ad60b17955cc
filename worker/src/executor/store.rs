//! The record of runs: taking a run, reading what has been done, and writing each step with
//! everything that belongs to it in one statement. A step is written by the holder of the run's
//! last turn, or not at all.

use std::{collections::HashMap, time::Duration};

use deadpool_postgres::Pool;
use jiff::Timestamp;
use letterbox_common::{
    database::{Checkout, DatabaseError, storable, within},
    ids::{AccountId, ApprovalId, ReleaseId, RunId, UserId, WorkspaceId},
};
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use crate::{
    actions::Branch,
    policy::{Ruling, Steering},
};

/// take_run: leases a run that is not over and that nobody has, for one more turn
const TAKE: &str = "
WITH taken AS (
    UPDATE runs SET state = CASE state WHEN 'queued' THEN 'running' ELSE state END, turn = turn + 1,
        lease_until = clock_timestamp() + $3::float8 * interval '1 second', started_at = coalesce(started_at, clock_timestamp())
    WHERE workspace_id = $1 AND run_id = $2 AND state IN ('queued', 'running', 'waiting_approval')
      AND coalesce(lease_until, '-infinity') <= clock_timestamp()
    RETURNING workspace_id, run_id, workflow_id, release_id, run_as, turn, received_at, input, lease_until
), wake AS (
    INSERT INTO run_wakes (workspace_id, run_id, due_at) SELECT workspace_id, run_id, lease_until FROM taken
    ON CONFLICT (workspace_id, run_id) DO UPDATE SET due_at = EXCLUDED.due_at
), no_wake AS (
    DELETE FROM run_wakes w USING runs r
    WHERE w.workspace_id = $1 AND w.run_id = $2 AND r.workspace_id = $1 AND r.run_id = $2
      AND r.state NOT IN ('queued', 'running', 'waiting_approval')
)
SELECT t.turn, t.run_as, t.release_id, t.received_at, t.input, r.actions
FROM taken t JOIN releases r USING (workspace_id, workflow_id, release_id)";

/// records: what a run has done, with the answers of people
const RECORDS: &str = "
SELECT a.action_id, a.state = 'succeeded', a.outcome, a.request, a.attempts,
       extract(epoch FROM a.retry_at - clock_timestamp())::float8, p.state,
       extract(epoch FROM p.expires_at - clock_timestamp())::float8
FROM run_actions a LEFT JOIN approvals p USING (workspace_id, run_id, action_id)
WHERE a.workspace_id = $1 AND a.run_id = $2";

/// facts: what holds at the moment of an action: may the owner run, the owner's account, the policy
const FACTS: &str = "
SELECT coalesce((SELECT may_run FROM members WHERE workspace_id = $1 AND user_id = $2), false),
       a.account_id, a.base_url, a.header_name, a.credential_sealed, p.version, p.policy
FROM (SELECT) AS one
LEFT JOIN connected_accounts a
    ON a.workspace_id = $1 AND a.user_id = $2 AND a.name = $3 AND a.disconnected_at IS NULL
LEFT JOIN LATERAL (
    SELECT version, policy FROM policies WHERE workspace_id = $1 ORDER BY version DESC LIMIT 1
) AS p ON true";

/// write_step: the state of the run, of the action, its question to people and the next wake, for
/// the holder of the turn
const STEP: &str = "
WITH held AS (
    UPDATE runs SET state = $4, failure = $5, lease_until = clock_timestamp() + $6::float8 * interval '1 second',
        finished_at = CASE WHEN $4 IN ('succeeded', 'failed', 'denied') THEN clock_timestamp() END
    WHERE workspace_id = $1 AND run_id = $2 AND turn = $3 AND state IN ('running', 'waiting_approval')
    RETURNING workspace_id, run_id
), wake AS (
    INSERT INTO run_wakes (workspace_id, run_id, due_at)
    SELECT workspace_id, run_id, clock_timestamp() + $7::float8 * interval '1 second' FROM held WHERE $7::float8 IS NOT NULL
    ON CONFLICT (workspace_id, run_id) DO UPDATE SET due_at = EXCLUDED.due_at
), no_wake AS (
    DELETE FROM run_wakes w USING held
    WHERE $7::float8 IS NULL AND w.workspace_id = held.workspace_id AND w.run_id = held.run_id
), noted AS (
    INSERT INTO run_actions AS a (workspace_id, run_id, action_id, position, type, state, untrusted, steered_by, decision,
        decision_rule, policy_version, request, idempotency_key, attempts, response_status, outcome, error, retry_at, finished_at)
    SELECT workspace_id, run_id, $8,
        (SELECT count(*) + 1 FROM run_actions b WHERE b.workspace_id = held.workspace_id AND b.run_id = held.run_id),
        $9, $10, $11::text[], $12, $13, $14::int, $15::int, $16, $17::uuid, $18::int, $19::int, $20, $21,
        CASE WHEN $10 = 'retrying' THEN clock_timestamp() + $7::float8 * interval '1 second' END,
        CASE WHEN $10 IN ('succeeded', 'failed', 'denied') THEN clock_timestamp() END
    FROM held WHERE $8::text IS NOT NULL
    ON CONFLICT (workspace_id, run_id, action_id) DO UPDATE SET
        state = EXCLUDED.state, decision = coalesce(EXCLUDED.decision, a.decision),
        decision_rule = CASE WHEN EXCLUDED.decision IS NULL THEN a.decision_rule ELSE EXCLUDED.decision_rule END,
        policy_version = coalesce(EXCLUDED.policy_version, a.policy_version), request = coalesce(a.request, EXCLUDED.request),
        attempts = a.attempts + EXCLUDED.attempts, response_status = coalesce(EXCLUDED.response_status, a.response_status),
        outcome = EXCLUDED.outcome, error = EXCLUDED.error, retry_at = EXCLUDED.retry_at, finished_at = EXCLUDED.finished_at
    RETURNING workspace_id, run_id, action_id, state, idempotency_key
), asked AS (
    INSERT INTO approvals (workspace_id, approval_id, run_id, action_id, expires_at)
    SELECT workspace_id, $22::uuid, run_id, action_id, clock_timestamp() + $7::float8 * interval '1 second'
    FROM noted WHERE $22::uuid IS NOT NULL
    ON CONFLICT (workspace_id, run_id, action_id) DO NOTHING
), closed AS (
    -- A run that is over asks nothing any more; nor does an action that goes ahead without an answer.
    UPDATE approvals p SET state = 'expired', decided_at = clock_timestamp() FROM held
    WHERE p.workspace_id = held.workspace_id AND p.run_id = held.run_id AND p.state = 'pending'
      AND ($4 IN ('succeeded', 'failed', 'denied') OR (p.action_id = $8 AND $10 = 'running'))
)
SELECT (SELECT idempotency_key FROM noted) FROM held";

/// answered_meanwhile: wakes a run at once whose question was answered while it was being asked; a
/// statement of its own, because only a new one sees the answer
const ANSWERED_MEANWHILE: &str = "
UPDATE run_wakes w SET due_at = clock_timestamp()
FROM approvals p
WHERE w.workspace_id = $1 AND w.run_id = $2 AND p.workspace_id = w.workspace_id AND p.run_id = w.run_id
  AND p.action_id = $3 AND p.state <> 'pending'";

/// abandon_run: ends a run that nobody has, or whose lease nobody will renew
const ABANDON: &str = "
WITH abandoned AS (
    UPDATE runs SET state = 'failed', failure = $3, lease_until = NULL, turn = turn + 1, finished_at = clock_timestamp()
    WHERE workspace_id = $1 AND run_id = $2 AND state IN ('queued', 'running', 'waiting_approval')
    RETURNING workspace_id, run_id
)
DELETE FROM run_wakes w USING abandoned WHERE w.workspace_id = abandoned.workspace_id AND w.run_id = abandoned.run_id";

/// Every statement of this store, for the test that prepares them against the schema under the
/// worker's role.
pub const STATEMENTS: [&str; 6] = [TAKE, RECORDS, FACTS, STEP, ANSWERED_MEANWHILE, ABANDON];

const DEADLINE: Duration = Duration::from_secs(10);

/// A run that was taken.
#[derive(Debug)]
pub struct Taken {
    pub turn: i32,
    pub run_as: UserId,
    pub release: ReleaseId,
    pub received_at: Timestamp,
    /// JSON text that a stranger wrote.
    pub input: Vec<u8>,
    pub actions: String,
}

/// What a person has said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// Nothing yet; the question expires after this time.
    Pending(Duration),
    Approved,
    Denied,
    Expired,
}

/// What has been done of one action.
#[derive(Debug, Clone, Default)]
pub struct Record {
    pub is_done: bool,
    pub branch: Option<Branch>,
    pub request: Option<String>,
    pub attempts: i32,
    /// Time until the next attempt.
    pub retry_in: Option<Duration>,
    pub approval: Option<Answer>,
}

/// An account of the owner, its credential still sealed.
#[derive(Debug)]
pub struct Account {
    pub id: AccountId,
    pub base_url: String,
    pub header: String,
    pub sealed: Vec<u8>,
}

/// What holds at the moment of an action.
#[derive(Debug)]
pub struct Facts {
    pub owner_may_run: bool,
    pub account: Option<Account>,
    /// Version and JSON text.
    pub policy: Option<(i32, String)>,
}

/// What a run becomes by a step.
#[derive(Debug, Clone)]
pub enum After {
    /// Goes on, under a lease of this length.
    Running(Duration),
    /// Goes on later.
    Later(Duration),
    /// Waits for a person, until the question expires.
    Waiting(Duration),
    Succeeded,
    Failed(String),
    Denied(String),
}

/// What is noted of an action.
#[derive(Debug, Clone)]
pub struct Note<'a> {
    pub action: &'a str,
    pub kind: &'static str,
    pub state: &'static str,
    pub data: bool,
    pub control: Option<Steering>,
    pub ruling: Option<(Ruling, i32)>,
    pub request: Option<&'a str>,
    /// Whether this is the beginning of an attempt.
    pub begins: bool,
    pub status: Option<u16>,
    pub branch: Option<Branch>,
    pub error: Option<String>,
}

/// Takes a run; nothing when it is over or somebody has it.
pub async fn take(
    pool: &Pool,
    workspace: WorkspaceId,
    run: RunId,
    lease: Duration,
) -> Result<Option<Taken>, DatabaseError> {
    in_time(async {
        let client = Checkout::get(pool).await?;
        let statement = client.prepare_cached(TAKE).await?;
        let row = client
            .query_opt(&statement, &[&workspace, &run, &lease.as_secs_f64()])
            .await?;
        client.done();
        let Some(row) = row else { return Ok(None) };
        Ok(Some(Taken {
            turn: row.try_get(0)?,
            run_as: row.try_get(1)?,
            release: row.try_get(2)?,
            received_at: row.try_get(3)?,
            input: row.try_get(4)?,
            actions: row.try_get(5)?,
        }))
    })
    .await
}

/// What a run has done, by action.
pub async fn records(
    pool: &Pool,
    workspace: WorkspaceId,
    run: RunId,
) -> Result<HashMap<String, Record>, DatabaseError> {
    in_time(async {
        let client = Checkout::get(pool).await?;
        let statement = client.prepare_cached(RECORDS).await?;
        let rows = client.query(&statement, &[&workspace, &run]).await?;
        client.done();
        let duration = |seconds: f64| Duration::try_from_secs_f64(seconds).ok();
        rows.iter()
            .map(|row| {
                let (outcome, retry_in): (Option<&str>, Option<f64>) =
                    (row.try_get(2)?, row.try_get(5)?);
                let (approval, expires_in): (Option<&str>, Option<f64>) =
                    (row.try_get(6)?, row.try_get(7)?);
                let record = Record {
                    is_done: row.try_get(1)?,
                    branch: outcome.and_then(Branch::read),
                    request: row.try_get(3)?,
                    attempts: row.try_get(4)?,
                    retry_in: retry_in.and_then(duration),
                    approval: approval.map(|state| match (state, expires_in.and_then(duration)) {
                        ("approved", _) => Answer::Approved,
                        ("denied", _) => Answer::Denied,
                        ("pending", Some(expires_in)) => Answer::Pending(expires_in),
                        _ => Answer::Expired,
                    }),
                };
                Ok((row.try_get(0)?, record))
            })
            .collect()
    })
    .await
}

/// What holds now, for an action of `owner` that uses `account`.
pub async fn facts(
    pool: &Pool,
    workspace: WorkspaceId,
    owner: UserId,
    account: &str,
) -> Result<Facts, DatabaseError> {
    in_time(async {
        let client = Checkout::get(pool).await?;
        let statement = client.prepare_cached(FACTS).await?;
        let row = client
            .query_one(&statement, &[&workspace, &owner, &account])
            .await?;
        client.done();
        let account = match row.try_get::<_, Option<AccountId>>(1)? {
            Some(id) => Some(Account {
                id,
                base_url: row.try_get(2)?,
                header: row.try_get(3)?,
                sealed: row.try_get(4)?,
            }),
            None => None,
        };
        let policy = row.try_get::<_, Option<i32>>(5)?.zip(row.try_get(6)?);
        Ok(Facts {
            owner_may_run: row.try_get(0)?,
            account,
            policy,
        })
    })
    .await
}

/// Writes a step of the holder of `turn`. Gives the action's idempotency key back; `None` when the
/// turn is over: somebody else has the run.
pub async fn step(
    pool: &Pool,
    (workspace, run, turn): (WorkspaceId, RunId, i32),
    note: Option<&Note<'_>>,
    after: &After,
) -> Result<Option<Uuid>, DatabaseError> {
    let (state, failure, lease, wake) = match after {
        // Should the holder die, the end of its lease wakes the next one.
        After::Running(lease) => ("running", None, Some(*lease), Some(*lease)),
        After::Later(pause) => ("running", None, None, Some(*pause)),
        After::Waiting(expires_in) => ("waiting_approval", None, None, Some(*expires_in)),
        After::Succeeded => ("succeeded", None, None, None),
        After::Failed(why) => ("failed", Some(storable(why)), None, None),
        After::Denied(why) => ("denied", Some(storable(why)), None, None),
    };
    let error = note.and_then(|note| note.error.as_deref()).map(storable);
    let (lease, wake) = (
        lease.map(|lease| lease.as_secs_f64()),
        wake.map(|wake| wake.as_secs_f64()),
    );
    let mut untrusted = Vec::new();
    untrusted.extend(note.filter(|note| note.data).map(|_| "data"));
    untrusted.extend(note.and_then(|note| note.control).map(|_| "control"));
    let ruling = note.and_then(|note| note.ruling);
    let approval = matches!(after, After::Waiting(_)).then(ApprovalId::generate);
    let status = note.and_then(|note| note.status).map(i32::from);
    let parameters: [&(dyn ToSql + Sync); 22] = [
        &workspace,
        &run,
        &turn,
        &state,
        &failure,
        &lease,
        &wake,
        &note.map(|note| note.action),
        &note.map(|note| note.kind),
        &note.map(|note| note.state),
        &untrusted,
        &note.and_then(|note| note.control).map(Steering::as_str),
        &ruling.map(|(ruling, _)| ruling.decision.as_str()),
        &ruling.and_then(|(ruling, _)| ruling.rule),
        &ruling.map(|(_, version)| version),
        &note.and_then(|note| note.request),
        &Uuid::new_v4(),
        &i32::from(note.is_some_and(|note| note.begins)),
        &status,
        &note.and_then(|note| note.branch).map(Branch::as_str),
        &error,
        &approval,
    ];
    in_time(async {
        let mut client = Checkout::get(pool).await?;
        let row = if let (After::Waiting(_), Some(note)) = (after, note) {
            let transaction = client.transaction().await?;
            let statement = transaction.prepare_cached(STEP).await?;
            let row = transaction.query_opt(&statement, &parameters).await?;
            let statement = transaction.prepare_cached(ANSWERED_MEANWHILE).await?;
            transaction
                .execute(&statement, &[&workspace, &run, &note.action])
                .await?;
            transaction.commit().await?;
            row
        } else {
            let statement = client.prepare_cached(STEP).await?;
            client.query_opt(&statement, &parameters).await?
        };
        client.done();
        let Some(row) = row else { return Ok(None) };
        Ok(Some(row.try_get::<_, Option<Uuid>>(0)?.unwrap_or_default()))
    })
    .await
}

/// Ends a run that can't be brought further.
pub async fn abandon(
    pool: &Pool,
    workspace: WorkspaceId,
    run: RunId,
    why: &str,
) -> Result<(), DatabaseError> {
    in_time(async {
        let client = Checkout::get(pool).await?;
        let statement = client.prepare_cached(ABANDON).await?;
        client
            .execute(&statement, &[&workspace, &run, &why])
            .await?;
        client.done();
        Ok(())
    })
    .await
}

async fn in_time<T>(
    asking: impl Future<Output = Result<T, DatabaseError>>,
) -> Result<T, DatabaseError> {
    within(DEADLINE, "the record of a run", asking).await
}
