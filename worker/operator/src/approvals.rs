//! Orders about approvals: what waits for an answer, and the answer.

use jiff::Timestamp;
use letterbox_common::{
    ids::{ApprovalId, UserId, WorkspaceId},
    states::ApprovalState,
};

use crate::{ApprovalRow, Operator, OperatorError, Reason, store};

impl Operator {
    /// The questions of a workspace that wait for an answer, oldest first, at most `limit`.
    ///
    /// # Errors
    /// When there is no such workspace.
    pub async fn approvals(
        &self,
        workspace: WorkspaceId,
        limit: u32,
    ) -> Result<Vec<ApprovalRow>, OperatorError> {
        self.need_workspace(workspace).await?;
        Ok(store::approvals(&self.database, workspace, limit).await?)
    }

    /// Lets a request be sent, and wakes the run that waits.
    ///
    /// # Errors
    /// When the question is answered or has expired, or the user may not answer it.
    pub async fn approve(
        &self,
        approval: ApprovalId,
        by: UserId,
    ) -> Result<ApprovalRow, OperatorError> {
        self.answer(approval, by, ApprovalState::Approved).await
    }

    /// Lets a request not be sent, and wakes the run that waits.
    ///
    /// # Errors
    /// As [`Self::approve`].
    pub async fn deny(
        &self,
        approval: ApprovalId,
        by: UserId,
    ) -> Result<ApprovalRow, OperatorError> {
        self.answer(approval, by, ApprovalState::Denied).await
    }

    async fn answer(
        &self,
        approval: ApprovalId,
        by: UserId,
        answer: ApprovalState,
    ) -> Result<ApprovalRow, OperatorError> {
        if let Some(answered) = store::answer(&self.database, approval, by, answer).await? {
            return Ok(answered);
        }
        let found = store::approval(&self.database, approval).await?;
        let found = found.ok_or(Reason::NotFound("approval"))?;
        let is_for_another = store::is_for_another(&self.database, approval, by).await?;
        let reason = match found.state {
            ApprovalState::Pending if is_for_another => Reason::ForAnother,
            ApprovalState::Pending if found.expires_at > Timestamp::now() => Reason::MayNotAnswer,
            ApprovalState::Pending => Reason::ApprovalExpired,
            state => Reason::AlreadyAnswered(state),
        };
        Err(reason.into())
    }
}
