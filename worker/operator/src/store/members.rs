//! Members of workspaces.

use jiff::Timestamp;
use letterbox_common::{
    ids::{UserId, WorkspaceId},
    states::MemberRole,
};
use letterbox_database::{Database, DatabaseError, statements};
use serde::Serialize;
use tokio_postgres::{Error, Row};

statements! {
    /// Adds a member, or changes one.
    SET_MEMBER = set_member "
WITH stored AS (
    INSERT INTO members (workspace_id, user_id, role, deactivated_at)
    VALUES ($1, $2, $3, CASE WHEN $4 THEN clock_timestamp() END)
    ON CONFLICT (workspace_id, user_id) DO UPDATE
        SET role = EXCLUDED.role,
            deactivated_at =
                CASE WHEN $4 THEN coalesce(members.deactivated_at, clock_timestamp()) END
    RETURNING *
)
SELECT m.workspace_id, m.user_id, u.email, u.name, m.role, m.deactivated_at, m.may_run
FROM stored m JOIN users u USING (user_id)";

    /// Removes a member.
    REMOVE_MEMBER = remove_member "
WITH removed AS (DELETE FROM members WHERE workspace_id = $1 AND user_id = $2 RETURNING *)
SELECT m.workspace_id, m.user_id, u.email, u.name, m.role, m.deactivated_at, m.may_run
FROM removed m JOIN users u USING (user_id)";

    /// The members of a workspace, by e-mail address.
    MEMBERS = members "
SELECT m.workspace_id, m.user_id, u.email, u.name, m.role, m.deactivated_at, m.may_run
FROM members m JOIN users u USING (user_id) WHERE m.workspace_id = $1 ORDER BY u.email";
}

/// A person's place in a workspace.
#[derive(Debug, Clone, Serialize)]
pub struct Member {
    /// The workspace that the user is a member of.
    pub workspace_id: WorkspaceId,
    /// The user who is the member.
    pub user_id: UserId,
    /// The user's e-mail address, as it was given.
    pub email: String,
    /// The user's name, for people.
    pub name: String,
    /// What the member may do there while active.
    pub role: MemberRole,
    /// Since when the member may do nothing there; None while active.
    pub deactivated_at: Option<Timestamp>,
    /// Whether workflows may run as this member: active, and not a viewer.
    pub may_run: bool,
}

impl Member {
    pub(super) fn decode(row: &Row) -> Result<Self, Error> {
        Ok(Self {
            workspace_id: row.try_get("workspace_id")?,
            user_id: row.try_get("user_id")?,
            email: row.try_get("email")?,
            name: row.try_get("name")?,
            role: row.try_get("role")?,
            deactivated_at: row.try_get("deactivated_at")?,
            may_run: row.try_get("may_run")?,
        })
    }
}

pub(crate) async fn set_member(
    database: &Database,
    workspace: WorkspaceId,
    user: UserId,
    role: MemberRole,
    deactivated: bool,
) -> Result<Member, DatabaseError> {
    let row = database
        .query_one(
            &SET_MEMBER,
            &[
                /* $1 workspace_id */ &workspace,
                /* $2 user_id */ &user,
                /* $3 role */ &role,
                /* $4 deactivated */ &deactivated,
            ],
        )
        .await?;
    Ok(Member::decode(&row)?)
}

/// None if the user is not a member.
pub(crate) async fn remove_member(
    database: &Database,
    workspace: WorkspaceId,
    user: UserId,
) -> Result<Option<Member>, DatabaseError> {
    let row = database
        .query_opt(&REMOVE_MEMBER, &[&workspace, &user])
        .await?;
    Ok(row.map(|row| Member::decode(&row)).transpose()?)
}

pub(crate) async fn members(
    database: &Database,
    workspace: WorkspaceId,
) -> Result<Vec<Member>, DatabaseError> {
    let rows = database.query(&MEMBERS, &[&workspace]).await?;
    rows.iter().map(|row| Ok(Member::decode(row)?)).collect()
}
