//! Connected accounts, without their credentials.

use jiff::Timestamp;
use letterbox_common::ids::{AccountId, UserId, WorkspaceId};
use letterbox_database::{Database, DatabaseError, statements};
use serde::Serialize;
use tokio_postgres::{Error, Row};

use crate::NewAccount;

statements! {
    /// Connects an account of a member.
    CONNECT_ACCOUNT = connect_account "
INSERT INTO connected_accounts (workspace_id, account_id, user_id, name, base_url, header_name,
                                credential_sealed)
SELECT m.workspace_id, $2, m.user_id, $4, $5, $6, $7
FROM members m WHERE m.workspace_id = $1 AND m.user_id = $3
RETURNING account_id, workspace_id, user_id, name, base_url, header_name, created_at,
          disconnected_at";

    /// The accounts of a workspace, oldest first.
    ACCOUNTS = accounts "
SELECT account_id, workspace_id, user_id, name, base_url, header_name, created_at, disconnected_at
FROM connected_accounts WHERE workspace_id = $1 ORDER BY created_at, account_id";

    /// Disconnects an account and destroys its credential.
    DISCONNECT_ACCOUNT = disconnect_account "
UPDATE connected_accounts SET disconnected_at = now(), credential_sealed = NULL
WHERE account_id = $1 AND disconnected_at IS NULL
  AND workspace_id IN (SELECT workspace_id FROM workspaces)
RETURNING account_id, workspace_id, user_id, name, base_url, header_name, created_at,
          disconnected_at";
}

/// An account, without its credential.
#[derive(Debug, Clone, Serialize)]
pub struct AccountRow {
    /// The id of this account; a later one of the same name has another.
    pub account_id: AccountId,
    /// The workspace whose workflows may use it.
    pub workspace_id: WorkspaceId,
    /// The user whose workflows may use it.
    pub user_id: UserId,
    /// How actions call it.
    pub name: String,
    /// What every request begins with.
    pub base_url: String,
    /// Name of the header that carries the credential.
    pub header: String,
    /// When it was connected, by the database's clock.
    pub created_at: Timestamp,
    /// When it was disconnected, which destroyed its credential; None while connected.
    pub disconnected_at: Option<Timestamp>,
}

impl AccountRow {
    fn decode(row: &Row) -> Result<Self, Error> {
        Ok(Self {
            account_id: row.try_get("account_id")?,
            workspace_id: row.try_get("workspace_id")?,
            user_id: row.try_get("user_id")?,
            name: row.try_get("name")?,
            base_url: row.try_get("base_url")?,
            header: row.try_get("header_name")?,
            created_at: row.try_get("created_at")?,
            disconnected_at: row.try_get("disconnected_at")?,
        })
    }
}

/// None if the user is not a member.
pub(crate) async fn connect_account(
    database: &Database,
    id: AccountId,
    account: &NewAccount,
    credential_sealed: &[u8],
) -> Result<Option<AccountRow>, DatabaseError> {
    let row = database
        .query_opt(
            &CONNECT_ACCOUNT,
            &[
                /* $1 workspace_id */ &account.workspace,
                /* $2 account_id */ &id,
                /* $3 user_id */ &account.user,
                /* $4 name */ &account.name,
                /* $5 base_url */ &account.base_url.as_str(),
                /* $6 header_name */ &account.header,
                /* $7 credential_sealed */ &credential_sealed,
            ],
        )
        .await?;
    Ok(row.map(|row| AccountRow::decode(&row)).transpose()?)
}

pub(crate) async fn accounts(
    database: &Database,
    workspace: WorkspaceId,
) -> Result<Vec<AccountRow>, DatabaseError> {
    let rows = database.query(&ACCOUNTS, &[&workspace]).await?;
    rows.iter()
        .map(|row| Ok(AccountRow::decode(row)?))
        .collect()
}

/// None if there is no such account, or it is disconnected already.
pub(crate) async fn disconnect_account(
    database: &Database,
    account: AccountId,
) -> Result<Option<AccountRow>, DatabaseError> {
    let row = database.query_opt(&DISCONNECT_ACCOUNT, &[&account]).await?;
    Ok(row.map(|row| AccountRow::decode(&row)).transpose()?)
}
