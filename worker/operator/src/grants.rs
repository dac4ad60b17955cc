//! Accounts that get their tokens by OAuth 2.0: replace the client secret, store the code of the
//! owner's authorization. Secrets and codes are sealed to the workers, which get the tokens.

use letterbox_common::{
    grant::Grant,
    ids::{AccountId, UserId, WorkspaceId},
    sealing::{GrantRow, Place, Seal, Secret},
};
use letterbox_database::{FromRow, statements};
use serde::Serialize;

use crate::{AccountRow, Operator, Reason, Result};

statements! {
    /// How an account gets its tokens, or all of a workspace.
    desk fn grants(workspace: WorkspaceId, account: Option<AccountId>) -> Vec<GrantStatus> = "
SELECT account_id, workspace_id, user_id, token_url, authorize_url, client_id, scope, renew_at,
    handed_in
FROM grants WHERE workspace_id = $1 AND ($2::uuid IS NULL OR account_id = $2)";

    /// Stores a client secret or a code.
    desk fn hand_in(
        workspace: WorkspaceId, account: AccountId, handed_in: i64,
        client_secret_sealed: Option<&[u8]>, grant_sealed: Option<&[u8]>,
    ) -> (bool,) = "SELECT hand_in($1, $2, $3, $4, $5) AS is_taken";
}

/// How an account gets its tokens, without what is secret of it.
#[derive(Debug, Clone, FromRow, Serialize)]
pub struct GrantStatus {
    /// The account.
    pub account_id: AccountId,
    /// Its workspace.
    pub workspace_id: WorkspaceId,
    /// Its owner.
    pub user_id: UserId,
    /// Where tokens are got.
    pub token_url: String,
    /// Where its owner lets Letterbox in; `None` if the client's own credentials do.
    pub authorize_url: Option<String>,
    /// The client id.
    pub client_id: String,
    /// The scope.
    pub scope: Option<String>,
    /// When the next token is got; `None` if this one is used until it is refused.
    pub renew_at: Option<jiff::Timestamp>,
    /// Counts the secrets and codes that were stored.
    pub handed_in: i64,
}

impl GrantStatus {
    fn row(&self) -> GrantRow<'_> {
        GrantRow {
            workspace: self.workspace_id,
            account: self.account_id,
            user: self.user_id,
            token_url: &self.token_url,
            client_id: &self.client_id,
        }
    }
}

impl Operator {
    /// How the accounts of a workspace get their tokens, where they do so by OAuth 2.0.
    pub async fn grants(&self, workspace: WorkspaceId) -> Result<Vec<GrantStatus>> {
        grants(self, workspace, None).await
    }

    /// How an account gets its tokens, with the account.
    ///
    /// # Errors
    /// When there is no such account, it is not connected, or has a credential of its own.
    pub async fn grant(&self, account: AccountId) -> Result<(AccountRow, GrantStatus)> {
        let found = self.connected_account(account).await?;
        let grant = grants(self, found.workspace_id, Some(account)).await?.pop();
        Ok((found, grant.ok_or(Reason::OtherGrant)?))
    }

    /// Gives an account another client secret. Its runs wait until a worker has got a token.
    pub(crate) async fn rotate_client_secret(
        &self,
        keys: &dyn Seal,
        account: AccountId,
        secret: &Secret,
    ) -> Result<AccountRow> {
        let (_, grant) = self.grant(account).await?;
        let sealed = keys.seal(Place::ClientSecret(grant.row()), secret.expose())?;
        self.hand_in(&grant, Some(&sealed), None).await
    }

    /// Stores the code of an owner's authorization. `handed_in` is the counter when the
    /// authorization began, so that a code counts once.
    ///
    /// # Errors
    /// As [`Self::grant`], and when the account needs no authorization, or a code or secret was
    /// stored since.
    pub async fn hand_in_code(
        &self,
        keys: &dyn Seal,
        account: AccountId,
        handed_in: i64,
        code: &Grant,
    ) -> Result<AccountRow> {
        let (_, mut grant) = self.grant(account).await?;
        // Not what it is now: a code that was overtaken since counts no more.
        grant.handed_in = handed_in;
        if grant.authorize_url.is_none() {
            return Err(Reason::OtherGrant.into());
        }
        let sealed = keys.seal(Place::Grant(grant.row()), code.to_json().expose())?;
        self.hand_in(&grant, None, Some(&sealed)).await
    }

    async fn hand_in(
        &self,
        grant: &GrantStatus,
        secret: Option<&[u8]>,
        code: Option<&[u8]>,
    ) -> Result<AccountRow> {
        let workspace = grant.workspace_id;
        let account = grant.account_id;
        let handed_in = grant.handed_in;
        let (is_taken,) = hand_in(self, workspace, account, handed_in, secret, code).await?;
        if !is_taken {
            return Err(Reason::NotFound("connected account").into());
        }
        self.connected_account(grant.account_id).await
    }
}
