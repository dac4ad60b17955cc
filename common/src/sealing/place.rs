//! The places of sealed values: the columns that hold them, and the data each value is bound to.

use uuid::Uuid;

use crate::ids::{AccountId, RunId, UserId, WebhookId, WorkspaceId};

/// A column that holds sealed values. Each names the setting of its keys, so that a process gets
/// only the keys that it needs. Rotation walks [`SealedColumn::ALL`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SealedColumn {
    /// The signing secret of a webhook.
    WebhookSecret,
    /// The one before, while it is valid, too.
    FormerWebhookSecret,
    /// The credential of a connected account.
    AccountCredential,
    /// The secret of the client that gets an account's tokens.
    ClientSecret,
    /// The code or the refresh token with which an account's next token is got.
    Grant,
    /// The answer of an account to an action of a run.
    ActionAnswer,
    /// The secret that signs what is posted to a URL.
    SubscriptionSecret,
}

impl SealedColumn {
    /// Every column that holds sealed values.
    pub const ALL: [Self; 7] = [
        Self::WebhookSecret,
        Self::FormerWebhookSecret,
        Self::AccountCredential,
        Self::ClientSecret,
        Self::Grant,
        Self::ActionAnswer,
        Self::SubscriptionSecret,
    ];

    /// The table of the column.
    pub fn table(self) -> &'static str {
        match self {
            Self::WebhookSecret | Self::FormerWebhookSecret => "webhooks",
            Self::AccountCredential => "connected_accounts",
            Self::ClientSecret | Self::Grant => "grants",
            Self::ActionAnswer => "run_actions",
            Self::SubscriptionSecret => "subscriptions",
        }
    }

    /// The name of the column.
    pub fn name(self) -> &'static str {
        match self {
            Self::WebhookSecret | Self::SubscriptionSecret => "secret_sealed",
            Self::FormerWebhookSecret => "former_secret_sealed",
            Self::AccountCredential => "credential_sealed",
            Self::ClientSecret => "client_secret_sealed",
            Self::Grant => "grant_sealed",
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
    /// The secret of the client that gets an account's tokens.
    ClientSecret(GrantRow<'a>),
    /// The code or the refresh token with which an account's next token is got.
    Grant(GrantRow<'a>),
    /// The answer of an account to an action of a run.
    ActionAnswer {
        /// The workspace of the run.
        workspace: WorkspaceId,
        /// The run.
        run: RunId,
        /// The id of the action in the run.
        action: &'a str,
    },
    /// The secret that signs what is posted to a URL.
    SubscriptionSecret {
        /// The workspace of the subscription.
        workspace: WorkspaceId,
        /// The row.
        subscription: Uuid,
        /// The URL, as stored.
        url: &'a str,
    },
}

/// The row of a grant. Its secrets are bound to where they are sent.
#[derive(Debug, Clone, Copy)]
pub struct GrantRow<'a> {
    /// The workspace of the account.
    pub workspace: WorkspaceId,
    /// The account.
    pub account: AccountId,
    /// The owner of the account.
    pub user: UserId,
    /// Where tokens are got, as stored.
    pub token_url: &'a str,
    /// Who gets them.
    pub client_id: &'a str,
}

impl Place<'_> {
    pub(super) fn column(&self) -> SealedColumn {
        match self {
            Self::WebhookSecret { .. } => SealedColumn::WebhookSecret,
            Self::AccountCredential { .. } => SealedColumn::AccountCredential,
            Self::ClientSecret(_) => SealedColumn::ClientSecret,
            Self::Grant(_) => SealedColumn::Grant,
            Self::ActionAnswer { .. } => SealedColumn::ActionAnswer,
            Self::SubscriptionSecret { .. } => SealedColumn::SubscriptionSecret,
        }
    }

    /// The workspace and the id that name the row.
    pub(super) fn row(&self) -> [&[u8]; 2] {
        let (workspace, row) = match self {
            Self::WebhookSecret { workspace, webhook } => (workspace, webhook.as_bytes()),
            Self::AccountCredential {
                workspace, account, ..
            } => (workspace, account.as_bytes()),
            Self::ClientSecret(row) | Self::Grant(row) => (&row.workspace, row.account.as_bytes()),
            Self::ActionAnswer { workspace, run, .. } => (workspace, run.as_bytes()),
            Self::SubscriptionSecret {
                workspace,
                subscription,
                ..
            } => (workspace, subscription.as_bytes()),
        };
        [workspace.as_bytes(), row]
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
            Self::ClientSecret(row) | Self::Grant(row) => vec![
                row.user.as_bytes(),
                row.token_url.as_bytes(),
                row.client_id.as_bytes(),
            ],
            Self::ActionAnswer { action, .. } => vec![action.as_bytes()],
            Self::SubscriptionSecret { url, .. } => vec![url.as_bytes()],
        }
    }
}
