//! Workspaces and their allowances.

use jiff::Timestamp;
use letterbox_common::ids::WorkspaceId;
use serde::Serialize;
use tokio_postgres::{Client, Error, Row};

/// A tenant.
#[derive(Debug, Clone, Serialize)]
pub struct Workspace {
    pub workspace_id: WorkspaceId,
    pub name: String,
    /// Runs that may start in a calendar month; without limit if there is none.
    pub run_allowance: Option<i32>,
    pub created_at: Timestamp,
}

/// A workspace's allowance of runs, and how much of it is used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Allowance {
    pub workspace_id: WorkspaceId,
    pub run_allowance: Option<i32>,
    /// This month (UTC), as `YYYY-MM`.
    pub month: String,
    /// Runs started in it.
    pub started: i32,
}

pub(super) const CREATE_WORKSPACE: &str = "
INSERT INTO workspaces (workspace_id, name, run_allowance) VALUES ($1, $2, $3)
RETURNING workspace_id, name, run_allowance, created_at";

pub async fn create_workspace(
    client: &Client,
    id: WorkspaceId,
    name: &str,
    allowance: Option<i32>,
) -> Result<Workspace, Error> {
    workspace(
        &client
            .query_one(CREATE_WORKSPACE, &[&id, &name, &allowance])
            .await?,
    )
}

pub(super) const WORKSPACES: &str = "SELECT workspace_id, name, run_allowance, created_at FROM workspaces ORDER BY created_at, workspace_id";

pub async fn workspaces(client: &Client) -> Result<Vec<Workspace>, Error> {
    client
        .query(WORKSPACES, &[])
        .await?
        .iter()
        .map(workspace)
        .collect()
}

fn workspace(row: &Row) -> Result<Workspace, Error> {
    Ok(Workspace {
        workspace_id: row.try_get(0)?,
        name: row.try_get(1)?,
        run_allowance: row.try_get(2)?,
        created_at: row.try_get(3)?,
    })
}

pub(super) const ALLOWANCE: &str = "
SELECT w.workspace_id, w.run_allowance, to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM'), coalesce(u.started, 0)
FROM workspaces w LEFT JOIN run_usage u
    ON u.workspace_id = w.workspace_id AND u.month = date_trunc('month', now() AT TIME ZONE 'UTC')
WHERE w.workspace_id = $1";

pub async fn allowance(
    client: &Client,
    workspace: WorkspaceId,
) -> Result<Option<Allowance>, Error> {
    let Some(row) = client.query_opt(ALLOWANCE, &[&workspace]).await? else {
        return Ok(None);
    };
    Ok(Some(Allowance {
        workspace_id: row.try_get(0)?,
        run_allowance: row.try_get(1)?,
        month: row.try_get(2)?,
        started: row.try_get(3)?,
    }))
}

pub(super) const SET_ALLOWANCE: &str =
    "UPDATE workspaces SET run_allowance = $2 WHERE workspace_id = $1";

pub async fn set_allowance(
    client: &Client,
    workspace: WorkspaceId,
    runs: Option<i32>,
) -> Result<(), Error> {
    client
        .execute(SET_ALLOWANCE, &[&workspace, &runs])
        .await
        .map(drop)
}

pub(super) const WORKSPACE_EXISTS: &str =
    "SELECT EXISTS (SELECT FROM workspaces WHERE workspace_id = $1)";

pub async fn workspace_exists(client: &Client, id: WorkspaceId) -> Result<bool, Error> {
    client.query_one(WORKSPACE_EXISTS, &[&id]).await?.try_get(0)
}
