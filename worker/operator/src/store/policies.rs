//! Policies of workspaces, by version.

use jiff::Timestamp;
use letterbox_common::ids::{UserId, WorkflowId, WorkspaceId};
use letterbox_database::{Database, DatabaseError, statements};
use serde::Serialize;
use serde_json::Value;
use tokio_postgres::{Error, Row};

use super::json;

statements! {
    /// The policy of a workspace that holds now.
    POLICY = policy "
SELECT workspace_id, version, policy FROM policies
WHERE workspace_id = $1 ORDER BY version DESC LIMIT 1";

    /// One version of a policy.
    POLICY_VERSION = policy_version "
SELECT workspace_id, version, policy FROM policies WHERE workspace_id = $1 AND version = $2";

    /// The versions of a policy, newest first, with who has set them.
    POLICY_HISTORY = policy_history "
SELECT p.version, p.created_at, a.ordered_by, u.name AS ordered_by_name, a.reason, p.policy
FROM policies p
LEFT JOIN audit_log a ON a.workspace_id = p.workspace_id AND a.subject = 'policies'
    AND a.subject_id = p.version::text
LEFT JOIN users u ON u.user_id = a.ordered_by
WHERE p.workspace_id = $1 ORDER BY p.version DESC LIMIT $2";

    /// The actions of every deployed workflow of a workspace.
    DEPLOYED_ACTIONS = deployed_actions "
SELECT f.workflow_id, f.owner_id, r.actions, r.on_failure
FROM workflows f JOIN releases r
    ON r.workspace_id = f.workspace_id AND r.workflow_id = f.workflow_id
    AND r.release_id = f.live_release_id
WHERE f.workspace_id = $1 AND f.state = 'deployed' ORDER BY f.workflow_id";

    /// Adds the next version of a policy.
    SET_POLICY = set_policy "
INSERT INTO policies (workspace_id, version, policy)
SELECT $1, coalesce(max(version), 0) + 1, $2 FROM policies WHERE workspace_id = $1
RETURNING workspace_id, version, policy";
}

/// A workspace's policy.
#[derive(Debug, Clone, Serialize)]
pub struct PolicyRow {
    /// The workspace whose actions it decides about.
    pub workspace_id: WorkspaceId,
    /// Counts from 1; 0 is the default policy.
    pub version: i32,
    /// Its rules and its default, as they were set.
    pub policy: Value,
}

impl PolicyRow {
    fn decode(row: &Row) -> Result<Self, Error> {
        Ok(Self {
            workspace_id: row.try_get("workspace_id")?,
            version: row.try_get("version")?,
            policy: json(row.try_get("policy")?),
        })
    }
}

/// A version of a policy, and who has set it.
#[derive(Debug, Clone, Serialize)]
pub struct PolicyVersion {
    /// Counts from 1.
    pub version: i32,
    /// By the database's clock.
    pub set_at: Timestamp,
    /// The user who answers for it; None where nobody was named.
    pub set_by: Option<UserId>,
    /// The name of that user.
    pub set_by_name: Option<String>,
    /// Why, where that was said.
    pub reason: Option<String>,
    /// Its rules and its default.
    pub policy: Value,
}

/// One version of a policy; None where there is none such.
pub(crate) async fn policy_version(
    database: &Database,
    workspace: WorkspaceId,
    version: i32,
) -> Result<Option<PolicyRow>, DatabaseError> {
    let row = database
        .query_opt(&POLICY_VERSION, &[&workspace, &version])
        .await?;
    Ok(row.map(|row| PolicyRow::decode(&row)).transpose()?)
}

/// The newest versions of a policy.
pub(crate) async fn policy_history(
    database: &Database,
    workspace: WorkspaceId,
    limit: u32,
) -> Result<Vec<PolicyVersion>, DatabaseError> {
    let rows = database
        .query(&POLICY_HISTORY, &[&workspace, &i64::from(limit)])
        .await?;
    let versions = rows.iter().map(|row| {
        Ok(PolicyVersion {
            version: row.try_get("version")?,
            set_at: row.try_get("created_at")?,
            set_by: row.try_get("ordered_by")?,
            set_by_name: row.try_get("ordered_by_name")?,
            reason: row.try_get("reason")?,
            policy: json(row.try_get("policy")?),
        })
    });
    versions.collect()
}

/// None where the default policy holds.
pub(crate) async fn policy(
    database: &Database,
    workspace: WorkspaceId,
) -> Result<Option<PolicyRow>, DatabaseError> {
    let row = database.query_opt(&POLICY, &[&workspace]).await?;
    Ok(row.map(|row| PolicyRow::decode(&row)).transpose()?)
}

pub(crate) async fn set_policy(
    database: &Database,
    workspace: WorkspaceId,
    policy: &str,
) -> Result<PolicyRow, DatabaseError> {
    let row = database
        .query_one(&SET_POLICY, &[&workspace, &policy])
        .await?;
    Ok(PolicyRow::decode(&row)?)
}

/// A workflow that is deployed, its actions as JSON text.
pub(crate) struct DeployedActions {
    pub(crate) workflow: WorkflowId,
    pub(crate) owner: UserId,
    pub(crate) actions: String,
    pub(crate) on_failure: Option<String>,
}

pub(crate) async fn deployed_actions(
    database: &Database,
    workspace: WorkspaceId,
) -> Result<Vec<DeployedActions>, DatabaseError> {
    let rows = database.query(&DEPLOYED_ACTIONS, &[&workspace]).await?;
    rows.iter()
        .map(|row| {
            Ok(DeployedActions {
                workflow: row.try_get("workflow_id")?,
                owner: row.try_get("owner_id")?,
                actions: row.try_get("actions")?,
                on_failure: row.try_get("on_failure")?,
            })
        })
        .collect()
}
