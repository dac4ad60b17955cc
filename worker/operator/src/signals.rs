//! A look at signals.

use letterbox_common::ids::{DeliveryId, WorkspaceId};

use crate::{Operator, OperatorError, Reason, SignalDetail, SignalRow, store};

impl Operator {
    /// The newest signals of a workspace, at most `limit`.
    ///
    /// # Errors
    /// When there is no such workspace.
    pub async fn signals(
        &self,
        workspace: WorkspaceId,
        limit: u32,
    ) -> Result<Vec<SignalRow>, OperatorError> {
        self.need_workspace(workspace).await?;
        Ok(store::signals(&self.database, workspace, limit).await?)
    }

    /// One signal with its body.
    ///
    /// # Errors
    /// When there is no such signal.
    pub async fn signal(&self, id: DeliveryId) -> Result<SignalDetail, OperatorError> {
        let signal = store::signal(&self.database, id).await?;
        signal.ok_or(Reason::NotFound("signal").into())
    }
}
