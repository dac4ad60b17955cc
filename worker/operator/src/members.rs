//! Orders about members: who belongs to a workspace, and as what.

use letterbox_common::{
    ids::{UserId, WorkspaceId},
    states::MemberRole,
};
use tokio_postgres::error::SqlState;

use crate::{Member, Operator, OperatorError, Reason, error::Explain, store};

impl Operator {
    /// Adds a member, or changes one. A deactivated member may do nothing.
    ///
    /// # Errors
    /// When there is no such workspace or user.
    pub async fn set_member(
        &self,
        workspace: WorkspaceId,
        user: UserId,
        role: MemberRole,
        deactivated: bool,
    ) -> Result<Member, OperatorError> {
        let setting = store::set_member(&self.database, workspace, user, role, deactivated);
        let missing = Reason::NotFound("workspace or user");
        setting
            .await
            .explain(&SqlState::FOREIGN_KEY_VIOLATION, missing)
    }

    /// Removes a member.
    ///
    /// # Errors
    /// When the user is not a member.
    pub async fn remove_member(
        &self,
        workspace: WorkspaceId,
        user: UserId,
    ) -> Result<Member, OperatorError> {
        let removed = store::remove_member(&self.database, workspace, user).await?;
        removed.ok_or(Reason::NotAMember.into())
    }

    /// The members of a workspace.
    ///
    /// # Errors
    /// When there is no such workspace.
    pub async fn members(&self, workspace: WorkspaceId) -> Result<Vec<Member>, OperatorError> {
        self.need_workspace(workspace).await?;
        Ok(store::members(&self.database, workspace).await?)
    }
}
