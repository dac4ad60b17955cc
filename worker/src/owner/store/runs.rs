//! Runs and their stories.

use jiff::Timestamp;
use letterbox_common::ids::{ApprovalId, ReleaseId, RunId, UserId, WorkflowId, WorkspaceId};
use serde::Serialize;
use serde_json::Value;
use tokio_postgres::{Client, Error, Row};

use super::json;

/// A run in a list.
#[derive(Debug, Clone, Serialize)]
pub struct RunRow {
    pub run_id: RunId,
    pub workspace_id: WorkspaceId,
    pub workflow_id: WorkflowId,
    pub release_id: ReleaseId,
    /// The user under whose identity it runs.
    pub run_as: UserId,
    pub state: String,
    pub refused_reason: Option<String>,
    /// Why it failed or was denied.
    pub failure: Option<String>,
    pub received_at: Timestamp,
    pub created_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
}

/// What a run has done of one action.
#[derive(Debug, Clone, Serialize)]
pub struct RunAction {
    pub action_id: String,
    #[serde(rename = "type")]
    pub action_type: String,
    pub state: String,
    /// `data`: what a submitter wrote fills it; `control`: it steered the run here.
    pub untrusted: Vec<String>,
    pub steered_by: Option<String>,
    pub decision: Option<String>,
    /// Which rule decided, from 1; none where the default did.
    pub decision_rule: Option<i32>,
    pub policy_version: Option<i32>,
    /// What people were asked, and what they said.
    pub approval: Option<ActionApproval>,
    /// What is sent, without the credential.
    pub request: Option<Value>,
    pub attempts: i32,
    pub response_status: Option<i32>,
    pub outcome: Option<String>,
    pub error: Option<String>,
    pub retry_at: Option<Timestamp>,
    pub duration_milliseconds: Option<i64>,
    pub started_at: Timestamp,
    pub finished_at: Option<Timestamp>,
}

/// An approval as a run's story tells it.
#[derive(Debug, Clone, Serialize)]
pub struct ActionApproval {
    pub approval_id: ApprovalId,
    pub state: String,
    pub decided_by: Option<UserId>,
    pub decided_at: Option<Timestamp>,
    pub expires_at: Timestamp,
}

/// A run with everything that is known of it.
#[derive(Debug, Clone, Serialize)]
pub struct RunDetail {
    #[serde(flatten)]
    pub row: RunRow,
    /// What has been done and is about to be, in order.
    pub actions: Vec<RunAction>,
    /// `untrusted`: a stranger wrote the input.
    pub input_trust: String,
    pub input: Value,
}

pub(super) const RUN_ACTIONS: &str = "
SELECT a.action_id, a.type, a.state, a.untrusted, a.steered_by, a.decision, a.decision_rule, a.policy_version, a.request,
       a.attempts, a.response_status, a.outcome, a.error, a.retry_at, a.started_at, a.finished_at,
       p.approval_id, p.state, p.decided_by, p.decided_at, p.expires_at
FROM run_actions a LEFT JOIN approvals p USING (workspace_id, run_id, action_id)
WHERE a.workspace_id = $1 AND a.run_id = $2 ORDER BY a.position";

pub async fn run_actions(
    client: &Client,
    workspace: WorkspaceId,
    run: RunId,
) -> Result<Vec<RunAction>, Error> {
    let read = |row: &Row| {
        let (started_at, finished_at): (Timestamp, Option<Timestamp>) =
            (row.try_get(14)?, row.try_get(15)?);
        let approval = match row.try_get::<_, Option<ApprovalId>>(16)? {
            Some(approval_id) => Some(ActionApproval {
                approval_id,
                state: row.try_get(17)?,
                decided_by: row.try_get(18)?,
                decided_at: row.try_get(19)?,
                expires_at: row.try_get(20)?,
            }),
            None => None,
        };
        Ok(RunAction {
            approval,
            action_id: row.try_get(0)?,
            action_type: row.try_get(1)?,
            state: row.try_get(2)?,
            untrusted: row.try_get(3)?,
            steered_by: row.try_get(4)?,
            decision: row.try_get(5)?,
            decision_rule: row.try_get(6)?,
            policy_version: row.try_get(7)?,
            request: row.try_get::<_, Option<&str>>(8)?.map(json),
            attempts: row.try_get(9)?,
            response_status: row.try_get(10)?,
            outcome: row.try_get(11)?,
            error: row.try_get(12)?,
            retry_at: row.try_get(13)?,
            duration_milliseconds: finished_at
                .map(|end| end.duration_since(started_at).as_millis() as i64),
            started_at,
            finished_at,
        })
    };
    client
        .query(RUN_ACTIONS, &[&workspace, &run])
        .await?
        .iter()
        .map(read)
        .collect()
}

pub(super) const RUNS: &str = "
SELECT run_id, workspace_id, workflow_id, release_id, run_as, state, refused_reason, failure, received_at,
       created_at, started_at, finished_at
FROM runs WHERE workspace_id = $1 AND ($2::uuid IS NULL OR workflow_id = $2) ORDER BY run_id DESC LIMIT $3";

pub async fn runs(
    client: &Client,
    workspace: WorkspaceId,
    workflow: Option<WorkflowId>,
    limit: u32,
) -> Result<Vec<RunRow>, Error> {
    client
        .query(RUNS, &[&workspace, &workflow, &i64::from(limit)])
        .await?
        .iter()
        .map(run_row)
        .collect()
}

/// Goes through the workspaces, because the key of a run begins with one.
pub(super) const RUN: &str = "
SELECT r.run_id, r.workspace_id, r.workflow_id, r.release_id, r.run_as, r.state, r.refused_reason, r.failure,
       r.received_at, r.created_at, r.started_at, r.finished_at, r.input_trust, r.input
FROM workspaces w JOIN runs r ON r.workspace_id = w.workspace_id AND r.run_id = $1";

pub async fn run(client: &Client, id: RunId) -> Result<Option<RunDetail>, Error> {
    let Some(row) = client.query_opt(RUN, &[&id]).await? else {
        return Ok(None);
    };
    let input = String::from_utf8_lossy(row.try_get(13)?);
    let input = serde_json::from_str(&input).unwrap_or_else(|_| input.into());
    let (input_trust, row) = (row.try_get(12)?, run_row(&row)?);
    let actions = run_actions(client, row.workspace_id, row.run_id).await?;
    Ok(Some(RunDetail {
        row,
        actions,
        input_trust,
        input,
    }))
}

fn run_row(row: &Row) -> Result<RunRow, Error> {
    Ok(RunRow {
        run_id: row.try_get(0)?,
        workspace_id: row.try_get(1)?,
        workflow_id: row.try_get(2)?,
        release_id: row.try_get(3)?,
        run_as: row.try_get(4)?,
        state: row.try_get(5)?,
        refused_reason: row.try_get(6)?,
        failure: row.try_get(7)?,
        received_at: row.try_get(8)?,
        created_at: row.try_get(9)?,
        started_at: row.try_get(10)?,
        finished_at: row.try_get(11)?,
    })
}
