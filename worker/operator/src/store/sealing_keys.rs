//! Sealed values of every column that holds some. A table can't be an argument of a statement, so
//! there is one statement for each column.

use letterbox_common::{ids::WorkspaceId, sealing::SealedColumn};
use letterbox_database::{Database, DatabaseError, statements};
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
SELECT workspace_id, account_id AS id, credential_sealed AS value FROM connected_accounts
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
    pub(crate) workspace: WorkspaceId,
    pub(crate) id: Uuid,
    pub(crate) value: Vec<u8>,
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
        .map(|row| {
            let (workspace, id) = (row.try_get("workspace_id")?, row.try_get("id")?);
            Ok(SealedValue {
                workspace,
                id,
                value: row.try_get("value")?,
            })
        })
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
                /* $1 workspace_id */ &old.workspace,
                /* $2 id */ &old.id,
                /* $3 old */ &old.value,
                /* $4 new */ &new,
            ],
        )
        .await
}
