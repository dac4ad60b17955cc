//! Orders about connected accounts: connect (the only time that a credential comes by), list,
//! disconnect (the credential is destroyed).

use letterbox_common::{
    ids::{AccountId, UserId, WorkspaceId},
    sealing::{KeyRing, Secret},
};
use reqwest::header::{HeaderName, HeaderValue};
use tokio_postgres::error::SqlState;
use url::Url;

use super::{AccountRow, Owner, OwnerError, check_name, store};
use crate::{accounts::seal_place, actions::http_request::OWN_HEADERS};

/// An account to connect.
#[derive(Debug, Clone)]
pub struct NewAccount {
    pub workspace: WorkspaceId,
    pub user: UserId,
    /// By which actions know it.
    pub name: String,
    /// What every request begins with.
    pub base_url: Url,
    pub header: String,
    /// Value of that header.
    pub credential: Secret,
}

impl Owner {
    /// # Errors
    /// When the address, header or credential is none, the user is no member, or has an account of
    /// this name already.
    pub async fn connect_account(
        &self,
        keys: &KeyRing,
        account: &NewAccount,
    ) -> Result<AccountRow, OwnerError> {
        check_name(&account.name)?;
        if account.name.contains(char::is_control) || account.name.chars().count() > 100 {
            return Err(OwnerError::refused(
                "an account's name has at most 100 characters, none of them control characters",
            ));
        }
        let base = &account.base_url;
        if !matches!(base.scheme(), "http" | "https") || !base.has_host() {
            return Err(OwnerError::refused(
                "the base URL has to begin with http:// or https:// and a host",
            ));
        }
        if !base.username().is_empty()
            || base.password().is_some()
            || base.query().is_some()
            || base.fragment().is_some()
        {
            return Err(OwnerError::refused(
                "the base URL holds no user, password, query or fragment",
            ));
        }
        if HeaderName::try_from(&account.header).is_err() {
            return Err(OwnerError::refused("that is no name of a header"));
        }
        let own = OWN_HEADERS
            .iter()
            .filter(|own| !["authorization", "cookie"].contains(own));
        if own
            .into_iter()
            .any(|own| account.header.eq_ignore_ascii_case(own))
        {
            return Err(OwnerError::refused("that header is not for credentials"));
        }
        let credential = account.credential.expose();
        if [b"".as_slice(), b"Bearer"].contains(&credential.trim_ascii())
            || HeaderValue::from_bytes(credential).is_err()
        {
            return Err(OwnerError::refused(
                "the credential is empty, or holds control characters",
            ));
        }
        let id = AccountId::generate();
        let sealed = keys.seal(seal_place(account.workspace, &id), credential);
        let sealed = sealed.map_err(|error| OwnerError::refused(error.to_string()))?;
        let stored = store::connect_account(&self.client, id, account, &sealed)
            .await
            .map_err(|error| {
                OwnerError::explain(
                    error,
                    &SqlState::UNIQUE_VIOLATION,
                    "the user has an account of this name: disconnect it first",
                )
            })?;
        stored.ok_or_else(|| OwnerError::refused("the user is no member of this workspace"))
    }

    /// The connected accounts of a workspace.
    ///
    /// # Errors
    /// When there is no such workspace.
    pub async fn accounts(&self, workspace: WorkspaceId) -> Result<Vec<AccountRow>, OwnerError> {
        self.need_workspace(workspace).await?;
        Ok(store::accounts(&self.client, workspace).await?)
    }

    /// Disconnects an account: from now on no action uses it.
    ///
    /// # Errors
    /// When there is no such account, or it is disconnected already.
    pub async fn disconnect_account(&self, account: AccountId) -> Result<AccountRow, OwnerError> {
        let disconnected = store::disconnect_account(&self.client, account).await?;
        disconnected.ok_or_else(|| OwnerError::refused("there is no such connected account"))
    }
}
