//! Who gets a workspace's notifications, and how.

use letterbox_common::ids::{AccountId, WorkspaceId};
use letterbox_database::{FromRow, statements};
use serde::Serialize;

use crate::{Operator, Reason, Result, asking::Sought, workspace_settings::Nullable};

statements! {
    /// The notification settings of a workspace.
    desk fn notices(workspace: WorkspaceId) -> Option<Notices> = "
SELECT workspace_id, notify_by_email AS by_email, notify_account AS account_id,
    sends_mail() AS sends_mail
FROM workspaces WHERE workspace_id = $1";

    /// Sets what is given of that: an account only if it is one of the workspace's.
    desk fn set_notices(
        workspace: WorkspaceId, by_email: Option<bool>, sets_account: bool,
        account: Option<AccountId>,
    ) -> u64 = "
UPDATE workspaces SET notify_by_email = coalesce($2, notify_by_email),
    notify_account = CASE WHEN $3 THEN $4 ELSE notify_account END
WHERE workspace_id = $1 AND ($4::uuid IS NULL OR EXISTS (SELECT FROM connected_accounts c
    WHERE c.workspace_id = $1 AND c.account_id = $4 AND c.disconnected_at IS NULL))";
}

/// The notification settings of a workspace.
#[derive(Debug, Clone, FromRow, Serialize)]
pub struct Notices {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// Whether its owners and editors get e-mail.
    pub by_email: bool,
    /// The account that gets a message, if one does.
    pub account_id: Option<AccountId>,
    /// Whether a worker that is alive can send e-mail.
    #[serde(skip)]
    pub sends_mail: bool,
}

impl Operator {
    /// Returns the notification settings of a workspace.
    pub async fn notices(&self, workspace: WorkspaceId) -> Result<Notices> {
        notices(self, workspace).await?.found("workspace")
    }

    /// Sets what is given: whether the owners and editors of a workspace are told by e-mail, and
    /// the account through which it is told, by a message `{"text": …}` to its base URL, or none.
    /// A person can give only an account of their own.
    pub async fn notify(
        &self,
        workspace: WorkspaceId,
        by_email: Option<bool>,
        account: Option<Nullable<AccountId>>,
    ) -> Result<Notices> {
        let sets = account.is_some();
        let through = account.flatten();
        let set = set_notices(self, workspace, by_email, sets, through).await?;
        let notices = self.notices(workspace).await?;
        match set {
            // Row security hides the row from all but its owners.
            0 if self.person().is_some() => {
                let why = "the settings of a workspace are its owners'".to_owned();
                Err(Reason::NotAllowed(why).into())
            }
            0 => Err(Reason::NotFound("connected account").into()),
            _ => Ok(notices),
        }
    }
}
