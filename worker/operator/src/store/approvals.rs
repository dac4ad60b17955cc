//! Approvals: questions whether a request may be sent, and their answers.

use jiff::Timestamp;
use letterbox_common::{
    ids::{ApprovalId, RunId, UserId, WorkflowId, WorkspaceId},
    states::ApprovalState,
};
use letterbox_database::{Database, DatabaseError, statements};
use letterbox_workflow::{Steering, Untrusted};
use serde::Serialize;
use serde_json::Value;
use tokio_postgres::{Error, Row};

use super::{Member, json};

/// What is shown of an approval `p` and its action `a`.
macro_rules! columns {
    () => {
        "p.approval_id, p.workspace_id, p.run_id, p.action_id, p.state, p.expires_at, p.decided_by,
    p.decided_at, p.created_at, a.type, a.untrusted, a.steered_by, a.decision_rule,
    a.policy_version, a.request"
    };
}

statements! {
    /// What waits for an answer, of each workflow the oldest $2; no more than $3 are counted.
    WAITING_APPROVALS = waiting_approvals concat!("
SELECT ", columns!(), ", w.name AS workspace_name, f.workflow_id, f.name AS workflow_name,
       (SELECT count(*) FROM (
           SELECT FROM approvals q
           WHERE q.workspace_id = f.workspace_id AND q.workflow_id = f.workflow_id
             AND q.state = 'pending' AND q.expires_at > clock.now LIMIT $3) AS counted) AS waiting
FROM workspaces w
CROSS JOIN LATERAL (SELECT question_clock(w.workspace_id) AS now) AS clock
JOIN workflows f ON f.workspace_id = w.workspace_id
CROSS JOIN LATERAL (
    SELECT * FROM approvals q
    WHERE q.workspace_id = f.workspace_id AND q.workflow_id = f.workflow_id
      AND q.state = 'pending' AND q.expires_at > clock.now
    ORDER BY q.created_at LIMIT $2) AS p
JOIN run_actions a
    ON a.workspace_id = p.workspace_id AND a.run_id = p.run_id AND a.action_id = p.action_id
WHERE $1::uuid IS NULL OR w.workspace_id = $1
ORDER BY w.name, w.workspace_id, f.name, f.workflow_id, p.created_at, p.approval_id");

    /// The members who may answer a question.
    MAY_ANSWER = may_answer "
SELECT m.workspace_id, m.user_id, u.email, u.name, m.role, m.deactivated_at, m.may_run
FROM workspaces w JOIN approvals p ON p.workspace_id = w.workspace_id AND p.approval_id = $1
JOIN runs r ON r.workspace_id = p.workspace_id AND r.run_id = p.run_id
JOIN members m ON m.workspace_id = p.workspace_id
JOIN users u ON u.user_id = m.user_id
WHERE approval_stands(p.workspace_id, m.user_id, r.run_as) ORDER BY u.email";

    /// What somebody should know who answers a question.
    APPROVAL_CONTEXT = approval_context "
SELECT f.workflow_id, f.name AS workflow_name, w.name AS workspace_name, u.name AS owner_name,
       u.user_id AS owner_id, r.received_at, r.input, l.actions, l.on_failure,
       p.expires_at > question_clock(w.workspace_id) AS is_open
FROM workspaces w JOIN approvals p ON p.workspace_id = w.workspace_id AND p.approval_id = $1
JOIN runs r ON r.workspace_id = p.workspace_id AND r.run_id = p.run_id
JOIN users u ON u.user_id = r.run_as
JOIN workflows f ON f.workspace_id = r.workspace_id AND f.workflow_id = r.workflow_id
JOIN releases l ON l.workspace_id = r.workspace_id AND l.workflow_id = r.workflow_id
    AND l.release_id = r.release_id";

    /// Whether a question is for another person than this one, because the run acts as this one.
    IS_FOR_ANOTHER = is_for_another "
SELECT r.run_as = $2 AND needs_another(r.workspace_id) AS is_for_another
FROM workspaces w JOIN approvals p ON p.workspace_id = w.workspace_id AND p.approval_id = $1
JOIN runs r ON r.workspace_id = p.workspace_id AND r.run_id = p.run_id";

    /// One approval.
    APPROVAL = approval concat!("SELECT ", columns!(), "
FROM workspaces w JOIN approvals p ON p.workspace_id = w.workspace_id AND p.approval_id = $1
JOIN run_actions a
    ON a.workspace_id = p.workspace_id AND a.run_id = p.run_id AND a.action_id = p.action_id");

    /// Answers a question that is still open, for a member who may, and wakes the run.
    ANSWER_APPROVAL = answer_approval concat!("
WITH answered AS (
    UPDATE approvals p SET state = $3, decided_by = m.user_id, decided_at = clock_timestamp()
    FROM workspaces w JOIN members m ON m.workspace_id = w.workspace_id AND m.user_id = $2
    WHERE p.workspace_id = w.workspace_id AND p.approval_id = $1
      AND p.state = 'pending' AND p.expires_at > question_clock(p.workspace_id)
      AND EXISTS (SELECT FROM runs r
                  WHERE r.workspace_id = p.workspace_id AND r.run_id = p.run_id
                    AND r.state = 'waiting_approval'
                    AND approval_stands(r.workspace_id, m.user_id, r.run_as))
    RETURNING p.*
), wake AS (
    INSERT INTO run_wakes (workspace_id, run_id, due_at)
    SELECT workspace_id, run_id, clock_timestamp() FROM answered
    ON CONFLICT (workspace_id, run_id) DO UPDATE
    SET due_at = EXCLUDED.due_at, state = 'scheduled', handovers = 0
)
SELECT ", columns!(), "
FROM answered p JOIN run_actions a USING (workspace_id, run_id, action_id)");
}

/// A question whether a request may be sent.
#[derive(Debug, Clone, Serialize)]
pub struct ApprovalRow {
    /// The id by which it is answered.
    pub approval_id: ApprovalId,
    /// The workspace of the run.
    pub workspace_id: WorkspaceId,
    /// The run that waits.
    pub run_id: RunId,
    /// The id of the action in its release.
    pub action_id: String,
    /// The kind of the action, such as `http.request`.
    #[serde(rename = "type")]
    pub action_type: String,
    /// The answer so far.
    pub state: ApprovalState,
    /// Exactly what will be sent, without the credential.
    pub request: Option<Value>,
    /// How text that a submitter wrote reaches the request; empty where it does not.
    pub untrusted: Vec<Untrusted>,
    /// The kind of condition through which such text led to the action; None where it did not.
    pub steered_by: Vec<Steering>,
    /// The rule of the policy that decided, from 1; None where the default did.
    pub decision_rule: Option<i32>,
    /// The policy that was asked; 0 is the default policy.
    pub policy_version: Option<i32>,
    /// From this time on nobody can answer it.
    pub expires_at: Timestamp,
    /// Who answered; None while it is open, and where nobody did.
    pub decided_by: Option<UserId>,
    /// When it was answered or closed; None while it is open.
    pub decided_at: Option<Timestamp>,
    /// When it was asked, by the database's clock.
    pub created_at: Timestamp,
}

impl ApprovalRow {
    fn decode(row: &Row) -> Result<Self, Error> {
        Ok(Self {
            approval_id: row.try_get("approval_id")?,
            workspace_id: row.try_get("workspace_id")?,
            run_id: row.try_get("run_id")?,
            action_id: row.try_get("action_id")?,
            action_type: row.try_get("type")?,
            state: row.try_get("state")?,
            request: row.try_get::<_, Option<&str>>("request")?.map(json),
            untrusted: row.try_get("untrusted")?,
            steered_by: row.try_get("steered_by")?,
            decision_rule: row.try_get("decision_rule")?,
            policy_version: row.try_get("policy_version")?,
            expires_at: row.try_get("expires_at")?,
            decided_by: row.try_get("decided_by")?,
            decided_at: row.try_get("decided_at")?,
            created_at: row.try_get("created_at")?,
        })
    }
}

/// A question that waits, as one of those of its workflow.
#[derive(Debug, Clone, Serialize)]
pub struct WaitingApproval {
    /// The question.
    #[serde(flatten)]
    pub row: ApprovalRow,
    /// The name of the workspace.
    pub workspace_name: String,
    /// The workflow of the run.
    pub workflow_id: WorkflowId,
    /// Its name.
    pub workflow_name: String,
    /// How many questions of this workflow wait, as far as they were counted.
    pub waiting: i64,
    /// Whether all of them were counted.
    pub is_counted: bool,
}

/// What somebody should know who answers a question.
#[derive(Debug, Clone)]
pub(crate) struct ApprovalContext {
    /// The name of the workspace.
    pub(crate) workspace_name: String,
    /// The workflow of the run.
    pub(crate) workflow_id: WorkflowId,
    /// Its name.
    pub(crate) workflow_name: String,
    /// The user as whom the run acts.
    pub(crate) owner_id: UserId,
    /// The name of that user.
    pub(crate) owner_name: String,
    /// When the submission was received.
    pub(crate) received_at: Timestamp,
    /// What was submitted; None where it was forgotten.
    pub(crate) input: Option<Value>,
    /// The actions of the release, and those that follow a failure, as they were deployed.
    pub(crate) actions: Vec<Value>,
    /// Whether there is time left to answer.
    pub(crate) is_open: bool,
}

/// What waits in a workspace, or in all: the oldest `each` of each workflow; `most` of each are
/// counted.
pub(crate) async fn waiting_approvals(
    database: &Database,
    workspace: Option<WorkspaceId>,
    each: u32,
    most: i64,
) -> Result<Vec<WaitingApproval>, DatabaseError> {
    let (each, looked_at) = (i64::from(each), most + 1);
    let rows = database
        .query(&WAITING_APPROVALS, &[&workspace, &each, &looked_at])
        .await?;
    let waiting = rows.iter().map(|row| {
        let waiting: i64 = row.try_get("waiting")?;
        Ok(WaitingApproval {
            row: ApprovalRow::decode(row)?,
            workspace_name: row.try_get("workspace_name")?,
            workflow_id: row.try_get("workflow_id")?,
            workflow_name: row.try_get("workflow_name")?,
            waiting: waiting.min(most),
            is_counted: waiting <= most,
        })
    });
    waiting.collect()
}

pub(crate) async fn may_answer(
    database: &Database,
    approval: ApprovalId,
) -> Result<Vec<Member>, DatabaseError> {
    let rows = database.query(&MAY_ANSWER, &[&approval]).await?;
    rows.iter().map(|row| Ok(Member::decode(row)?)).collect()
}

/// None where there is no such question.
pub(crate) async fn approval_context(
    database: &Database,
    approval: ApprovalId,
) -> Result<Option<ApprovalContext>, DatabaseError> {
    let row = database.query_opt(&APPROVAL_CONTEXT, &[&approval]).await?;
    let Some(row) = row else { return Ok(None) };
    let input: Option<&[u8]> = row.try_get("input")?;
    let on_failure: Option<&str> = row.try_get("on_failure")?;
    let actions = [Some(row.try_get("actions")?), on_failure];
    Ok(Some(ApprovalContext {
        workspace_name: row.try_get("workspace_name")?,
        workflow_id: row.try_get("workflow_id")?,
        workflow_name: row.try_get("workflow_name")?,
        owner_id: row.try_get("owner_id")?,
        owner_name: row.try_get("owner_name")?,
        received_at: row.try_get("received_at")?,
        input: input.map(|input| json(&String::from_utf8_lossy(input))),
        actions: actions.into_iter().flatten().map(json).collect(),
        is_open: row.try_get("is_open")?,
    }))
}

pub(crate) async fn approval(
    database: &Database,
    approval: ApprovalId,
) -> Result<Option<ApprovalRow>, DatabaseError> {
    let row = database.query_opt(&APPROVAL, &[&approval]).await?;
    Ok(row.map(|row| ApprovalRow::decode(&row)).transpose()?)
}

/// Whether a question is for another person than this one; false where there is no such question.
pub(crate) async fn is_for_another(
    database: &Database,
    approval: ApprovalId,
    by: UserId,
) -> Result<bool, DatabaseError> {
    let row = database
        .query_opt(&IS_FOR_ANOTHER, &[&approval, &by])
        .await?;
    let found: Option<bool> = row.map(|row| row.try_get("is_for_another")).transpose()?;
    Ok(found.unwrap_or_default())
}

/// None if it can't be answered any more, or not by this user.
pub(crate) async fn answer(
    database: &Database,
    approval: ApprovalId,
    by: UserId,
    answer: ApprovalState,
) -> Result<Option<ApprovalRow>, DatabaseError> {
    let row = database
        .query_opt(&ANSWER_APPROVAL, &[&approval, &by, &answer])
        .await?;
    Ok(row.map(|row| ApprovalRow::decode(&row)).transpose()?)
}
