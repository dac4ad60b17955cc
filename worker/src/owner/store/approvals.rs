//! Policies, and the questions that they make.

use jiff::Timestamp;
use letterbox_common::ids::{ApprovalId, RunId, UserId, WorkspaceId};
use serde::Serialize;
use serde_json::Value;
use tokio_postgres::{Client, Error, Row};

use super::json;

/// A workspace's policy.
#[derive(Debug, Clone, Serialize)]
pub struct PolicyRow {
    pub workspace_id: WorkspaceId,
    /// Counts from 1; 0 is the default policy.
    pub version: i32,
    pub policy: Value,
}

/// A question whether a request may be sent.
#[derive(Debug, Clone, Serialize)]
pub struct ApprovalRow {
    pub approval_id: ApprovalId,
    pub workspace_id: WorkspaceId,
    pub run_id: RunId,
    pub action_id: String,
    #[serde(rename = "type")]
    pub action_type: String,
    pub state: String,
    /// Exactly what will be sent, without the credential.
    pub request: Option<Value>,
    pub untrusted: Vec<String>,
    pub steered_by: Option<String>,
    pub decision_rule: Option<i32>,
    pub policy_version: Option<i32>,
    pub expires_at: Timestamp,
    pub decided_by: Option<UserId>,
    pub decided_at: Option<Timestamp>,
    pub created_at: Timestamp,
}

pub(super) const POLICY: &str = "SELECT workspace_id, version, policy FROM policies WHERE workspace_id = $1 ORDER BY version DESC LIMIT 1";

pub async fn policy(client: &Client, workspace: WorkspaceId) -> Result<Option<PolicyRow>, Error> {
    client
        .query_opt(POLICY, &[&workspace])
        .await?
        .map(|row| policy_row(&row))
        .transpose()
}

pub(super) const SET_POLICY: &str = "
INSERT INTO policies (workspace_id, version, policy)
SELECT $1, coalesce(max(version), 0) + 1, $2 FROM policies WHERE workspace_id = $1
RETURNING workspace_id, version, policy";

pub async fn set_policy(
    client: &Client,
    workspace: WorkspaceId,
    policy: &str,
) -> Result<PolicyRow, Error> {
    policy_row(&client.query_one(SET_POLICY, &[&workspace, &policy]).await?)
}

fn policy_row(row: &Row) -> Result<PolicyRow, Error> {
    Ok(PolicyRow {
        workspace_id: row.try_get(0)?,
        version: row.try_get(1)?,
        policy: json(row.try_get(2)?),
    })
}

macro_rules! approval_columns {
    () => {
        "p.approval_id, p.workspace_id, p.run_id, p.action_id, p.state, p.expires_at, p.decided_by, p.decided_at,
    p.created_at, a.type, a.untrusted, a.steered_by, a.decision_rule, a.policy_version, a.request"
    };
}

pub(super) const APPROVALS: &str = concat!(
    "SELECT ",
    approval_columns!(),
    " FROM approvals p JOIN run_actions a USING (workspace_id, run_id, action_id)
WHERE p.workspace_id = $1 AND p.state = 'pending' AND p.expires_at > clock_timestamp() ORDER BY p.created_at, p.approval_id"
);

pub async fn approvals(client: &Client, workspace: WorkspaceId) -> Result<Vec<ApprovalRow>, Error> {
    client
        .query(APPROVALS, &[&workspace])
        .await?
        .iter()
        .map(approval_row)
        .collect()
}

pub(super) const APPROVAL: &str = concat!(
    "SELECT ",
    approval_columns!(),
    " FROM workspaces w JOIN approvals p ON p.workspace_id = w.workspace_id AND p.approval_id = $1
JOIN run_actions a ON a.workspace_id = p.workspace_id AND a.run_id = p.run_id AND a.action_id = p.action_id"
);

pub async fn approval(client: &Client, approval: ApprovalId) -> Result<Option<ApprovalRow>, Error> {
    client
        .query_opt(APPROVAL, &[&approval])
        .await?
        .map(|row| approval_row(&row))
        .transpose()
}

pub(super) const DECIDE: &str = concat!(
    "WITH decided AS (
    UPDATE approvals p SET state = $3, decided_by = m.user_id, decided_at = clock_timestamp()
    FROM workspaces w JOIN members m
        ON m.workspace_id = w.workspace_id AND m.user_id = $2 AND m.role IN ('owner', 'editor') AND m.deactivated_at IS NULL
    WHERE p.workspace_id = w.workspace_id AND p.approval_id = $1 AND p.state = 'pending' AND p.expires_at > clock_timestamp()
      AND EXISTS (SELECT FROM runs r WHERE r.workspace_id = p.workspace_id AND r.run_id = p.run_id AND r.state = 'waiting_approval')
    RETURNING p.*
), wake AS (
    INSERT INTO run_wakes (workspace_id, run_id, due_at) SELECT workspace_id, run_id, clock_timestamp() FROM decided
    ON CONFLICT (workspace_id, run_id) DO UPDATE SET due_at = EXCLUDED.due_at
)
SELECT ",
    approval_columns!(),
    " FROM decided p JOIN run_actions a USING (workspace_id, run_id, action_id)"
);

/// Nothing if it can't be decided any more, or not by this user.
pub async fn decide(
    client: &Client,
    approval: ApprovalId,
    by: UserId,
    state: &str,
) -> Result<Option<ApprovalRow>, Error> {
    client
        .query_opt(DECIDE, &[&approval, &by, &state])
        .await?
        .map(|row| approval_row(&row))
        .transpose()
}

fn approval_row(row: &Row) -> Result<ApprovalRow, Error> {
    Ok(ApprovalRow {
        approval_id: row.try_get(0)?,
        workspace_id: row.try_get(1)?,
        run_id: row.try_get(2)?,
        action_id: row.try_get(3)?,
        state: row.try_get(4)?,
        expires_at: row.try_get(5)?,
        decided_by: row.try_get(6)?,
        decided_at: row.try_get(7)?,
        created_at: row.try_get(8)?,
        action_type: row.try_get(9)?,
        untrusted: row.try_get(10)?,
        steered_by: row.try_get(11)?,
        decision_rule: row.try_get(12)?,
        policy_version: row.try_get(13)?,
        request: row.try_get::<_, Option<&str>>(14)?.map(json),
    })
}
