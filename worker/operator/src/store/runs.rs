//! Runs and what they have done.

use jiff::{SignedDuration, Timestamp};
use letterbox_common::{
    ids::{ApprovalId, ReleaseId, RunId, UserId, WorkflowId, WorkspaceId},
    states::{ActionState, ApprovalState, InputTrust, RefusedReason, RunState},
    text_enum,
};
use letterbox_database::{Database, DatabaseError, statements};
use letterbox_workflow::{Decision, Steering, Untrusted, actions::Branch};
use serde::Serialize;
use serde_json::Value;
use tokio_postgres::{Error, Row, types::FromSql};

use super::json;

/// What lets a run through: $1 is the workspace, $2 the workflow, $3 the states, $4 and $5 since
/// and until when it was received, $6 a part of its failure.
macro_rules! filtered {
    () => {
        "WHERE workspace_id = $1 AND ($2::uuid IS NULL OR workflow_id = $2)
  AND ($3::text[] IS NULL OR state = ANY ($3))
  AND ($4::timestamptz IS NULL OR received_at >= $4 AND run_id >= $7)
  AND ($5::timestamptz IS NULL OR received_at < $5 AND run_id < $8)
  AND ($6::text IS NULL OR strpos(failure, $6) > 0)"
    };
}

text_enum! {
    /// What an order to cancel a run came to.
    pub enum CancelOutcome {
        /// It is cancelled
        Cancelled = "cancelled",
        /// A worker has it in hand, and cancels it after the action that it has begun
        Requested = "requested",
    }
}

text_enum! {
    /// What an order to retry a run came to.
    pub enum RetryOutcome {
        /// It goes on
        Queued = "queued",
        /// It has not failed, was not denied and not cancelled
        NotEnded = "not_ended",
        /// What was submitted to it was forgotten
        Forgotten = "forgotten",
    }
}

statements! {
    /// The newest runs of a workspace that a filter lets through, before one of them. Ids sort by
    /// time of receipt: with $7 and $8, the bounds of $4 and $5, no older run is looked at.
    RUNS = runs concat!("
SELECT run_id, workspace_id, workflow_id, release_id, run_as, state, refused_reason, failure,
       received_at, created_at, started_at, finished_at
FROM runs ", filtered!(), " AND ($9::uuid IS NULL OR run_id < $9)
ORDER BY run_id DESC LIMIT $10");

    /// Cancels runs, or orders their workers to.
    CANCEL_RUNS = cancel_runs "
SELECT run_id, cancel_run($1, run_id, $3, NULL) AS outcome FROM unnest($2::uuid[]) AS run_id";

    /// Lets runs go on, one after the other.
    RETRY_RUNS = retry_runs "
SELECT run_id, retry_run($1, run_id, due_in) AS outcome
FROM unnest($2::uuid[], $3::float8[]) AS retried (run_id, due_in)";

    /// The workspace of a run.
    RUN_WORKSPACE = run_workspace "
SELECT r.workspace_id
FROM workspaces w JOIN runs r ON r.workspace_id = w.workspace_id AND r.run_id = $1";

    /// Forgets the input and the requests of a run, if it is over.
    ERASE_RUN = erase_run "
SELECT r.state IN ('succeeded', 'failed', 'denied', 'cancelled', 'refused')
       AND erase_run(r.workspace_id, r.run_id) AS erased
FROM workspaces w JOIN runs r ON r.workspace_id = w.workspace_id AND r.run_id = $1";

    /// One run with its input.
    RUN = run "
SELECT r.run_id, r.workspace_id, r.workflow_id, r.release_id, r.run_as, r.state, r.refused_reason,
       r.failure, r.received_at, r.created_at, r.started_at, r.finished_at, r.input_trust, r.input,
       coalesce(s.changed_repeats, 0) AS changed_repeats
FROM workspaces w JOIN runs r ON r.workspace_id = w.workspace_id AND r.run_id = $1
LEFT JOIN form_submissions s ON s.workspace_id = r.workspace_id AND s.submission_id = r.run_id";

    /// What a run has done, in order.
    RUN_ACTIONS = run_actions "
SELECT a.action_id, a.type, a.state, a.untrusted, a.steered_by, a.decision, a.decision_rule,
       a.policy_version, a.part_of, a.is_told, a.answer_sealed, a.request, a.attempts,
       a.response_status, a.outcome AS branch, a.error,
       a.retry_at, a.started_at, a.finished_at,
       p.approval_id, p.state AS approval_state, p.decided_by, p.decided_at, p.expires_at
FROM run_actions a LEFT JOIN approvals p USING (workspace_id, run_id, action_id)
WHERE a.workspace_id = $1 AND a.run_id = $2 ORDER BY a.position";
}

/// How long before it was received a run may have got its id, from a claim that was taken over.
const CLAIMED_BEFORE: SignedDuration = SignedDuration::from_hours(24);
/// How long after.
const CLAIMED_AFTER: SignedDuration = SignedDuration::from_mins(10);

/// The least id that a run can have that got it at this time.
fn earliest_id(time: Timestamp) -> RunId {
    RunId::earliest_at(u64::try_from(time.as_millisecond()).unwrap_or_default())
}

/// Which runs of a workspace.
#[derive(Debug, Clone)]
pub struct RunFilter {
    /// The workspace.
    pub workspace: WorkspaceId,
    /// Those of one workflow.
    pub workflow: Option<WorkflowId>,
    /// Those in one of these states; in any where there are none.
    pub states: Vec<RunState>,
    /// Those received at this time or later.
    pub since: Option<Timestamp>,
    /// Those received before this time.
    pub until: Option<Timestamp>,
    /// Those whose failure contains this text.
    pub failure: Option<String>,
}

impl RunFilter {
    /// All runs of a workspace.
    #[must_use]
    pub fn of(workspace: WorkspaceId) -> Self {
        Self {
            workspace,
            workflow: None,
            states: Vec::new(),
            since: None,
            until: None,
            failure: None,
        }
    }

    /// Those of one workflow.
    #[must_use]
    pub fn with_workflow(mut self, workflow: Option<WorkflowId>) -> Self {
        self.workflow = workflow;
        self
    }
}

/// A run in a list.
#[derive(Debug, Clone, Serialize)]
pub struct RunRow {
    /// The id of the submission that it is for.
    pub run_id: RunId,
    /// The workspace of the workflow.
    pub workspace_id: WorkspaceId,
    /// The workflow that it executes.
    pub workflow_id: WorkflowId,
    /// The release that it executes: the one that the submission was validated against.
    pub release_id: ReleaseId,
    /// The user under whose identity it runs.
    pub run_as: UserId,
    /// Where it is in its life.
    pub state: RunState,
    /// Why it never started; None unless it was refused.
    pub refused_reason: Option<RefusedReason>,
    /// Why it failed or was denied.
    pub failure: Option<String>,
    /// When the submission was received, by the gateway's clock.
    pub received_at: Timestamp,
    /// When a worker recorded it, by the database's clock.
    pub created_at: Timestamp,
    /// When a worker first executed it; None before, and where it was refused.
    pub started_at: Option<Timestamp>,
    /// When it ended; None while it is not over, and where it was refused.
    pub finished_at: Option<Timestamp>,
}

impl RunRow {
    fn decode(row: &Row) -> Result<Self, Error> {
        Ok(Self {
            run_id: row.try_get("run_id")?,
            workspace_id: row.try_get("workspace_id")?,
            workflow_id: row.try_get("workflow_id")?,
            release_id: row.try_get("release_id")?,
            run_as: row.try_get("run_as")?,
            state: row.try_get("state")?,
            refused_reason: row.try_get("refused_reason")?,
            failure: row.try_get("failure")?,
            received_at: row.try_get("received_at")?,
            created_at: row.try_get("created_at")?,
            started_at: row.try_get("started_at")?,
            finished_at: row.try_get("finished_at")?,
        })
    }
}

/// What a run has done of one action.
#[derive(Debug, Clone, Serialize)]
pub struct RunAction {
    /// The id of the action in the run's release.
    pub action_id: String,
    /// The kind of the action, such as `http.request`.
    #[serde(rename = "type")]
    pub action_type: String,
    /// The agent whose question or call it is; None for actions of the release.
    pub part_of: Option<String>,
    /// Where the run is with it.
    pub state: ActionState,
    /// It failed or was denied, and its agent was told so.
    pub is_told: bool,
    /// How text that a submitter wrote reaches it; empty where it does not.
    pub untrusted: Vec<Untrusted>,
    /// The kind of condition through which such text led to it; None where it did not.
    pub steered_by: Vec<Steering>,
    /// What the policy said the last time; None where it was not asked.
    pub decision: Option<Decision>,
    /// The rule that decided, from 1; none where the default did.
    pub decision_rule: Option<i32>,
    /// The policy that was asked; 0 is the default policy, None where none was asked.
    pub policy_version: Option<i32>,
    /// What people were asked, and what they said.
    pub approval: Option<ActionApproval>,
    /// What is sent, without the credential.
    pub request: Option<Value>,
    /// How many attempts have begun; 0 where it sends nothing.
    pub attempts: i32,
    /// HTTP status of the last answer; None where there was none.
    pub response_status: Option<i32>,
    /// Whether what it was answered is kept, sealed.
    pub is_answer_kept: bool,
    /// What it was answered, or the beginning of that, where it is kept and was opened.
    pub answer: Option<String>,
    #[serde(skip)]
    pub(crate) answer_sealed: Option<Vec<u8>>,
    /// The way that a condition went.
    #[serde(rename = "outcome")]
    pub branch: Option<Branch>,
    /// Why it failed, was denied, or must be tried again.
    pub error: Option<String>,
    /// When the next attempt is due; None unless it waits for one.
    pub retry_at: Option<Timestamp>,
    /// From start to finish, with all waiting; None while it is not over.
    pub duration_milliseconds: Option<i64>,
    /// When the run came to it, by the database's clock.
    pub started_at: Timestamp,
    /// When it ended; None while it is not over.
    pub finished_at: Option<Timestamp>,
}

impl RunAction {
    fn decode(row: &Row) -> Result<Self, Error> {
        let started_at: Timestamp = row.try_get("started_at")?;
        let finished_at: Option<Timestamp> = row.try_get("finished_at")?;
        let duration = finished_at.map(|end| end.duration_since(started_at));
        let answer_sealed: Option<Vec<u8>> = row.try_get("answer_sealed")?;
        Ok(Self {
            action_id: row.try_get("action_id")?,
            action_type: row.try_get("type")?,
            part_of: row.try_get("part_of")?,
            state: row.try_get("state")?,
            is_told: row.try_get("is_told")?,
            is_answer_kept: answer_sealed.is_some(),
            answer: None,
            answer_sealed,
            untrusted: row.try_get("untrusted")?,
            steered_by: row.try_get("steered_by")?,
            decision: row.try_get("decision")?,
            decision_rule: row.try_get("decision_rule")?,
            policy_version: row.try_get("policy_version")?,
            approval: ActionApproval::decode(row)?,
            request: row.try_get::<_, Option<&str>>("request")?.map(json),
            attempts: row.try_get("attempts")?,
            response_status: row.try_get("response_status")?,
            branch: row.try_get("branch")?,
            error: row.try_get("error")?,
            retry_at: row.try_get("retry_at")?,
            duration_milliseconds: duration.map(|duration| duration.as_millis() as i64),
            started_at,
            finished_at,
        })
    }
}

/// An approval as part of a run.
#[derive(Debug, Clone, Serialize)]
pub struct ActionApproval {
    /// The id by which it is answered.
    pub approval_id: ApprovalId,
    /// The answer so far.
    pub state: ApprovalState,
    /// Who answered; None while it is open, and where nobody did.
    pub decided_by: Option<UserId>,
    /// When it was answered or closed; None while it is open.
    pub decided_at: Option<Timestamp>,
    /// From this time on nobody can answer it.
    pub expires_at: Timestamp,
}

impl ActionApproval {
    /// None where nobody was asked.
    fn decode(row: &Row) -> Result<Option<Self>, Error> {
        let Some(approval_id) = row.try_get("approval_id")? else {
            return Ok(None);
        };
        Ok(Some(Self {
            approval_id,
            state: row.try_get("approval_state")?,
            decided_by: row.try_get("decided_by")?,
            decided_at: row.try_get("decided_at")?,
            expires_at: row.try_get("expires_at")?,
        }))
    }
}

/// A run with its input and everything that it has done.
#[derive(Debug, Clone, Serialize)]
pub struct RunDetail {
    /// What a list shows of it.
    #[serde(flatten)]
    pub row: RunRow,
    /// What has been done and is about to be, in order.
    pub actions: Vec<RunAction>,
    /// Always untrusted: a submitter wrote the input.
    pub input_trust: InputTrust,
    /// The validated payload: values by the keys of their fields; None for a refused run, and when
    /// it was forgotten.
    pub input: Option<Value>,
    /// How often its idempotency key came back with another payload, which changed nothing.
    pub changed_repeats: i32,
}

pub(crate) async fn runs(
    database: &Database,
    filter: &RunFilter,
    before: Option<RunId>,
    limit: u32,
) -> Result<Vec<RunRow>, DatabaseError> {
    let states = (!filter.states.is_empty()).then_some(&filter.states);
    let rows = database
        .query(
            &RUNS,
            &[
                /* $1 workspace_id */ &filter.workspace,
                /* $2 workflow_id */ &filter.workflow,
                /* $3 states */ &states,
                /* $4 since */ &filter.since,
                /* $5 until */ &filter.until,
                /* $6 failure */ &filter.failure,
                /* $7 since_id */
                &filter
                    .since
                    .map(|since| earliest_id(since - CLAIMED_BEFORE)),
                /* $8 until_id */
                &filter.until.map(|until| earliest_id(until + CLAIMED_AFTER)),
                /* $9 before */ &before,
                /* $10 limit */ &i64::from(limit),
            ],
        )
        .await?;
    rows.iter().map(|row| Ok(RunRow::decode(row)?)).collect()
}

/// The workspace of a run; None if there is no such run.
pub(crate) async fn run_workspace(
    database: &Database,
    run: RunId,
) -> Result<Option<WorkspaceId>, DatabaseError> {
    let row = database.query_opt(&RUN_WORKSPACE, &[&run]).await?;
    Ok(row.map(|row| row.try_get("workspace_id")).transpose()?)
}

/// Cancels runs of a workspace; gives what became of each. `why` must not be empty.
pub(crate) async fn cancel_runs(
    database: &Database,
    workspace: WorkspaceId,
    runs: &[RunId],
    why: &str,
) -> Result<Vec<(RunId, Option<CancelOutcome>)>, DatabaseError> {
    let rows = database
        .query(&CANCEL_RUNS, &[&workspace, &runs, &why])
        .await?;
    rows.iter().map(outcome).collect()
}

/// Lets runs of a workspace go on, each after a time in seconds; gives what became of each.
pub(crate) async fn retry_runs(
    database: &Database,
    workspace: WorkspaceId,
    runs: &[RunId],
    due_in: &[f64],
) -> Result<Vec<(RunId, Option<RetryOutcome>)>, DatabaseError> {
    let rows = database
        .query(&RETRY_RUNS, &[&workspace, &runs, &due_in])
        .await?;
    rows.iter().map(outcome).collect()
}

fn outcome<'r, T: FromSql<'r>>(row: &'r Row) -> Result<(RunId, Option<T>), DatabaseError> {
    Ok((row.try_get("run_id")?, row.try_get("outcome")?))
}

pub(crate) async fn run(
    database: &Database,
    id: RunId,
) -> Result<Option<RunDetail>, DatabaseError> {
    let row = database.query_opt(&RUN, &[&id]).await?;
    let Some(row) = row else { return Ok(None) };
    let input: Option<&[u8]> = row.try_get("input")?;
    let input = input.map(|input| json(&String::from_utf8_lossy(input)));
    let (input_trust, changed_repeats, row) = (
        row.try_get("input_trust")?,
        row.try_get("changed_repeats")?,
        RunRow::decode(&row)?,
    );
    let actions = database
        .query(&RUN_ACTIONS, &[&row.workspace_id, &row.run_id])
        .await?;
    let actions = actions
        .iter()
        .map(RunAction::decode)
        .collect::<Result<_, _>>()?;
    Ok(Some(RunDetail {
        row,
        actions,
        input_trust,
        input,
        changed_repeats,
    }))
}

/// Whether the run was over and is erased now; None if there is no such run.
pub(crate) async fn erase_run(
    database: &Database,
    id: RunId,
) -> Result<Option<bool>, DatabaseError> {
    let row = database.query_opt(&ERASE_RUN, &[&id]).await?;
    Ok(row.map(|row| row.try_get("erased")).transpose()?)
}
