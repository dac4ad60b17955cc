//! Runs: lists of them and of their submissions, and orders about many: cancel and retry.

use clap::{
    Args,
    builder::{PossibleValuesParser, TypedValueParser},
};
use jiff::Timestamp;
use letterbox_common::{
    form::{MAX_LOOKUP_TEXT, meant_ids},
    ids::{AccountId, ReleaseId, RunId, UserId, WorkflowId, WorkspaceId},
    states::{RefusedReason, RunState},
    text_enum,
};
use letterbox_database::{FromRow, statements};
use serde::Serialize;
use tokio_postgres::types::FromSqlOwned;
use uuid::Uuid;

use crate::{
    Operator, Reason, Result, WorkflowRow, lossy, moment,
    received::{before_id, since_id},
    workspaces::is_searchable,
};

text_enum! {
    /// The outcome of an order to cancel a run.
    pub enum CancelOutcome {
        /// It is cancelled
        Cancelled = "cancelled",
        /// A worker executes it, and cancels it after the current action
        Requested = "requested",
    }
}

text_enum! {
    /// The outcome of an order to retry a run.
    pub enum RetryOutcome {
        /// It goes on
        Queued = "queued",
        /// It has not failed, was not denied and not cancelled
        NotEnded = "not_ended",
        /// Its input was forgotten
        Forgotten = "forgotten",
    }
}

statements! {
    /// The newest runs of a workspace that a filter lets through. Ids sort by time of receipt:
    /// only those between two of them are looked at. The lines about states let the planner use
    /// partial indexes, and the table of active runs.
    desk fn runs(
        workspace: WorkspaceId, workflow: Option<WorkflowId>, states: Option<&[RunState]>,
        since_until: &[Option<Timestamp>], request_id: Option<&str>, failure: Option<&str>,
        since_id: Option<RunId>, below_id: Option<RunId>, found_by: Option<&[Uuid]>, limit: i64,
    ) -> Vec<RunRow> = "
SELECT run_id, workspace_id, workflow_id, release_id, run_as, state, refused_reason, failure,
       received_at, created_at, started_at, finished_at, is_active AND (
           SELECT true FROM run_actions a
           WHERE a.workspace_id = visible_runs.workspace_id AND a.run_id = visible_runs.run_id
             AND a.state = 'retrying' AND a.attempts > 0 LIMIT 1) IS TRUE AS is_retrying
FROM visible_runs WHERE workspace_id = $1 AND ($2::uuid IS NULL OR workflow_id = $2)
  AND ($3::text[] IS NULL OR state = ANY ($3))
  AND (NOT coalesce($3::text[] <@ '{failed,denied,cancelled,refused}', false)
       OR failure IS NOT NULL OR refused_reason IS NOT NULL)
  AND (NOT coalesce($3::text[] <@ '{queued,running,waiting_approval}', false) OR is_active)
  AND (($4::timestamptz[])[1] IS NULL OR received_at >= ($4::timestamptz[])[1] AND run_id >= $7)
  AND (($4::timestamptz[])[2] IS NULL OR received_at < ($4::timestamptz[])[2])
  AND ($5::text IS NULL OR request_id = $5)
  AND ($6::text IS NULL OR failure IS NOT NULL AND strpos(failure, $6) > 0)
  AND ($8::uuid IS NULL OR run_id < $8)
  AND ($9::uuid[] IS NULL OR found_by && $9)
ORDER BY run_id DESC LIMIT $10";

    /// The submissions to a workflow, oldest first, between two ids.
    desk fn answers_of_form(
        workspace: WorkspaceId, workflow: WorkflowId, since: Option<Timestamp>,
        until: Option<Timestamp>, above_id: Option<RunId>, below_id: Option<RunId>, limit: i64,
    ) -> Vec<FormAnswer> = "
SELECT run_id, state, received_at, input FROM visible_runs
WHERE workspace_id = $1 AND workflow_id = $2 AND input IS NOT NULL
  AND ($3::timestamptz IS NULL OR received_at >= $3)
  AND ($4::timestamptz IS NULL OR received_at < $4)
  AND ($5::uuid IS NULL OR run_id > $5) AND ($6::uuid IS NULL OR run_id < $6)
ORDER BY run_id LIMIT $7";

    /// Cancels runs, or orders their workers to.
    desk fn cancel_runs(
        workspace: WorkspaceId, runs: &[RunId], why: &str,
    ) -> Vec<Ordered<CancelOutcome>> = "
SELECT run_id, cancel_run($1, run_id, $3) AS outcome
FROM (SELECT unnest($2::uuid[]) AS run_id ORDER BY run_id) AS cancelled";

    /// Forgets the inputs and the requests of runs, each if it is over, and says whether. Not as a
    /// condition: PostgreSQL may ask that of any row.
    desk fn erase_runs(workspace: WorkspaceId, runs: &[RunId]) -> Vec<(RunId, Option<bool>)> = "
SELECT r.run_id,
       CASE WHEN r.state IN ('succeeded', 'failed', 'denied', 'cancelled', 'refused')
           THEN erase_run(r.workspace_id, r.run_id) END AS erased
FROM (SELECT unnest($2::uuid[]) AS run_id ORDER BY run_id) AS wanted
JOIN runs r ON r.workspace_id = $1 AND r.run_id = wanted.run_id";

    /// Lets runs make their next attempt now.
    fn hurry_runs(
        workspace: WorkspaceId, account: Option<AccountId>, run: Option<RunId>,
    ) -> Vec<(RunId,)> = "SELECT hurry_runs($1, $2, $3) AS run_id";

    /// Lets runs go on, one after the other.
    desk fn retry_runs(
        workspace: WorkspaceId, runs: &[RunId], due_in: &[f64],
    ) -> Vec<Ordered<RetryOutcome>> = "
SELECT run_id, retry_run($1, run_id, due_in) AS outcome
FROM unnest($2::uuid[], $3::float8[]) AS retried (run_id, due_in)";
}

/// A run that was ordered to be cancelled, or to go on.
#[derive(Debug, Clone, PartialEq, Eq, FromRow, Serialize)]
pub struct Ordered<O: FromSqlOwned> {
    /// The run.
    pub run_id: RunId,
    /// `None` if it was over already, or is not there.
    pub outcome: Option<O>,
}

/// Which runs of a workspace. The flags of the command line are this, which names the workflow
/// otherwise.
#[derive(Debug, Clone, Default, Args)]
pub struct RunFilter {
    /// Only runs of this workflow.
    #[arg(skip)]
    pub workflow: Option<WorkflowId>,
    /// Only those in this state; may be given several times
    #[arg(id = "state", long = "state", value_name = "STATE", value_parser =
        PossibleValuesParser::new(RunState::WORDS).try_map(|word| word.parse::<RunState>()))]
    pub states: Vec<RunState>,
    /// Only those received since a time, such as 2026-01-31T08:00:00Z, yesterday or 1h
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub since: Option<Timestamp>,
    /// Only those received before a time
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub until: Option<Timestamp>,
    /// Only the one whose submitter was answered with this X-Request-Id
    #[arg(long, value_name = "ID")]
    pub request_id: Option<String>,
    /// Only those whose failure contains this text
    #[arg(long, value_name = "TEXT")]
    pub failure: Option<String>,
    /// Only those with this value in a field, whatever its case, such as email=ada@example.com
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_and_value)]
    pub field: Option<(String, String)>,
}

/// A field and a value that was submitted in it.
fn key_and_value(text: &str) -> Result<(String, String), &'static str> {
    let (key, value) = text.split_once('=').ok_or("must be KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}

/// A run in a list.
#[derive(Debug, Clone, FromRow, Serialize)]
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
    /// Whether it waits for its next attempt at an action that could not be done yet.
    pub is_retrying: bool,
    /// Why it never started; `None` unless it was refused.
    pub refused_reason: Option<RefusedReason>,
    /// Why it failed or was denied.
    pub failure: Option<String>,
    /// When the submission was received, by the gateway's clock.
    pub received_at: Timestamp,
    /// When a worker recorded it, by the database's clock.
    pub created_at: Timestamp,
    /// When a worker first executed it; `None` before, and if it was refused.
    pub started_at: Option<Timestamp>,
    /// When it ended; `None` while it is not over, and if it was refused.
    pub finished_at: Option<Timestamp>,
}

/// A submission to a form.
#[derive(Debug, Clone, FromRow)]
pub struct FormAnswer {
    /// The run that it started.
    pub run_id: RunId,
    /// Where the run is in its life.
    pub state: RunState,
    /// When it was received, by the gateway's clock.
    pub received_at: Timestamp,
    /// JSON text: values by the keys of their fields, as they were submitted.
    #[row(with = lossy)]
    pub input: String,
}

/// What is not erased with runs, for who has promised to forget somebody.
pub const NOT_ERASED: &str = "Not reached: runs that are not over, backups and the write-ahead \
    log, dead letters, signals, and what accounts have received.";

impl Operator {
    /// Lists the newest runs that a filter lets through, at most `limit`; only those before
    /// `before`, if it is given.
    ///
    /// # Errors
    /// When there is no such workspace; when a value is wanted that is too long to be found, or
    /// search by submitted value is off in the workspace.
    pub async fn runs(
        &self,
        workspace: WorkspaceId,
        filter: &RunFilter,
        before: Option<RunId>,
        limit: u32,
    ) -> Result<Vec<RunRow>> {
        self.need_workspace(workspace).await?;
        if let Some((_, value)) = &filter.field {
            self.need_searchable(workspace, value).await?;
        }
        let states = (!filter.states.is_empty()).then_some(&filter.states[..]);
        let below_id = filter.until.map(before_id).into_iter().chain(before).min();
        let found_by = filter.field.as_ref();
        let found_by = found_by.map(|(key, value)| meant_ids(workspace, key, value));
        runs(
            self,
            workspace,
            filter.workflow,
            states,
            &[filter.since, filter.until],
            filter.request_id.as_deref(),
            filter.failure.as_deref(),
            filter.since.map(since_id),
            below_id,
            found_by.as_deref(),
            limit.into(),
        )
        .await
    }

    /// Fails if a submitted value can't be found: an empty list would say that no run has it.
    pub(crate) async fn need_searchable(&self, workspace: WorkspaceId, value: &str) -> Result<()> {
        if value.chars().count() > MAX_LOOKUP_TEXT {
            return Err(Reason::ValueTooLong.into());
        }
        match is_searchable(self, workspace).await? {
            (true,) => Ok(()),
            (false,) => Err(Reason::NotSearchable.into()),
        }
    }

    /// Lists the submissions to a workflow, oldest first, at most `limit`; those after a run, and
    /// between two times if they are given. Forgotten and refused ones are left out.
    pub async fn form_answers(
        &self,
        workflow: &WorkflowRow,
        (since, until): (Option<Timestamp>, Option<Timestamp>),
        after: Option<RunId>,
        limit: u32,
    ) -> Result<Vec<FormAnswer>> {
        let above_id = since.map(since_id).into_iter().chain(after).max();
        let below_id = until.map(before_id);
        let workspace = workflow.workspace_id;
        let workflow = workflow.workflow_id;
        let limit = limit.into();
        answers_of_form(
            self, workspace, workflow, since, until, above_id, below_id, limit,
        )
        .await
    }

    /// Cancels runs of one workspace. Requests that were sent stay sent. A run that a worker is
    /// executing is cancelled after the current action.
    pub async fn cancel_runs(
        &self,
        workspace: WorkspaceId,
        runs: &[RunId],
    ) -> Result<Vec<Ordered<CancelOutcome>>> {
        let why = match &self.orderer.reason {
            Some(reason) => format!("cancelled: {reason}"),
            None => "cancelled".to_owned(),
        };
        cancel_runs(self, workspace, runs, &why).await
    }

    /// Forgets the inputs and the requests of runs of one workspace, each if it is over. Returns
    /// which.
    pub async fn erase_runs(&self, workspace: WorkspaceId, runs: &[RunId]) -> Result<Vec<RunId>> {
        let erased = erase_runs(self, workspace, runs).await?;
        let erased = erased
            .into_iter()
            .filter(|(_, erased)| *erased == Some(true));
        Ok(erased.map(|(run, _)| run).collect())
    }

    /// Lets runs make their next attempt now that wait for it: one of a workspace, those that wait
    /// for an account, or all. Returns which.
    pub async fn hurry_runs(
        &self,
        workspace: WorkspaceId,
        account: Option<AccountId>,
        run: Option<RunId>,
    ) -> Result<Vec<RunId>> {
        let hurried = hurry_runs(self, workspace, account, run).await?;
        Ok(hurried.into_iter().map(|(run,)| run).collect())
    }

    /// Lets runs of one workspace go on that failed, were denied or cancelled, at the action that
    /// ended them. `pace` is how many of them each second, and how many have gone before these;
    /// `None` is all at once.
    pub async fn retry_runs(
        &self,
        workspace: WorkspaceId,
        runs: &[RunId],
        pace: Option<(f64, u32)>,
    ) -> Result<Vec<Ordered<RetryOutcome>>> {
        let (per_second, before) = pace.unwrap_or((f64::INFINITY, 0));
        let places = (before..).take(runs.len());
        let due_in: Vec<_> = places.map(|place| f64::from(place) / per_second).collect();
        retry_runs(self, workspace, runs, &due_in).await
    }
}
