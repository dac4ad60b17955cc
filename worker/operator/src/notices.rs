//! Who of a workspace is told what waits and what went wrong, and how.

use letterbox_common::ids::{AccountId, WorkspaceId};
use letterbox_database::{FromRow, statements};
use serde::Serialize;

use crate::{Operator, OperatorError, Reason, asking::Sought};

statements! {
    /// How a workspace is told.
    desk fn notices(workspace: WorkspaceId) -> Option<Notices> = "
SELECT workspace_id, notify_by_email AS by_email, notify_account AS account_id
FROM workspaces WHERE workspace_id = $1";

    /// Sets whether a workspace is told by e-mail.
    desk fn notify_by_email(workspace: WorkspaceId, is_on: bool) -> u64 = "
UPDATE workspaces SET notify_by_email = $2 WHERE workspace_id = $1";

    /// Sets through which of its accounts a workspace is told.
    desk fn notify_through(workspace: WorkspaceId, account: Option<AccountId>) -> u64 = "
UPDATE workspaces SET notify_account = $2 WHERE workspace_id = $1
  AND ($2::uuid IS NULL OR EXISTS (SELECT FROM connected_accounts c
      WHERE c.workspace_id = $1 AND c.account_id = $2 AND c.disconnected_at IS NULL))";
}

/// How a workspace is told.
#[derive(Debug, Clone, FromRow, Serialize)]
pub struct Notices {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// Whether its owners and editors get e-mail.
    pub by_email: bool,
    /// The account that gets a message, if one does.
    pub account_id: Option<AccountId>,
}

impl Operator {
    /// Says how a workspace is told what waits and what went wrong.
    pub async fn notices(&self, workspace: WorkspaceId) -> Result<Notices, OperatorError> {
        notices(self, workspace).await?.found("workspace")
    }

    /// Sets whether the owners and editors of a workspace are told by e-mail.
    pub async fn notify_by_email(
        &self,
        workspace: WorkspaceId,
        is_on: bool,
    ) -> Result<Notices, OperatorError> {
        let set = notify_by_email(self, workspace, is_on).await?;
        self.set_notices(workspace, set, "workspace").await
    }

    /// Sets the account through which a workspace is told, by a message `{"text": …}` to its base
    /// URL; `None` for none. A person can give only an account of their own.
    pub async fn notify_through(
        &self,
        workspace: WorkspaceId,
        account: Option<AccountId>,
    ) -> Result<Notices, OperatorError> {
        let set = notify_through(self, workspace, account).await?;
        self.set_notices(workspace, set, "connected account").await
    }

    async fn set_notices(
        &self,
        workspace: WorkspaceId,
        set: u64,
        missing: &'static str,
    ) -> Result<Notices, OperatorError> {
        let notices = self.notices(workspace).await?;
        match set {
            0 if self.person().is_some() => {
                let why = "the settings of a workspace are its owners'".to_owned();
                Err(Reason::NotAllowed(why).into())
            }
            0 => Err(Reason::NotFound(missing).into()),
            _ => Ok(notices),
        }
    }
}
