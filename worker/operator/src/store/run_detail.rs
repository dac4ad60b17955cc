//! One run: what was submitted to it, and everything that it has done.

use jiff::Timestamp;
use letterbox_common::{
    ids::{ApprovalId, RunId, UserId},
    states::{ActionState, ApprovalState, InputTrust},
};
use letterbox_database::{Database, DatabaseError, statements};
use letterbox_workflow::{Decision, Steering, Untrusted, actions::Branch};
use serde::Serialize;
use serde_json::Value;
use tokio_postgres::{Error, Row};
use uuid::Uuid;

use super::{RunRow, json};

statements! {
    /// One run with its input.
    RUN = run "
SELECT r.run_id, r.workspace_id, r.workflow_id, r.release_id, r.run_as, r.state, r.refused_reason,
       r.failure, r.received_at, r.created_at, r.started_at, r.finished_at, r.input_trust, r.input,
       coalesce(s.changed_repeats, 0) AS changed_repeats, f.name AS workflow_name,
       l.number AS release_number, u.name AS owner_name, r.request_id,
       nullif(split_part(r.traceparent, '-', 2), '') AS trace_id,
       r.finished_at IS NULL AND r.workspace_id IN (SELECT workspace_id FROM held_workspaces)
           AS is_held
FROM workspaces w JOIN runs r ON r.workspace_id = w.workspace_id AND r.run_id = $1
JOIN users u ON u.user_id = r.run_as
JOIN workflows f ON f.workspace_id = r.workspace_id AND f.workflow_id = r.workflow_id
JOIN releases l ON l.workspace_id = r.workspace_id AND l.workflow_id = r.workflow_id
    AND l.release_id = r.release_id
LEFT JOIN form_submissions s ON s.workspace_id = r.workspace_id AND s.submission_id = r.run_id";

    /// What a run has done, in order.
    RUN_ACTIONS = run_actions "
SELECT a.action_id, a.type, a.state, a.untrusted, a.steered_by, a.decision, a.decision_rule,
       a.policy_version, a.part_of, a.is_told, a.answer_sealed, a.request, a.idempotency_key,
       a.attempts, a.response_status, a.branch, a.error,
       a.retry_at, a.started_at, a.finished_at,
       p.approval_id, p.state AS approval_state, p.decided_by, p.decided_at, p.expires_at,
       u.name AS decided_by_name
FROM run_actions a LEFT JOIN approvals p USING (workspace_id, run_id, action_id)
LEFT JOIN users u ON u.user_id = p.decided_by
WHERE a.workspace_id = $1 AND a.run_id = $2 ORDER BY a.position";
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
    /// What every attempt is sent with, by which the account knows it again.
    pub idempotency_key: Uuid,
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
            idempotency_key: row.try_get("idempotency_key")?,
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
    /// The name of whoever answered.
    pub decided_by_name: Option<String>,
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
            decided_by_name: row.try_get("decided_by_name")?,
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
    /// The name of the workflow.
    pub workflow_name: String,
    /// Counts the releases of the workflow.
    pub release_number: i32,
    /// The `X-Request-Id` that its submitter was answered; None where it is not known.
    pub request_id: Option<String>,
    /// Its trace, where that is followed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
    /// It is not over, and its workspace is held, or all are: no action of it begins.
    pub is_held: bool,
    /// The name of the user as whom it runs.
    pub owner_name: String,
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

/// None if there is no such run.
pub(crate) async fn run(
    database: &Database,
    id: RunId,
) -> Result<Option<RunDetail>, DatabaseError> {
    let row = database.query_opt(&RUN, &[&id]).await?;
    let Some(row) = row else { return Ok(None) };
    let input: Option<&[u8]> = row.try_get("input")?;
    let input = input.map(|input| json(&String::from_utf8_lossy(input)));
    let run = RunRow::decode(&row)?;
    let actions = database
        .query(&RUN_ACTIONS, &[&run.workspace_id, &run.run_id])
        .await?;
    let actions = actions
        .iter()
        .map(RunAction::decode)
        .collect::<Result<_, _>>()?;
    Ok(Some(RunDetail {
        row: run,
        workflow_name: row.try_get("workflow_name")?,
        release_number: row.try_get("release_number")?,
        request_id: row.try_get("request_id")?,
        trace_id: row.try_get("trace_id")?,
        is_held: row.try_get("is_held")?,
        owner_name: row.try_get("owner_name")?,
        actions,
        input_trust: row.try_get("input_trust")?,
        input,
        changed_repeats: row.try_get("changed_repeats")?,
    }))
}
