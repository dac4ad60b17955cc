//! A look at signals, and who else may take one.

use letterbox_common::ids::{DeliveryId, WorkspaceId};

use crate::{
    Operator, OperatorError, Reason, SignalDetail, SignalFilter, SignalReader, SignalRow, store,
};

/// Longest name of a login, in bytes: PostgreSQL cuts longer ones.
const MAX_LOGIN: usize = 63;

impl Operator {
    /// The newest signals that a filter lets through, at most `limit`; only those before one of
    /// them, where `before` is given.
    ///
    /// # Errors
    /// When there is no such workspace.
    pub async fn signals(
        &self,
        filter: &SignalFilter,
        before: Option<DeliveryId>,
        limit: u32,
    ) -> Result<Vec<SignalRow>, OperatorError> {
        self.need_workspace(filter.workspace).await?;
        Ok(store::signals(&self.database, filter, before, limit).await?)
    }

    /// One signal with its body.
    ///
    /// # Errors
    /// When there is no such signal.
    pub async fn signal(&self, id: DeliveryId) -> Result<SignalDetail, OperatorError> {
        let signal = store::signal(&self.database, id).await?;
        signal.ok_or(Reason::NotFound("signal").into())
    }

    /// The logins of the database that may read the signals of a workspace.
    ///
    /// # Errors
    /// When there is no such workspace.
    pub async fn signal_readers(
        &self,
        workspace: WorkspaceId,
    ) -> Result<Vec<SignalReader>, OperatorError> {
        self.need_workspace(workspace).await?;
        Ok(store::signal_readers(&self.database, workspace).await?)
    }

    /// Lets a login of the database read the signals of a workspace, in the view `signal_feed`, or
    /// takes that back. False if nothing had to be changed.
    ///
    /// # Errors
    /// When there is no such workspace, or the name can't be a login.
    pub async fn set_signal_reader(
        &self,
        workspace: WorkspaceId,
        login: &str,
        may_read: bool,
    ) -> Result<bool, OperatorError> {
        self.need_workspace(workspace).await?;
        if !(1..=MAX_LOGIN).contains(&login.len()) || login.contains('\0') {
            return Err(Reason::InvalidLogin.into());
        }
        let setting = store::set_signal_reader(&self.database, workspace, login, may_read);
        Ok(setting.await?)
    }
}
