//! Policies of workspaces, by version.

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
