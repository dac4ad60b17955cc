//! The places of sealed values: the columns that hold them, and the data each value is bound to.

use crate::ids::{AccountId, RunId, UserId, WebhookId, WorkspaceId};

/// A column that holds sealed values. Each names the setting of its keys, so that a process gets
/// only the keys that it needs. Rotation walks [`SealedColumn::ALL`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SealedColumn {
    /// The signing secret of a webhook.
    WebhookSecret,
    /// The credential of a connected account.
    AccountCredential,
    /// The answer of an account to an action of a run.
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
}

/// The place of a sealed value, and the data that must be the same when it is sealed and opened.
#[derive(Debug, Clone, Copy)]
pub enum Place<'a> {
    /// The signing secret of a webhook.
    WebhookSecret {
        /// The workspace of the webhook.
        workspace: WorkspaceId,
        /// The row.
        webhook: WebhookId,
    },
    /// The credential of a connected account.
    AccountCredential {
        /// The workspace of the account.
        workspace: WorkspaceId,
        /// The row.
        account: AccountId,
        /// The user whose runs use it.
        user: UserId,
        /// The name of the header that carries it.
        header: &'a str,
        /// The base URL of the requests that carry it, as stored.
        base_url: &'a str,
    },
    /// The answer of an account to an action of a run.
    ActionAnswer {
        /// The workspace of the run.
        workspace: WorkspaceId,
        /// The run.
        run: RunId,
        /// The id of the action in the run.
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

    /// The workspace and the id that name the row.
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
