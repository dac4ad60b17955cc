//! Connected accounts, without their credentials.

use jiff::Timestamp;
use letterbox_common::ids::{AccountId, UserId, WorkspaceId};
use serde::Serialize;
use tokio_postgres::{Client, Error, Row};

use crate::owner::accounts::NewAccount;

/// An account, without its credential.
#[derive(Debug, Clone, Serialize)]
pub struct AccountRow {
    pub account_id: AccountId,
    pub workspace_id: WorkspaceId,
    pub user_id: UserId,
    pub name: String,
    pub base_url: String,
    pub header: String,
    pub created_at: Timestamp,
    pub disconnected_at: Option<Timestamp>,
}

macro_rules! account_columns {
    () => {
        "account_id, workspace_id, user_id, name, base_url, header_name, created_at, disconnected_at"
    };
}

pub(super) const CONNECT_ACCOUNT: &str = concat!(
    "INSERT INTO connected_accounts (workspace_id, account_id, user_id, name, base_url, header_name, credential_sealed)
SELECT m.workspace_id, $2, m.user_id, $4, $5, $6, $7 FROM members m WHERE m.workspace_id = $1 AND m.user_id = $3
RETURNING ",
    account_columns!()
);

/// Nothing if the user is no member.
pub async fn connect_account(
    client: &Client,
    id: AccountId,
    account: &NewAccount,
    sealed: &[u8],
) -> Result<Option<AccountRow>, Error> {
    let NewAccount {
        workspace,
        user,
        name,
        base_url,
        header,
        ..
    } = account;
    let connected = client
        .query_opt(
            CONNECT_ACCOUNT,
            &[
                workspace,
                &id,
                user,
                name,
                &base_url.as_str(),
                header,
                &sealed,
            ],
        )
        .await?;
    connected.map(|row| account_row(&row)).transpose()
}

pub(super) const ACCOUNTS: &str = concat!(
    "SELECT ",
    account_columns!(),
    " FROM connected_accounts WHERE workspace_id = $1 ORDER BY created_at, account_id"
);

pub async fn accounts(client: &Client, workspace: WorkspaceId) -> Result<Vec<AccountRow>, Error> {
    client
        .query(ACCOUNTS, &[&workspace])
        .await?
        .iter()
        .map(account_row)
        .collect()
}

pub(super) const DISCONNECT_ACCOUNT: &str = concat!(
    "UPDATE connected_accounts SET disconnected_at = now(), credential_sealed = NULL
WHERE account_id = $1 AND disconnected_at IS NULL AND workspace_id IN (SELECT workspace_id FROM workspaces)
RETURNING ",
    account_columns!()
);

pub async fn disconnect_account(
    client: &Client,
    account: AccountId,
) -> Result<Option<AccountRow>, Error> {
    client
        .query_opt(DISCONNECT_ACCOUNT, &[&account])
        .await?
        .map(|row| account_row(&row))
        .transpose()
}

fn account_row(row: &Row) -> Result<AccountRow, Error> {
    Ok(AccountRow {
        account_id: row.try_get(0)?,
        workspace_id: row.try_get(1)?,
        user_id: row.try_get(2)?,
        name: row.try_get(3)?,
        base_url: row.try_get(4)?,
        header: row.try_get(5)?,
        created_at: row.try_get(6)?,
        disconnected_at: row.try_get(7)?,
    })
}
