//! Members: who belongs to a workspace, and with which role.

use clap::Args;
use jiff::Timestamp;
use letterbox_common::{
    ids::{UserId, WorkspaceId},
    states::MemberRole,
    text_enum,
};
use letterbox_database::{FromRow, statements};
use serde::{Deserialize, Serialize};
use tokio_postgres::error::SqlState;

use crate::{
    Operator, Reason, Result, error::Explain, users::check_user, workspace_settings::on_or_off,
};

/// The columns of a [`Member`]: of a membership `m` and its user `u`.
macro_rules! member_columns {
    () => {
        "m.workspace_id, m.user_id, u.email, u.name, m.role, m.deactivated_at, m.may_run"
    };
}
pub(crate) use member_columns;

statements! {
    /// Adds a member, or changes one.
    desk fn set_member(
        workspace: WorkspaceId, user: UserId, role: MemberRole, is_deactivated: Option<bool>,
    ) = "
INSERT INTO members (workspace_id, user_id, role, deactivated_at)
VALUES ($1, $2, $3, CASE WHEN $4 THEN clock_timestamp() END)
ON CONFLICT (workspace_id, user_id) DO UPDATE
    SET role = EXCLUDED.role,
        deactivated_at = CASE WHEN $4 THEN coalesce(members.deactivated_at, clock_timestamp())
            WHEN $4 IS NULL THEN members.deactivated_at END";

    /// One member.
    desk fn member(workspace: WorkspaceId, user: UserId) -> Member = concat!("
SELECT ", member_columns!(), "
FROM members m JOIN users u USING (user_id) WHERE m.workspace_id = $1 AND m.user_id = $2");

    /// The user with an e-mail address, a new one if there is none.
    desk fn introduce(
        workspace: WorkspaceId, fresh: UserId, email: &str, name: &str,
    ) -> (UserId,) = "SELECT introduce($1, $2, $3, $4) AS user_id";

    /// Has a member told of it by e-mail.
    desk fn send_invitation(workspace: WorkspaceId, user: UserId) -> (Invitation,) = "
SELECT send_invitation($1, $2) AS sent";

    /// The role of an active member.
    desk fn role_of(workspace: WorkspaceId, user: UserId) -> Option<(MemberRole,)> = "
SELECT role FROM members
WHERE workspace_id = $1 AND user_id = $2 AND deactivated_at IS NULL";

    /// Removes a member.
    desk fn remove_member(workspace: WorkspaceId, user: UserId) -> Option<Member> = concat!("
SELECT ", member_columns!(), " FROM remove_member($1, $2) m JOIN users u USING (user_id)");

    /// Takes the rights of a user in all workspaces, and ends their sessions.
    fn deactivate_user(user: UserId) -> Vec<Member> = concat!("
WITH stored AS (
    UPDATE members SET deactivated_at = coalesce(deactivated_at, clock_timestamp())
    WHERE user_id = $1 RETURNING *
), ended AS MATERIALIZED (
    SELECT sign_out($1) AS sessions
)
SELECT ", member_columns!(), " FROM stored m JOIN users u USING (user_id)
WHERE (SELECT sessions FROM ended) >= 0
ORDER BY m.workspace_id");

    /// The members of a workspace, by e-mail address.
    desk fn members(workspace: WorkspaceId) -> Vec<Member> = concat!("
SELECT ", member_columns!(), "
FROM members m JOIN users u USING (user_id) WHERE m.workspace_id = $1 ORDER BY u.email");
}

text_enum! {
    /// What became of an e-mail that tells somebody that they are a member.
    pub enum Invitation {
        /// It is on its way
        Sent = "sent",
        /// It was sent within the last thirty days
        Before = "before",
        /// Nothing is sent: no worker sends e-mail, or too many were sent today
        Unsent = "unsent",
    }
}

/// The settings of a member. A document is this, and the flags of the command line, which names the
/// user otherwise: what is `None` is left as it is.
#[derive(Debug, Clone, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemberSettings {
    /// The user's e-mail address.
    #[arg(skip)]
    pub email: String,
    /// The user's name, if they are no user yet; by default the address.
    #[arg(skip)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// A viewer may not run workflows
    #[arg(long, value_name = "owner|editor|runner|viewer")]
    pub role: MemberRole,
    /// A deactivated member has no rights [default: off]
    #[arg(long, value_name = "on|off", value_parser = on_or_off)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_deactivated: Option<bool>,
}

/// A user in a workspace.
#[derive(Debug, Clone, FromRow, Serialize)]
pub struct Member {
    /// The workspace that the user is a member of.
    pub workspace_id: WorkspaceId,
    /// The user who is the member.
    pub user_id: UserId,
    /// The user's e-mail address, as it was given.
    pub email: String,
    /// The user's name, for people.
    pub name: String,
    /// The member's rights while active.
    pub role: MemberRole,
    /// Since when the member has no rights; `None` while active.
    pub deactivated_at: Option<Timestamp>,
    /// Whether workflows may run as this member: active, and not a viewer.
    pub may_run: bool,
}

impl Operator {
    /// Adds a member, or changes one. A deactivated member has no rights; `None` leaves that as it
    /// is.
    pub async fn set_member(
        &self,
        workspace: WorkspaceId,
        user: UserId,
        role: MemberRole,
        deactivated: impl Into<Option<bool>>,
    ) -> Result<Member> {
        let set = set_member(&self.database, workspace, user, role, deactivated.into()).await;
        let missing = Reason::NotFound("workspace or user");
        set.explain(&SqlState::FOREIGN_KEY_VIOLATION, missing)?;
        // Not in the same statement: row security shows the user only to those who share a
        // workspace.
        member(self, workspace, user).await
    }

    /// Makes the user with this e-mail address a member, or changes their role. A new user gets
    /// `name`.
    ///
    /// # Errors
    /// When the address or the name is invalid, there is no such workspace, or it has so many
    /// members that only an operator adds more.
    pub async fn invite(
        &self,
        workspace: WorkspaceId,
        email: &str,
        name: &str,
        role: MemberRole,
    ) -> Result<Member> {
        check_user(email, name)?;
        // Used only if nobody has this address: a known user keeps id and name.
        let fresh = UserId::generate();
        let introduced = introduce(&self.database, workspace, fresh, email, name).await;
        let (user,) = introduced.explain(&SqlState::PROGRAM_LIMIT_EXCEEDED, Reason::ManyMembers)?;
        self.set_member(workspace, user, role, false).await
    }

    /// Has a member told by e-mail that they are one.
    pub async fn send_invitation(
        &self,
        workspace: WorkspaceId,
        user: UserId,
    ) -> Result<Invitation> {
        Ok(send_invitation(self, workspace, user).await?.0)
    }

    /// The role of a user in a workspace; `None` if they are no active member.
    pub async fn role_of(
        &self,
        workspace: WorkspaceId,
        user: UserId,
    ) -> Result<Option<MemberRole>> {
        let found = role_of(self, workspace, user).await?;
        Ok(found.map(|(role,)| role))
    }

    /// Takes the rights of a user in all workspaces and ends their sessions; returns the
    /// memberships.
    pub async fn deactivate_user(&self, user: UserId) -> Result<Vec<Member>> {
        deactivate_user(self, user).await
    }

    /// Removes a member.
    pub async fn remove_member(&self, workspace: WorkspaceId, user: UserId) -> Result<Member> {
        let removed = remove_member(self, workspace, user).await?;
        removed.ok_or(Reason::NotAMember.into())
    }

    /// Lists the members of a workspace.
    pub async fn members(&self, workspace: WorkspaceId) -> Result<Vec<Member>> {
        self.need_workspace(workspace).await?;
        members(self, workspace).await
    }
}
