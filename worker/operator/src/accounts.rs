//! Orders about connected accounts: connect (the only time that a credential passes by), list,
//! disconnect (the credential is destroyed).

use http::{HeaderName, HeaderValue};
use letterbox_common::{
    ids::{AccountId, UserId, WorkspaceId},
    sealing::{KeyRing, Place, Secret},
};
use letterbox_workflow::actions::RESERVED_HEADERS;
use tokio_postgres::error::SqlState;
use url::Url;

use crate::{AccountRow, Operator, OperatorError, Reason, check_name, error::Explain, store};

/// Reserved headers that are made for credentials.
const CREDENTIAL_HEADERS: [&str; 2] = ["authorization", "cookie"];

/// An account to connect.
#[derive(Debug, Clone)]
pub struct NewAccount {
    /// The workspace whose workflows may use it.
    pub workspace: WorkspaceId,
    /// The user whose workflows may use it.
    pub user: UserId,
    /// How actions call it.
    pub name: String,
    /// What every request begins with.
    pub base_url: Url,
    /// The header that carries the credential.
    pub header: String,
    /// Value of that header.
    pub credential: Secret,
}

impl NewAccount {
    fn check(&self) -> Result<(), OperatorError> {
        check_name(&self.name)?;
        if self.name.contains(char::is_control) || self.name.chars().count() > 100 {
            return Err(Reason::InvalidAccountName.into());
        }
        let base = &self.base_url;
        if !matches!(base.scheme(), "http" | "https") || !base.has_host() {
            return Err(Reason::InvalidBaseUrl.into());
        }
        let has_user = !base.username().is_empty() || base.password().is_some();
        if has_user || base.query().is_some() || base.fragment().is_some() {
            return Err(Reason::BaseUrlWithExtras.into());
        }
        if HeaderName::try_from(&self.header).is_err() {
            return Err(Reason::InvalidHeader.into());
        }
        let header = self.header.to_ascii_lowercase();
        let reserved = RESERVED_HEADERS.contains(&header.as_str());
        if reserved && !CREDENTIAL_HEADERS.contains(&header.as_str()) {
            return Err(Reason::ReservedHeader.into());
        }
        let credential = self.credential.expose();
        let empty = [b"".as_slice(), b"Bearer"].contains(&credential.trim_ascii());
        if empty || HeaderValue::from_bytes(credential).is_err() {
            return Err(Reason::InvalidCredential.into());
        }
        Ok(())
    }
}

impl Operator {
    /// Connects an account of a user.
    ///
    /// # Errors
    /// When name, address, header or credential are invalid, the user is not a member, or has an
    /// account of this name already.
    pub async fn connect_account(
        &self,
        keys: &KeyRing,
        account: &NewAccount,
    ) -> Result<AccountRow, OperatorError> {
        account.check()?;
        let id = AccountId::generate();
        let place = Place::AccountCredential {
            workspace: account.workspace,
            account: id,
            user: account.user,
            header: &account.header,
            base_url: account.base_url.as_str(),
        };
        let sealed = keys.seal(place, account.credential.expose())?;
        let connecting = store::connect_account(&self.database, id, account, &sealed);
        let duplicate = Reason::DuplicateAccount;
        let connected = connecting
            .await
            .explain(&SqlState::UNIQUE_VIOLATION, duplicate)?;
        connected.ok_or(Reason::NotAMember.into())
    }

    /// The accounts of a workspace, disconnected ones included.
    ///
    /// # Errors
    /// When there is no such workspace.
    pub async fn accounts(&self, workspace: WorkspaceId) -> Result<Vec<AccountRow>, OperatorError> {
        self.need_workspace(workspace).await?;
        Ok(store::accounts(&self.database, workspace).await?)
    }

    /// Disconnects an account: from now on no action uses it.
    ///
    /// # Errors
    /// When there is no such account, or it is disconnected already.
    pub async fn disconnect_account(
        &self,
        account: AccountId,
    ) -> Result<AccountRow, OperatorError> {
        let disconnected = store::disconnect_account(&self.database, account).await?;
        disconnected.ok_or(Reason::NotFound("connected account").into())
    }
}
