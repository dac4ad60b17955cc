//! Where sealed values are: the columns that hold them, and what each value is bound to.

use crate::{
    ids::{AccountId, RunId, UserId, WebhookId, WorkspaceId},
    process::secret_setting::SecretSetting,
};

/// A column that holds sealed values. Each has keys of its own, so that a process can be given the
/// keys that it needs and no more. Rotation walks [`SealedColumn::ALL`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SealedColumn {
    /// The signing secret of a webhook.
    WebhookSecret,
    /// The credential of a connected account.
    AccountCredential,
    /// What an account has answered to an action of a run.
    ActionAnswer,
}

impl SealedColumn {
    /// Every column that holds sealed values.
    pub const ALL: [Self; 3] = [
        Self::WebhookSecret,
        Self::AccountCredential,
        Self::ActionAnswer,
    ];

    /// The table of the column.
    #[must_use]
    pub fn table(self) -> &'static str {
        match self {
            Self::WebhookSecret => "webhooks",
            Self::AccountCredential => "connected_accounts",
            Self::ActionAnswer => "run_actions",
        }
    }

    /// The name of the column.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::WebhookSecret => "secret_sealed",
            Self::AccountCredential => "credential_sealed",
            Self::ActionAnswer => "answer_sealed",
        }
    }

    /// The setting that holds its keys.
    #[must_use]
    pub fn keys(self) -> &'static SecretSetting {
        match self {
            Self::WebhookSecret => &super::WEBHOOK_KEYS,
            Self::AccountCredential | Self::ActionAnswer => &super::ACCOUNT_KEYS,
        }
    }
}

/// Where a sealed value belongs, and what must be as it was when it was sealed; otherwise it does
/// not open.
#[derive(Debug, Clone, Copy)]
pub enum Place<'a> {
    /// The signing secret of a webhook.
    WebhookSecret {
        /// Whose webhook it is.
        workspace: WorkspaceId,
        /// The row.
        webhook: WebhookId,
    },
    /// The credential of a connected account.
    AccountCredential {
        /// Whose account it is.
        workspace: WorkspaceId,
        /// The row.
        account: AccountId,
        /// Whose runs use it.
        user: UserId,
        /// Name of the header that carries it.
        header: &'a str,
        /// Where it is sent, as it is stored.
        base_url: &'a str,
    },
    /// What an account has answered to an action of a run.
    ActionAnswer {
        /// Whose run it is.
        workspace: WorkspaceId,
        /// The run.
        run: RunId,
        /// The action's id in it.
        action: &'a str,
    },
}

impl Place<'_> {
    pub(super) fn column(&self) -> SealedColumn {
        match self {
            Self::WebhookSecret { .. } => SealedColumn::WebhookSecret,
            Self::AccountCredential { .. } => SealedColumn::AccountCredential,
            Self::ActionAnswer { .. } => SealedColumn::ActionAnswer,
        }
    }

    /// Workspace and id, which together name the row.
    pub(super) fn row(&self) -> [&[u8]; 2] {
        match self {
            Self::WebhookSecret { workspace, webhook } => {
                [workspace.as_bytes(), webhook.as_bytes()]
            }
            Self::AccountCredential {
                workspace, account, ..
            } => [workspace.as_bytes(), account.as_bytes()],
            Self::ActionAnswer { workspace, run, .. } => [workspace.as_bytes(), run.as_bytes()],
        }
    }

    /// Other columns of the row that the value is bound to.
    pub(super) fn bound_columns(&self) -> Vec<&[u8]> {
        match self {
            Self::WebhookSecret { .. } => Vec::new(),
            Self::AccountCredential {
                user,
                header,
                base_url,
                ..
            } => vec![user.as_bytes(), header.as_bytes(), base_url.as_bytes()],
            Self::ActionAnswer { action, .. } => vec![action.as_bytes()],
        }
    }
}
