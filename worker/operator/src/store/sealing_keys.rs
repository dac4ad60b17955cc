//! Sealed values of every column that holds some. A table can't be an argument of a statement, so
//! there is one statement for each column.

use letterbox_common::{
    ids::{AccountId, UserId, WebhookId, WorkspaceId},
    sealing::{Place, SealedColumn},
};
use letterbox_database::{Database, DatabaseError, statements};
use tokio_postgres::Row;
use uuid::Uuid;

statements! {
    /// A page of webhook secrets.
    WEBHOOK_SECRETS = webhook_secrets "
SELECT workspace_id, webhook_id AS id, secret_sealed AS value FROM webhooks
WHERE secret_sealed IS NOT NULL AND ($1::uuid IS NULL OR (workspace_id, webhook_id) > ($1, $2))
ORDER BY workspace_id, webhook_id LIMIT $3";

    /// Replaces a webhook secret that is still the same.
    REPLACE_WEBHOOK_SECRET = replace_webhook_secret "
UPDATE webhooks SET secret_sealed = $4
WHERE workspace_id = $1 AND webhook_id = $2 AND secret_sealed = $3";

    /// A page of account credentials.
    ACCOUNT_CREDENTIALS = account_credentials "
SELECT workspace_id, account_id AS id, user_id, header_name, base_url, credential_sealed AS value
FROM connected_accounts
WHERE credential_sealed IS NOT NULL
  AND ($1::uuid IS NULL OR (workspace_id, account_id) > ($1, $2))
ORDER BY workspace_id, account_id LIMIT $3";

    /// Replaces an account credential that is still the same.
    REPLACE_ACCOUNT_CREDENTIAL = replace_account_credential "
UPDATE connected_accounts SET credential_sealed = $4
WHERE workspace_id = $1 AND account_id = $2 AND credential_sealed = $3";
}

/// A sealed value and its row.
#[derive(Debug, Clone)]
pub(crate) struct SealedValue {
    row: SealedRow,
    pub(crate) value: Vec<u8>,
}

#[derive(Debug, Clone)]
enum SealedRow {
    Webhook {
        workspace: WorkspaceId,
        webhook: WebhookId,
    },
    Account {
        workspace: WorkspaceId,
        account: AccountId,
        user: UserId,
        header: String,
        base_url: String,
    },
}

impl SealedValue {
    fn decode(column: SealedColumn, row: &Row) -> Result<Self, tokio_postgres::Error> {
        let workspace = row.try_get("workspace_id")?;
        let place = match column {
            SealedColumn::WebhookSecret => SealedRow::Webhook {
                workspace,
                webhook: row.try_get("id")?,
            },
            SealedColumn::AccountCredential => SealedRow::Account {
                workspace,
                account: row.try_get("id")?,
                user: row.try_get("user_id")?,
                header: row.try_get("header_name")?,
                base_url: row.try_get("base_url")?,
            },
        };
        Ok(Self {
            row: place,
            value: row.try_get("value")?,
        })
    }

    pub(crate) fn workspace(&self) -> WorkspaceId {
        match &self.row {
            SealedRow::Webhook { workspace, .. } | SealedRow::Account { workspace, .. } => {
                *workspace
            }
        }
    }

    pub(crate) fn id(&self) -> Uuid {
        match &self.row {
            SealedRow::Webhook { webhook, .. } => Uuid::from_bytes(*webhook.as_bytes()),
            SealedRow::Account { account, .. } => Uuid::from_bytes(*account.as_bytes()),
        }
    }

    pub(crate) fn place(&self) -> Place<'_> {
        match &self.row {
            SealedRow::Webhook { workspace, webhook } => Place::WebhookSecret {
                workspace: *workspace,
                webhook: *webhook,
            },
            SealedRow::Account {
                workspace,
                account,
                user,
                header,
                base_url,
            } => Place::AccountCredential {
                workspace: *workspace,
                account: *account,
                user: *user,
                header,
                base_url,
            },
        }
    }
}

/// The sealed values of a column behind a row, at most `limit` of them.
pub(crate) async fn sealed_values(
    database: &Database,
    column: SealedColumn,
    after: Option<(WorkspaceId, Uuid)>,
    limit: i64,
) -> Result<Vec<SealedValue>, DatabaseError> {
    let statement = match column {
        SealedColumn::WebhookSecret => &WEBHOOK_SECRETS,
        SealedColumn::AccountCredential => &ACCOUNT_CREDENTIALS,
    };
    let (workspace, id) = after.unzip();
    let rows = database
        .query(statement, &[&workspace, &id, &limit])
        .await?;
    rows.iter()
        .map(|row| Ok(SealedValue::decode(column, row)?))
        .collect()
}

/// Replaces a sealed value unless it has changed. Gives how many were replaced: 1 or 0.
pub(crate) async fn replace_sealed(
    database: &Database,
    column: SealedColumn,
    old: &SealedValue,
    new: &[u8],
) -> Result<u64, DatabaseError> {
    let statement = match column {
        SealedColumn::WebhookSecret => &REPLACE_WEBHOOK_SECRET,
        SealedColumn::AccountCredential => &REPLACE_ACCOUNT_CREDENTIAL,
    };
    database
        .execute(
            statement,
            &[
                /* $1 workspace_id */ &old.workspace(),
                /* $2 id */ &old.id(),
                /* $3 old */ &old.value,
                /* $4 new */ &new,
            ],
        )
        .await
}
