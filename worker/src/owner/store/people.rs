//! People and their places in workspaces.

use jiff::Timestamp;
use letterbox_common::ids::{UserId, WorkspaceId};
use serde::Serialize;
use tokio_postgres::{Client, Error, Row};

/// A person.
#[derive(Debug, Clone, Serialize)]
pub struct User {
    pub user_id: UserId,
    pub email: String,
    pub name: String,
    pub created_at: Timestamp,
}

/// A person's place in a workspace.
#[derive(Debug, Clone, Serialize)]
pub struct Member {
    pub workspace_id: WorkspaceId,
    pub user_id: UserId,
    pub email: String,
    pub name: String,
    pub role: String,
    pub deactivated_at: Option<Timestamp>,
    pub may_run: bool,
}

pub(super) const CREATE_USER: &str =
    "INSERT INTO users (user_id, email, name) VALUES ($1, $2, $3) RETURNING created_at";

pub async fn create_user(
    client: &Client,
    id: UserId,
    email: &str,
    name: &str,
) -> Result<User, Error> {
    let created_at = client
        .query_one(CREATE_USER, &[&id, &email, &name])
        .await?
        .try_get(0)?;
    Ok(User {
        user_id: id,
        email: email.to_owned(),
        name: name.to_owned(),
        created_at,
    })
}

pub(super) const SET_MEMBER: &str = "
WITH stored AS (
    INSERT INTO members (workspace_id, user_id, role, deactivated_at)
    VALUES ($1, $2, $3, CASE WHEN $4 THEN clock_timestamp() END)
    ON CONFLICT (workspace_id, user_id) DO UPDATE
        SET role = EXCLUDED.role, deactivated_at = CASE WHEN $4 THEN coalesce(members.deactivated_at, clock_timestamp()) END
    RETURNING *
)
SELECT m.workspace_id, m.user_id, u.email, u.name, m.role, m.deactivated_at, m.may_run
FROM stored m JOIN users u USING (user_id)";

pub async fn set_member(
    client: &Client,
    workspace: WorkspaceId,
    user: UserId,
    role: &str,
    deactivated: bool,
) -> Result<Member, Error> {
    member(
        &client
            .query_one(SET_MEMBER, &[&workspace, &user, &role, &deactivated])
            .await?,
    )
}

pub(super) const REMOVE_MEMBER: &str = "
WITH removed AS (DELETE FROM members WHERE workspace_id = $1 AND user_id = $2 RETURNING *)
SELECT m.workspace_id, m.user_id, u.email, u.name, m.role, m.deactivated_at, m.may_run
FROM removed m JOIN users u USING (user_id)";

pub async fn remove_member(
    client: &Client,
    workspace: WorkspaceId,
    user: UserId,
) -> Result<Option<Member>, Error> {
    client
        .query_opt(REMOVE_MEMBER, &[&workspace, &user])
        .await?
        .map(|row| member(&row))
        .transpose()
}

pub(super) const MEMBERS: &str = "
SELECT m.workspace_id, m.user_id, u.email, u.name, m.role, m.deactivated_at, m.may_run
FROM members m JOIN users u USING (user_id) WHERE m.workspace_id = $1 ORDER BY u.email";

pub async fn members(client: &Client, workspace: WorkspaceId) -> Result<Vec<Member>, Error> {
    client
        .query(MEMBERS, &[&workspace])
        .await?
        .iter()
        .map(member)
        .collect()
}

fn member(row: &Row) -> Result<Member, Error> {
    Ok(Member {
        workspace_id: row.try_get(0)?,
        user_id: row.try_get(1)?,
        email: row.try_get(2)?,
        name: row.try_get(3)?,
        role: row.try_get(4)?,
        deactivated_at: row.try_get(5)?,
        may_run: row.try_get(6)?,
    })
}
