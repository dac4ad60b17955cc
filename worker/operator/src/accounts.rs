//! Connected accounts: connect one, give it another credential (the only times that a credential is
//! seen), list them, disconnect one (its credential is destroyed).

use std::collections::BTreeSet;

use jiff::Timestamp;
use letterbox_common::{
    ids::{AccountId, RunId, UserId, WorkflowId, WorkspaceId},
    public_address::is_private_host,
    sealing::{GrantRow, Place, Seal},
    states::AccountWait,
};
use letterbox_database::{FromRow, statements};
use letterbox_workflow::preview::sending_actions;
use serde::Serialize;
use tokio_postgres::error::SqlState;
use url::Url;

use crate::{
    AccountSecret, AccountSettings, Operator, Reason, Result, asking::Sought, error::Explain,
};

/// The columns of an [`AccountRow`].
macro_rules! account_columns {
    () => {
        "account_id, workspace_id, user_id, name, base_url, header_name AS header, sender, \
         created_at, disconnected_at, is_refused, waits_for, has_certificate, \
         (SELECT g.error FROM grants g \
         WHERE g.workspace_id = connected_accounts.workspace_id \
         AND g.account_id = connected_accounts.account_id) AS error"
    };
}

statements! {
    /// Connects an account of a member: one with a credential, or one that waits for its token or
    /// for its owner.
    desk fn connect_account(
        workspace: WorkspaceId, account: AccountId, user: UserId, name: &str, base_url: &str,
        header: &str, sender: Option<&str>, credential_sealed: Option<&[u8]>,
        token_url: Option<&str>,
        authorize_url: Option<&str>, client_id: Option<&str>, scope: Option<&str>,
        client_secret_sealed: Option<&[u8]>, has_certificate: bool,
    ) -> Option<AccountRow> = concat!("
WITH account AS (
    INSERT INTO connected_accounts (workspace_id, account_id, user_id, name, base_url, header_name,
        sender, credential_sealed, has_certificate, waits_for)
    SELECT m.workspace_id, $2, m.user_id, $4, $5, $6, $7, $8, $14,
        CASE WHEN $10::text IS NOT NULL THEN 'owner' WHEN $9::text IS NOT NULL THEN 'token' END
    FROM members m WHERE m.workspace_id = $1 AND m.user_id = $3
    RETURNING ", account_columns!(), "
), granted AS (
    INSERT INTO grants (workspace_id, account_id, user_id, token_url, authorize_url, client_id,
        scope, client_secret_sealed, renew_at)
    SELECT workspace_id, account_id, user_id, $9, $10, $11, $12, $13,
        CASE WHEN $10::text IS NULL THEN now() END
    FROM account WHERE $9::text IS NOT NULL
)
SELECT * FROM account");

    /// The accounts of a workspace, oldest first.
    desk fn accounts(workspace: WorkspaceId) -> Vec<AccountRow> = concat!("
SELECT ", account_columns!(), "
FROM connected_accounts WHERE workspace_id = $1 ORDER BY created_at, account_id");

    /// A connected account.
    desk fn account(account: AccountId) -> Option<AccountRow> = concat!("
SELECT ", account_columns!(), "
FROM connected_accounts WHERE account_id = $1 AND disconnected_at IS NULL
  AND workspace_id IN (SELECT workspace_id FROM workspaces)");

    /// The accounts that wait for their owners.
    desk fn waiting_accounts() -> Vec<AccountRow> = concat!("
SELECT ", account_columns!(), "
FROM connected_accounts
WHERE workspace_id IN (SELECT workspace_id FROM workspaces) AND disconnected_at IS NULL
  AND waits_for = 'owner'
ORDER BY workspace_id, account_id");

    /// What each account answered last, among the newest actions of a workspace that were sent.
    desk fn last_answers(workspace: WorkspaceId) -> Vec<LastAnswer> = "
WITH recent AS (
    SELECT run_id, request::json ->> 'account_id' AS account, response_status, error, finished_at
    FROM run_actions WHERE workspace_id = $1 AND request IS NOT NULL AND attempts > 0
    ORDER BY run_id DESC, action_id DESC LIMIT 1000
)
SELECT DISTINCT ON (account) account::uuid AS account_id, run_id, response_status, error,
    finished_at
FROM recent
WHERE account IS NOT NULL AND (response_status IS NOT NULL OR error IS NOT NULL)
ORDER BY account, run_id DESC";

    /// Replaces the credential of a connected account.
    desk fn rotate_account(
        workspace: WorkspaceId, account: AccountId, credential_sealed: &[u8],
        has_certificate: bool,
    ) -> Option<AccountRow> = concat!("
UPDATE connected_accounts SET credential_sealed = $3, has_certificate = $4
WHERE workspace_id = $1 AND account_id = $2 AND disconnected_at IS NULL
  AND ($4 OR NOT has_certificate)
  AND NOT EXISTS (SELECT FROM grants WHERE workspace_id = $1 AND account_id = $2)
RETURNING ", account_columns!());

    /// Disconnects an account and destroys its credential.
    desk fn disconnect_account(
        workspace: WorkspaceId, account: AccountId,
    ) -> Option<AccountRow> = concat!("
UPDATE connected_accounts SET disconnected_at = now(), credential_sealed = NULL
WHERE workspace_id = $1 AND account_id = $2 AND disconnected_at IS NULL
RETURNING ", account_columns!());
}

/// An account, without its credential.
#[derive(Debug, Clone, FromRow, Serialize)]
pub struct AccountRow {
    /// The id of this account; a later one of the same name has another.
    pub account_id: AccountId,
    /// The workspace whose workflows may use it.
    pub workspace_id: WorkspaceId,
    /// The user whose workflows may use it.
    pub user_id: UserId,
    /// The name by which actions refer to it.
    pub name: String,
    /// The URL that every request begins with.
    pub base_url: String,
    /// Name of the header that carries the credential.
    pub header: String,
    /// From whom its e-mail is; `None` if it sends none.
    pub sender: Option<String>,
    /// When it was connected, by the database's clock.
    pub created_at: Timestamp,
    /// When it was disconnected, which destroyed its credential; `None` while connected.
    pub disconnected_at: Option<Timestamp>,
    /// Whether it shows a client certificate.
    pub has_certificate: bool,
    /// Whether it has answered 401 since it got its credential, or was given no token.
    pub is_refused: bool,
    /// What the account waits for, and with it every run that calls it; `None` if it can be called.
    pub waits_for: Option<AccountWait>,
    /// Why it got no new token, in the words of its server; `None` if it got one, or needs none.
    pub error: Option<String>,
}

/// An account's last answer.
#[derive(Debug, Clone, FromRow, Serialize)]
pub struct LastAnswer {
    /// The account.
    pub account_id: AccountId,
    /// The run that called it.
    pub run_id: RunId,
    /// The status of its answer; `None` if none came.
    pub response_status: Option<i32>,
    /// What went wrong.
    pub error: Option<String>,
    /// By the database's clock; `None` while it is tried again.
    pub finished_at: Option<Timestamp>,
}

/// A deployed workflow that calls an account of its owner.
#[derive(Debug, Clone, Serialize)]
pub struct AccountUse {
    /// The owner of both.
    pub user_id: UserId,
    /// The name of the account.
    pub account: String,
    /// The workflow.
    pub workflow_id: WorkflowId,
    /// The workflow's name.
    pub workflow_name: String,
}

/// Warns of an account that is reached over the internet without encryption.
pub(crate) fn in_clear_text(name: &str, base_url: &str) -> Option<String> {
    let url = Url::parse(base_url).ok()?;
    let is_public = url.scheme() == "http" && !is_private_host(url.host_str()?);
    is_public.then(|| {
        format!(
            "the account {name:?} is reached without encryption: its credential, and all that is \
             sent, can be read and changed on the way; use https"
        )
    })
}

impl AccountRow {
    /// What its owner should know before using it, if there is anything.
    pub fn warning(&self) -> Option<String> {
        in_clear_text(&self.name, &self.base_url)
    }
}

impl Operator {
    /// Connects an account of a user. One that gets its tokens by OAuth 2.0 waits: with client
    /// credentials for a worker, which gets the first one now, otherwise for its owner.
    ///
    /// # Errors
    /// When a setting or the secret is invalid, the user is not a member, or has an account of this
    /// name already.
    pub async fn connect_account(
        &self,
        keys: &dyn Seal,
        workspace: WorkspaceId,
        user: UserId,
        settings: &AccountSettings,
        secret: &AccountSecret,
    ) -> Result<AccountRow> {
        settings.check(secret)?;
        let account = AccountId::generate();
        let token_url = settings.token_url.as_ref().map(Url::as_str);
        let (credential, client_secret) = match (secret, secret.value()) {
            (_, Some(credential)) => {
                let place = Place::AccountCredential {
                    workspace,
                    account,
                    user,
                    header: settings.header(),
                    base_url: settings.base_url.as_str(),
                };
                (Some(keys.seal(place, credential.expose())?), None)
            }
            (AccountSecret::Client(Some(secret)), None) => {
                let place = Place::ClientSecret(GrantRow {
                    workspace,
                    account,
                    user,
                    token_url: token_url.unwrap_or_default(),
                    client_id: settings.client_id(),
                });
                (None, Some(keys.seal(place, secret.expose())?))
            }
            (_, None) => (None, None),
        };
        let connected = connect_account(
            &self.database,
            workspace,
            account,
            user,
            &settings.name,
            settings.base_url.as_str(),
            settings.header(),
            settings.sender.as_deref(),
            credential.as_deref(),
            token_url,
            settings.authorize_url.as_ref().map(Url::as_str),
            settings.client_id.as_deref(),
            settings.scope.as_deref(),
            client_secret.as_deref(),
            secret.has_certificate(),
        );
        let connected = connected.await;
        connected
            .explain(&SqlState::UNIQUE_VIOLATION, Reason::DuplicateAccount)?
            .ok_or(Reason::NotAMember.into())
    }

    /// Gives a connected account another secret of the kind that it has: a credential, for the same
    /// header, with which all goes on that is rendered, approved or waits for a retry; or a client
    /// secret, for whose first token its runs wait.
    ///
    /// # Errors
    /// When there is no such account, it is not connected, or the secret is invalid or of the other
    /// kind.
    pub async fn rotate_account(
        &self,
        keys: &dyn Seal,
        account: AccountId,
        secret: &AccountSecret,
    ) -> Result<AccountRow> {
        secret.check()?;
        if let AccountSecret::Client(Some(secret)) = secret {
            return self.rotate_client_secret(keys, account, secret).await;
        }
        let credential = secret.value().ok_or(Reason::InvalidCredential)?;
        let found = self.connected_account(account).await?;
        secret.check_use(&found.header, found.sender.is_some())?;
        let has_certificate = secret.has_certificate();
        if found.has_certificate && !has_certificate {
            return Err(Reason::NoCertificate.into());
        }
        let place = Place::AccountCredential {
            workspace: found.workspace_id,
            account,
            user: found.user_id,
            header: &found.header,
            base_url: &found.base_url,
        };
        let sealed = keys.seal(place, credential.expose())?;
        let workspace = found.workspace_id;
        let rotated = rotate_account(self, workspace, account, &sealed, has_certificate).await?;
        rotated.ok_or(Reason::GetsTokens.into())
    }

    /// A connected account.
    pub(crate) async fn connected_account(&self, account: AccountId) -> Result<AccountRow> {
        self::account(self, account)
            .await?
            .found("connected account")
    }

    /// Lists the accounts of a workspace, disconnected ones included.
    pub async fn accounts(&self, workspace: WorkspaceId) -> Result<Vec<AccountRow>> {
        self.need_workspace(workspace).await?;
        accounts(self, workspace).await
    }

    /// Lists the accounts that wait for their owners to connect them, and with them their runs.
    pub async fn waiting_accounts(&self) -> Result<Vec<AccountRow>> {
        waiting_accounts(self).await
    }

    /// Lists which deployed workflows of a workspace call which accounts.
    pub async fn account_uses(&self, workspace: WorkspaceId) -> Result<Vec<AccountUse>> {
        let deployed = self.deployed_actions(workspace).await?;
        // A release that a newer version has written tells nothing of its accounts.
        let uses = deployed.iter().flat_map(|workflow| {
            let release = workflow.release();
            let sending = release.as_ref().map(sending_actions).unwrap_or_default();
            let accounts: BTreeSet<_> = sending.iter().map(|one| one.account).collect();
            let uses = accounts.into_iter().map(|account| AccountUse {
                user_id: workflow.owner_id,
                account: account.to_owned(),
                workflow_id: workflow.workflow_id,
                workflow_name: workflow.name.clone(),
            });
            uses.collect::<Vec<_>>()
        });
        Ok(uses.collect())
    }

    /// Lists what accounts answered last, if one of the newest actions of the workspace called
    /// them.
    pub async fn last_answers(&self, workspace: WorkspaceId) -> Result<Vec<LastAnswer>> {
        last_answers(self, workspace).await
    }

    /// Disconnects an account: from now on no action uses it.
    pub async fn disconnect_account(&self, account: AccountId) -> Result<AccountRow> {
        let workspace = self.connected_account(account).await?.workspace_id;
        let disconnected = disconnect_account(self, workspace, account).await?;
        disconnected.found("connected account")
    }
}
