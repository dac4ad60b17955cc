//! Runs: those that a filter lets through, what was submitted, and orders about them.

use jiff::{SignedDuration, Timestamp};
use letterbox_common::{
    form::meant_ids,
    ids::{ReleaseId, RunId, UserId, WorkflowId, WorkspaceId},
    states::{RefusedReason, RunState},
    text_enum,
};
use letterbox_database::{Database, DatabaseError, statements};
use serde::Serialize;
use tokio_postgres::{Error, Row, types::FromSql};

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
    /// The newest runs of a workspace that a filter lets through. Ids sort by time of receipt: no
    /// run is looked at with an id below $7, or from $8 on; $4 are two times. The lines about
    /// states say what partial indexes need to know.
    RUNS = runs "
SELECT run_id, workspace_id, workflow_id, release_id, run_as, state, refused_reason, failure,
       received_at, created_at, started_at, finished_at
FROM runs WHERE workspace_id = $1 AND ($2::uuid IS NULL OR workflow_id = $2)
  AND ($3::text[] IS NULL OR state = ANY ($3))
  AND (NOT coalesce($3::text[] <@ '{failed,denied,cancelled,refused}', false)
       OR failure IS NOT NULL OR refused_reason IS NOT NULL)
  AND (NOT coalesce($3::text[] <@ '{queued,running,waiting_approval}', false)
       OR finished_at IS NULL)
  AND (($4::timestamptz[])[1] IS NULL OR received_at >= ($4::timestamptz[])[1] AND run_id >= $7)
  AND (($4::timestamptz[])[2] IS NULL OR received_at < ($4::timestamptz[])[2])
  AND ($5::text IS NULL OR request_id = $5)
  AND ($6::text IS NULL OR failure IS NOT NULL AND strpos(failure, $6) > 0)
  AND ($8::uuid IS NULL OR run_id < $8)
  AND ($9::uuid[] IS NULL OR found_by && $9)
ORDER BY run_id DESC LIMIT $10";

    /// What was submitted to a workflow, oldest first, between two ids.
    ANSWERS = answers_of_form "
SELECT run_id, state, received_at, input FROM runs
WHERE workspace_id = $1 AND workflow_id = $2 AND input IS NOT NULL
  AND ($3::timestamptz IS NULL OR received_at >= $3)
  AND ($4::timestamptz IS NULL OR received_at < $4)
  AND ($5::uuid IS NULL OR run_id > $5) AND ($6::uuid IS NULL OR run_id < $6)
ORDER BY run_id LIMIT $7";

    /// Cancels runs, or orders their workers to.
    CANCEL_RUNS = cancel_runs "
SELECT run_id, cancel_run($1, run_id, $3, NULL) AS outcome
FROM (SELECT unnest($2::uuid[]) AS run_id ORDER BY run_id) AS cancelled";

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
}

/// How long before it was received a run may have got its id, from a claim that was taken over.
const CLAIMED_BEFORE: SignedDuration = SignedDuration::from_hours(24);
/// How long after.
const CLAIMED_AFTER: SignedDuration = SignedDuration::from_mins(10);

/// The least id that a run can have that got it at this time.
fn earliest_id(time: Timestamp) -> RunId {
    RunId::earliest_at(u64::try_from(time.as_millisecond()).unwrap_or_default())
}

/// No run that was received since then has a lesser id.
fn since_id(since: Timestamp) -> RunId {
    earliest_id(since - CLAIMED_BEFORE)
}

/// Every run that was received before then has a lesser id.
fn before_id(until: Timestamp) -> RunId {
    earliest_id(until + CLAIMED_AFTER)
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
    /// Those whose submitter was answered with this `X-Request-Id`.
    pub request_id: Option<String>,
    /// Those to which this was submitted in a field: its key, and the value as a person writes it.
    pub field: Option<(String, String)>,
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
            request_id: None,
            field: None,
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
    pub(super) fn decode(row: &Row) -> Result<Self, Error> {
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

pub(crate) async fn runs(
    database: &Database,
    filter: &RunFilter,
    before: Option<RunId>,
    limit: u32,
) -> Result<Vec<RunRow>, DatabaseError> {
    let states = (!filter.states.is_empty()).then_some(&filter.states);
    let below_id = filter.until.map(before_id).into_iter().chain(before).min();
    let found_by = filter.field.as_ref();
    let found_by = found_by.map(|(key, value)| meant_ids(filter.workspace, key, value));
    let rows = database
        .query(
            &RUNS,
            &[
                /* $1 workspace_id */ &filter.workspace,
                /* $2 workflow_id */ &filter.workflow,
                /* $3 states */ &states,
                /* $4 since, until */ &vec![filter.since, filter.until],
                /* $5 request_id */ &filter.request_id,
                /* $6 failure */ &filter.failure,
                /* $7 since_id */ &filter.since.map(since_id),
                /* $8 below_id */ &below_id,
                /* $9 found_by */ &found_by,
                /* $10 limit */ &i64::from(limit),
            ],
        )
        .await?;
    rows.iter().map(|row| Ok(RunRow::decode(row)?)).collect()
}

/// What somebody has submitted to a form.
#[derive(Debug, Clone)]
pub struct FormAnswer {
    /// The run that it started.
    pub run_id: RunId,
    /// Where the run is in its life.
    pub state: RunState,
    /// When it was received, by the gateway's clock.
    pub received_at: Timestamp,
    /// JSON text: values by the keys of their fields, as they were submitted.
    pub input: String,
}

/// What was submitted to a workflow, oldest first, after a run; between two times where they are
/// given.
pub(crate) async fn form_answers(
    database: &Database,
    (workspace, workflow): (WorkspaceId, WorkflowId),
    (since, until): (Option<Timestamp>, Option<Timestamp>),
    after: Option<RunId>,
    limit: u32,
) -> Result<Vec<FormAnswer>, DatabaseError> {
    let above_id = since.map(since_id).into_iter().chain(after).max();
    let rows = database
        .query(
            &ANSWERS,
            &[
                /* $1 workspace_id */ &workspace,
                /* $2 workflow_id */ &workflow,
                /* $3 since */ &since,
                /* $4 until */ &until,
                /* $5 above_id */ &above_id,
                /* $6 below_id */ &until.map(before_id),
                /* $7 limit */ &i64::from(limit),
            ],
        )
        .await?;
    let answers = rows.iter().map(|row| {
        let input: &[u8] = row.try_get("input")?;
        Ok(FormAnswer {
            run_id: row.try_get("run_id")?,
            state: row.try_get("state")?,
            received_at: row.try_get("received_at")?,
            input: String::from_utf8_lossy(input).into_owned(),
        })
    });
    answers.collect()
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

/// Whether the run was over and is erased now; None if there is no such run.
pub(crate) async fn erase_run(
    database: &Database,
    id: RunId,
) -> Result<Option<bool>, DatabaseError> {
    let row = database.query_opt(&ERASE_RUN, &[&id]).await?;
    Ok(row.map(|row| row.try_get("erased")).transpose()?)
}
