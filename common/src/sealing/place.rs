//! Where sealed values are: the columns that hold them, and the row that each is bound to.

use crate::ids::WorkspaceId;

/// A column that holds sealed values. Rotation walks [`SealedColumn::ALL`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SealedColumn {
    /// The signing secret of a webhook.
    WebhookSecret,
    /// The credential of a connected account.
    AccountCredential,
}

impl SealedColumn {
    /// Every column that holds sealed values.
    pub const ALL: [Self; 2] = [Self::WebhookSecret, Self::AccountCredential];

    /// The table of the column.
    #[must_use]
    pub fn table(self) -> &'static str {
        match self {
            Self::WebhookSecret => "webhooks",
            Self::AccountCredential => "connected_accounts",
        }
    }

    /// The name of the column.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::WebhookSecret => "secret_sealed",
            Self::AccountCredential => "credential_sealed",
        }
    }

    /// The place of one row's value. `row` is the id that, with its workspace, names the row.
    #[must_use]
    pub fn place(self, workspace: WorkspaceId, row: &[u8]) -> Place<'_> {
        Place {
            column: self,
            workspace,
            row,
        }
    }
}

/// Where a sealed value belongs; it opens nowhere else.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    pub(super) column: SealedColumn,
    pub(super) workspace: WorkspaceId,
    /// The row's id within its table and workspace.
    pub(super) row: &'a [u8],
}
