//! Accounts that get their tokens by OAuth 2.0: connect one, replace its client secret, store the
//! code of its owner's authorization. Secrets and codes are sealed to the workers, which get the
//! tokens.

use letterbox_common::{
    grant::Grant,
    ids::{AccountId, UserId, WorkspaceId},
    sealing::{GrantRow, Place, Seal, Secret},
};
use letterbox_database::{FromRow, statements};
use serde::Serialize;
use url::Url;

use crate::{
    AccountRow, Operator, OperatorError, Reason,
    accounts::{account_columns, check_account, connected_by},
};

/// The header that carries tokens.
const HEADER: &str = "authorization";

statements! {
    /// Connects an account of a member that waits for its token, or for its owner.
    desk fn connect_by_grant(
        workspace: WorkspaceId, account: AccountId, user: UserId, name: &str, base_url: &str,
        header: &str, token_url: &str, authorize_url: Option<&str>, client_id: &str,
        scope: Option<&str>, client_secret_sealed: Option<&[u8]>,
    ) -> Option<AccountRow> = concat!("
WITH account AS (
    INSERT INTO connected_accounts (workspace_id, account_id, user_id, name, base_url, header_name,
        waits_for)
    SELECT m.workspace_id, $2, m.user_id, $4, $5, $6,
        CASE WHEN $8::text IS NULL THEN 'token' ELSE 'owner' END
    FROM members m WHERE m.workspace_id = $1 AND m.user_id = $3
    RETURNING ", account_columns!(), "
), granted AS (
    INSERT INTO grants (workspace_id, account_id, user_id, token_url, authorize_url, client_id,
        scope, client_secret_sealed, renew_at)
    SELECT workspace_id, account_id, user_id, $7, $8, $9, $10, $11,
        CASE WHEN $8::text IS NULL THEN now() END
    FROM account
)
SELECT * FROM account");

    /// How an account gets its tokens, or all of a workspace.
    desk fn grants(workspace: WorkspaceId, account: Option<AccountId>) -> Vec<GrantStatus> = "
SELECT account_id, workspace_id, user_id, token_url, authorize_url, client_id, scope, renew_at,
    error, handed_in
FROM grants WHERE workspace_id = $1 AND ($2::uuid IS NULL OR account_id = $2)";

    /// Stores a client secret or a code.
    desk fn hand_in(
        workspace: WorkspaceId, account: AccountId, handed_in: i64,
        client_secret_sealed: Option<&[u8]>, grant_sealed: Option<&[u8]>,
    ) -> (bool,) = "SELECT hand_in($1, $2, $3, $4, $5) AS is_taken";
}

/// An account to connect that gets its tokens by OAuth 2.0.
#[derive(Debug, Clone)]
pub struct NewGrant {
    /// The workspace whose workflows may use the account.
    pub workspace: WorkspaceId,
    /// The user whose workflows may use it.
    pub user: UserId,
    /// The name by which actions refer to it.
    pub name: String,
    /// The URL that every request begins with.
    pub base_url: Url,
    /// Where tokens are got.
    pub token_url: Url,
    /// Where its owner lets Letterbox in; `None` if the client's own credentials do.
    pub authorize_url: Option<Url>,
    /// The client id.
    pub client_id: String,
    /// `None` for a client without one.
    pub client_secret: Option<Secret>,
    /// The scope: words separated by spaces.
    pub scope: Option<String>,
}

impl NewGrant {
    fn check(&self) -> Result<(), OperatorError> {
        check_account(&self.name, &self.base_url)?;
        let urls = self.authorize_url.iter().chain([&self.token_url]);
        for url in urls {
            let is_plain = url.username().is_empty() && url.password().is_none();
            let is_web = matches!(url.scheme(), "http" | "https") && url.has_host();
            if !is_web || !is_plain || url.fragment().is_some() {
                return Err(Reason::InvalidOauthUrl.into());
            }
        }
        let is_plain = |text: &str, most| {
            (1..=most).contains(&text.len()) && text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
        };
        let has_secret = self.client_secret.is_some() || self.authorize_url.is_some();
        let is_scope = self
            .scope
            .as_ref()
            .is_none_or(|scope| is_plain(scope, 1_000));
        if !has_secret || !is_scope || !is_plain(&self.client_id, 500) {
            return Err(Reason::InvalidClient.into());
        }
        self.client_secret.as_ref().map_or(Ok(()), check_secret)
    }
}

fn check_secret(secret: &Secret) -> Result<(), OperatorError> {
    let secret = secret.expose();
    if secret.is_empty() || secret.len() > 4_096 || std::str::from_utf8(secret).is_err() {
        return Err(Reason::InvalidCredential.into());
    }
    Ok(())
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
    /// Why there is no new token.
    pub error: Option<String>,
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
    /// Connects an account that gets its tokens by OAuth 2.0. With client credentials a worker gets
    /// the first one now; otherwise its owner lets Letterbox in, in the desk.
    ///
    /// # Errors
    /// When a name, an address or the client is invalid, the user is not a member, or has an
    /// account of this name already.
    pub async fn connect_by_grant(
        &self,
        keys: &dyn Seal,
        new: &NewGrant,
    ) -> Result<AccountRow, OperatorError> {
        new.check()?;
        let id = AccountId::generate();
        let row = GrantRow {
            workspace: new.workspace,
            account: id,
            user: new.user,
            token_url: new.token_url.as_str(),
            client_id: &new.client_id,
        };
        let secret = new.client_secret.as_ref();
        let secret = secret.map(|secret| keys.seal(Place::ClientSecret(row), secret.expose()));
        let secret = secret.transpose()?;
        let connected = connect_by_grant(
            &self.database,
            new.workspace,
            id,
            new.user,
            &new.name,
            new.base_url.as_str(),
            HEADER,
            new.token_url.as_str(),
            new.authorize_url.as_ref().map(Url::as_str),
            &new.client_id,
            new.scope.as_deref(),
            secret.as_deref(),
        );
        connected_by(connected.await)
    }

    /// How the accounts of a workspace get their tokens, where they do so by OAuth 2.0.
    pub async fn grants(&self, workspace: WorkspaceId) -> Result<Vec<GrantStatus>, OperatorError> {
        grants(self, workspace, None).await
    }

    /// How an account gets its tokens, with the account.
    ///
    /// # Errors
    /// When there is no such account, it is not connected, or has a credential of its own.
    pub async fn grant(
        &self,
        account: AccountId,
    ) -> Result<(AccountRow, GrantStatus), OperatorError> {
        let found = self.connected_account(account).await?;
        let grant = grants(self, found.workspace_id, Some(account)).await?.pop();
        Ok((found, grant.ok_or(Reason::OtherGrant)?))
    }

    /// Gives an account another client secret. Its runs wait until a worker has got a token.
    pub async fn rotate_client_secret(
        &self,
        keys: &dyn Seal,
        account: AccountId,
        secret: &Secret,
    ) -> Result<AccountRow, OperatorError> {
        check_secret(secret)?;
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
    ) -> Result<AccountRow, OperatorError> {
        let (_, mut grant) = self.grant(account).await?;
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
    ) -> Result<AccountRow, OperatorError> {
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
