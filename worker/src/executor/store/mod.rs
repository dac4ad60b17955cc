//! The record of runs: taking a run, and loading what has been done and what holds now. `step`
//! writes the record, `change` is what it writes.

mod change;
mod step;

use std::{collections::HashMap, time::Duration};

use jiff::Timestamp;
use letterbox_common::{
    ids::{AccountId, ReleaseId, RunId, UserId, WorkspaceId},
    states::{ActionState, ApprovalState},
};
use letterbox_database::{Database, DatabaseError, Statement, statements};
use letterbox_workflow::actions::Branch;
use tokio_postgres::Row;

pub(super) use self::{
    change::{ActionUpdate, AttemptEnd, Decided, Transition, Written},
    step::write_step,
};
use super::permission::ApprovalStatus;

statements! {
    /// Leases a run that is not over and that nobody has, for one more holder, if its wake was
    /// handed over: else it is not its turn. Removes the wake of a run that is over.
    TAKE_RUN = take_run "
WITH taken AS (
    UPDATE runs SET state = CASE state WHEN 'queued' THEN 'running' ELSE state END, turn = turn + 1,
        idle_turns = idle_turns + 1,
        lease_until = clock_timestamp() + $3::float8 * interval '1 second',
        started_at = coalesce(started_at, clock_timestamp())
    WHERE workspace_id = $1 AND run_id = $2
      AND state IN ('queued', 'running', 'waiting_approval')
      AND coalesce(lease_until, '-infinity') <= clock_timestamp()
      AND EXISTS (SELECT FROM run_wakes WHERE workspace_id = $1 AND run_id = $2
                    AND state = 'handed_over')
    RETURNING workspace_id, run_id, workflow_id, release_id, run_as, turn, idle_turns, received_at,
              input, lease_until, cancel_reason, failing, traceparent
), wake AS (
    UPDATE run_wakes w SET due_at = t.lease_until, state = 'handed_over', handovers = 0
    FROM taken t WHERE w.workspace_id = t.workspace_id AND w.run_id = t.run_id
    RETURNING nullif(account_id, '00000000-0000-0000-0000-000000000000') AS account_id
), no_wake AS (
    DELETE FROM run_wakes w USING runs r
    WHERE w.workspace_id = $1 AND w.run_id = $2 AND r.workspace_id = $1 AND r.run_id = $2
      AND r.state NOT IN ('queued', 'running', 'waiting_approval')
)
SELECT t.turn AS fencing_token, t.idle_turns, t.run_as, t.release_id, t.received_at, t.input,
       t.failing, t.traceparent, r.actions, r.on_failure,
       (SELECT account_id FROM wake) AS account_id, t.cancel_reason IS NOT NULL AS is_cancelled
FROM taken t JOIN releases r USING (workspace_id, workflow_id, release_id)";

    /// What a run has done, with the answers of people. $3 is the user as whom it acts.
    ACTION_RECORDS = action_records "
SELECT a.action_id, a.state, a.is_told, a.branch, a.request, a.attempts, a.error,
       a.response_status, a.answer_sealed, a.unanswered,
       extract(epoch FROM clock_timestamp() - a.started_at)::float8 AS age,
       extract(epoch FROM a.retry_at - clock_timestamp())::float8 AS retry_in,
       p.state AS approval_state, CASE p.state
           WHEN 'pending' THEN extract(epoch FROM p.expires_at - question_clock($1))::float8
       END AS approval_expires_in,
       p.state = 'approved' AND NOT approval_stands($1, p.decided_by, $3) AS approval_lapsed
FROM run_actions a LEFT JOIN approvals p USING (workspace_id, run_id, action_id)
WHERE a.workspace_id = $1 AND a.run_id = $2";

    /// What holds at the moment of an action: whether the owner may run, the account, the policy.
    CIRCUMSTANCES = circumstances "
SELECT coalesce(
           (SELECT may_run FROM members WHERE workspace_id = $1 AND user_id = $2), false)
           AS owner_may_run,
       EXISTS (SELECT FROM held_workspaces WHERE workspace_id = $1) AS is_held, w.retry_attempts,
       w.retry_first_milliseconds::float8 / 1000 AS retry_first_pause,
       a.account_id, a.base_url, a.header_name, a.credential_sealed, p.version, p.policy
FROM workspaces w
LEFT JOIN connected_accounts a
    ON a.workspace_id = w.workspace_id AND a.user_id = $2 AND a.name = $3
    AND a.disconnected_at IS NULL
LEFT JOIN LATERAL (
    SELECT version, policy FROM policies WHERE workspace_id = $1 ORDER BY version DESC LIMIT 1
) AS p ON true
WHERE w.workspace_id = $1";

    /// Fails a run for the holder of $3, or, where nobody took it, one that nobody has.
    ABANDON_RUN = abandon_run "
WITH abandoned AS (
    UPDATE runs SET state = 'failed', failure = $4, lease_until = NULL, turn = turn + 1,
        finished_at = clock_timestamp()
    WHERE workspace_id = $1 AND run_id = $2
      AND state IN ('queued', 'running', 'waiting_approval')
      AND (turn = $3 OR $3 IS NULL AND coalesce(lease_until, '-infinity') <= clock_timestamp())
    RETURNING workspace_id, run_id
), no_question AS (
    UPDATE approvals p SET state = 'expired', decided_at = clock_timestamp() FROM abandoned
    WHERE p.workspace_id = abandoned.workspace_id AND p.run_id = abandoned.run_id
      AND p.state = 'pending'
)
DELETE FROM run_wakes w USING abandoned
WHERE w.workspace_id = abandoned.workspace_id AND w.run_id = abandoned.run_id";
}

/// Every statement of the record.
pub(super) fn statements() -> impl Iterator<Item = &'static [&'static Statement]> {
    [STATEMENTS, step::STATEMENTS].into_iter()
}

/// The right to work on a run. Ends by itself, and then another holder has a greater token.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lease {
    pub(super) workspace: WorkspaceId,
    pub(super) run: RunId,
    /// Counts the holders of the run. Only the last one may write.
    pub(super) fencing_token: i32,
}

/// A run that was taken.
#[derive(Debug)]
pub(super) struct LeasedRun {
    pub(super) lease: Lease,
    /// Holders in a row, this one included, that have recorded nothing that counts.
    pub(super) idle_turns: i32,
    /// Somebody has ordered to cancel it.
    pub(super) is_cancelled: bool,
    pub(super) owner: UserId,
    pub(super) release: ReleaseId,
    /// The account that it may call.
    pub(super) account: Option<AccountId>,
    pub(super) received_at: Timestamp,
    /// JSON text that a stranger wrote; never missing while a run is not over.
    pub(super) input: Vec<u8>,
    /// JSON text of the release's actions.
    pub(super) actions: String,
    /// JSON text of those that follow a failure.
    pub(super) on_failure: Option<String>,
    /// Why it fails, once what follows a failure has begun.
    pub(super) failing: Option<String>,
    /// The context of its submission, where its trace is followed.
    pub(super) traceparent: Option<String>,
}

/// What has been done of one action.
#[derive(Debug, Clone, Default)]
pub(super) struct ActionRecord {
    /// It succeeded, or its agent was told that it has not.
    pub(super) is_done: bool,
    /// None before its first step.
    pub(super) state: Option<ActionState>,
    pub(super) branch: Option<Branch>,
    /// JSON text of the request that was rendered.
    pub(super) request: Option<String>,
    pub(super) attempts: i32,
    /// Of how many of them it is not known what came of them.
    pub(super) unanswered: i32,
    /// Time until the next attempt.
    pub(super) retry_in: Option<Duration>,
    pub(super) approval: Option<ApprovalStatus>,
    /// HTTP status of the last answer.
    pub(super) status: Option<u16>,
    /// The body of its answer, where it is kept; sealed as it is loaded.
    pub(super) answer: Option<Vec<u8>>,
    /// What its agent was told instead of an answer.
    pub(super) refused: Option<String>,
    /// How long ago it began.
    pub(super) age: Duration,
}

impl ActionRecord {
    /// The record of an action that succeeded.
    pub(super) fn done(branch: Option<Branch>) -> Self {
        Self {
            is_done: true,
            branch,
            ..Self::default()
        }
    }

    fn decode(row: &Row) -> Result<Self, tokio_postgres::Error> {
        let expires_in = seconds(row, "approval_expires_in")?;
        let approval = row.try_get::<_, Option<ApprovalState>>("approval_state")?;
        let has_lapsed: Option<bool> = row.try_get("approval_lapsed")?;
        let state: ActionState = row.try_get("state")?;
        let is_told: bool = row.try_get("is_told")?;
        let answer: Option<Vec<u8>> = row.try_get("answer_sealed")?;
        let error: Option<String> = row.try_get("error")?;
        let status: Option<i32> = row.try_get("response_status")?;
        Ok(Self {
            is_done: is_told || state == ActionState::Succeeded,
            state: Some(state),
            refused: error.filter(|_| is_told && answer.is_none()),
            answer,
            status: status.and_then(|status| u16::try_from(status).ok()),
            age: seconds(row, "age")?.unwrap_or_default(),
            branch: row.try_get("branch")?,
            request: row.try_get("request")?,
            attempts: row.try_get("attempts")?,
            unanswered: row.try_get("unanswered")?,
            retry_in: seconds(row, "retry_in")?,
            approval: approval.map(|state| match (state, expires_in) {
                (ApprovalState::Approved, _) => match has_lapsed {
                    Some(true) => ApprovalStatus::Lapsed,
                    _ => ApprovalStatus::Approved,
                },
                (ApprovalState::Withdrawn, _) => ApprovalStatus::Withdrawn,
                (ApprovalState::Denied, _) => ApprovalStatus::Denied,
                (ApprovalState::Pending, Some(time_left)) => ApprovalStatus::Pending(time_left),
                (ApprovalState::Pending, None) | (ApprovalState::Expired, _) => {
                    ApprovalStatus::Expired
                }
            }),
        })
    }
}

/// A column of seconds; none where it is null, or where its time has passed.
fn seconds(row: &Row, column: &str) -> Result<Option<Duration>, tokio_postgres::Error> {
    let seconds: Option<f64> = row.try_get(column)?;
    Ok(seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()))
}

/// An account of the owner, its credential still sealed.
#[derive(Debug)]
pub(super) struct Account {
    pub(super) id: AccountId,
    pub(super) base_url: String,
    pub(super) header: String,
    pub(super) credential_sealed: Vec<u8>,
}

/// How often a workspace wants an action to be tried; none where it leaves that to the worker.
#[derive(Debug, Clone, Copy)]
pub(super) struct Retries {
    pub(super) attempts: Option<i32>,
    /// Doubled after each further attempt.
    pub(super) first_pause: Option<Duration>,
}

/// What holds at the moment of an action.
#[derive(Debug)]
pub(super) struct Circumstances {
    pub(super) owner_may_run: bool,
    /// Actions of the workspace must wait.
    pub(super) is_held: bool,
    pub(super) retries: Retries,
    pub(super) account: Option<Account>,
    /// Version and JSON text; none where the default policy applies.
    pub(super) policy: Option<(i32, String)>,
}

/// Takes a run; none when it is over or somebody has it.
pub(super) async fn take_run(
    database: &Database,
    workspace: WorkspaceId,
    run: RunId,
    lease: Duration,
) -> Result<Option<LeasedRun>, DatabaseError> {
    let seconds = lease.as_secs_f64();
    let taken = database
        .query_opt(&TAKE_RUN, &[&workspace, &run, &seconds])
        .await?;
    let Some(row) = taken else { return Ok(None) };
    let fencing_token = row.try_get("fencing_token")?;
    Ok(Some(LeasedRun {
        lease: Lease {
            workspace,
            run,
            fencing_token,
        },
        idle_turns: row.try_get("idle_turns")?,
        is_cancelled: row.try_get("is_cancelled")?,
        owner: row.try_get("run_as")?,
        release: row.try_get("release_id")?,
        account: row.try_get("account_id")?,
        received_at: row.try_get("received_at")?,
        input: row.try_get("input")?,
        actions: row.try_get("actions")?,
        on_failure: row.try_get("on_failure")?,
        failing: row.try_get("failing")?,
        traceparent: row.try_get("traceparent")?,
    }))
}

/// What a run has done, by action.
pub(super) async fn action_records(
    database: &Database,
    lease: &Lease,
    owner: UserId,
) -> Result<HashMap<String, ActionRecord>, DatabaseError> {
    // Nobody has had it before.
    if lease.fencing_token == 1 {
        return Ok(HashMap::new());
    }
    let rows = database
        .query(&ACTION_RECORDS, &[&lease.workspace, &lease.run, &owner])
        .await?;
    rows.iter()
        .map(|row| Ok((row.try_get("action_id")?, ActionRecord::decode(row)?)))
        .collect()
}

/// What holds now, for an action of `owner` that uses `account`.
pub(super) async fn circumstances(
    database: &Database,
    workspace: WorkspaceId,
    owner: UserId,
    account: &str,
) -> Result<Circumstances, DatabaseError> {
    let row = database
        .query_one(&CIRCUMSTANCES, &[&workspace, &owner, &account])
        .await?;
    let account = match row.try_get::<_, Option<AccountId>>("account_id")? {
        Some(id) => Some(Account {
            id,
            base_url: row.try_get("base_url")?,
            header: row.try_get("header_name")?,
            credential_sealed: row.try_get("credential_sealed")?,
        }),
        None => None,
    };
    let version: Option<i32> = row.try_get("version")?;
    Ok(Circumstances {
        owner_may_run: row.try_get("owner_may_run")?,
        is_held: row.try_get("is_held")?,
        retries: Retries {
            attempts: row.try_get("retry_attempts")?,
            first_pause: seconds(&row, "retry_first_pause")?,
        },
        account,
        policy: version.zip(row.try_get("policy")?),
    })
}

/// Fails a run that can't be advanced, unless somebody else has it. `fencing_token` is that of the
/// caller's lease, if it got one.
pub(super) async fn abandon_run(
    database: &Database,
    workspace: WorkspaceId,
    run: RunId,
    fencing_token: Option<i32>,
    reason: &str,
) -> Result<(), DatabaseError> {
    database
        .execute(
            &ABANDON_RUN,
            &[
                /* $1 workspace_id */ &workspace,
                /* $2 run_id */ &run,
                /* $3 fencing_token */ &fencing_token,
                /* $4 failure */ &reason,
            ],
        )
        .await
        .map(drop)
}
