//! Sealed values of every column that holds some. A table can't be an argument of a statement, so
//! there is one statement for each column.

use letterbox_common::{
    ids::{AccountId, RunId, UserId, WebhookId, WorkspaceId},
    sealing::{Place, SealedColumn},
};
use letterbox_database::{Database, DatabaseError, Parameters, statements};
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

    /// A page of answers.
    ACTION_ANSWERS = action_answers "
SELECT workspace_id, run_id AS id, action_id, answer_sealed AS value FROM run_actions
WHERE answer_sealed IS NOT NULL
  AND ($1::uuid IS NULL OR (workspace_id, run_id, action_id) > ($1, $2, $4))
ORDER BY workspace_id, run_id, action_id LIMIT $3";

    /// Replaces an answer that is still the same.
    REPLACE_ACTION_ANSWER = replace_action_answer "
UPDATE run_actions SET answer_sealed = $4
WHERE workspace_id = $1 AND run_id = $2 AND answer_sealed = $3 AND action_id = $5";
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
    Action {
        workspace: WorkspaceId,
        run: RunId,
        action: String,
    },
}

/// Where a page of sealed values ends: workspace, id, and in tables whose key has it, a text.
pub(crate) type SealedKey = (WorkspaceId, Uuid, String);

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
            SealedColumn::ActionAnswer => SealedRow::Action {
                workspace,
                run: row.try_get("id")?,
                action: row.try_get("action_id")?,
            },
        };
        Ok(Self {
            row: place,
            value: row.try_get("value")?,
        })
    }

    pub(crate) fn workspace(&self) -> WorkspaceId {
        match &self.row {
            SealedRow::Webhook { workspace, .. }
            | SealedRow::Account { workspace, .. }
            | SealedRow::Action { workspace, .. } => *workspace,
        }
    }

    pub(crate) fn id(&self) -> Uuid {
        match &self.row {
            SealedRow::Webhook { webhook, .. } => Uuid::from_bytes(*webhook.as_bytes()),
            SealedRow::Account { account, .. } => Uuid::from_bytes(*account.as_bytes()),
            SealedRow::Action { run, .. } => Uuid::from_bytes(*run.as_bytes()),
        }
    }

    /// The action, where it is what one was answered.
    fn action(&self) -> Option<&str> {
        match &self.row {
            SealedRow::Action { action, .. } => Some(action),
            _ => None,
        }
    }

    pub(crate) fn key(&self) -> SealedKey {
        let action = self.action().unwrap_or_default();
        (self.workspace(), self.id(), action.to_owned())
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
            SealedRow::Action {
                workspace,
                run,
                action,
            } => Place::ActionAnswer {
                workspace: *workspace,
                run: *run,
                action,
            },
        }
    }
}

/// The sealed values of a column behind a row, at most `limit` of them.
pub(crate) async fn sealed_values(
    database: &Database,
    column: SealedColumn,
    after: Option<SealedKey>,
    limit: i64,
) -> Result<Vec<SealedValue>, DatabaseError> {
    let (key, action) = after
        .map(|(workspace, id, action)| ((workspace, id), action))
        .unzip();
    let (workspace, id) = key.unzip();
    let rows = match column {
        SealedColumn::WebhookSecret => {
            let key: Parameters<'_> = &[&workspace, &id, &limit];
            database.query(&WEBHOOK_SECRETS, key).await?
        }
        SealedColumn::AccountCredential => {
            let key: Parameters<'_> = &[&workspace, &id, &limit];
            database.query(&ACCOUNT_CREDENTIALS, key).await?
        }
        SealedColumn::ActionAnswer => {
            let key: Parameters<'_> = &[&workspace, &id, &limit, &action];
            database.query(&ACTION_ANSWERS, key).await?
        }
    };
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
    let (workspace, id, action) = (old.workspace(), old.id(), old.action());
    let row: Parameters<'_> = &[
        /* $1 workspace_id */ &workspace, /* $2 id */ &id, /* $3 old */ &old.value,
        /* $4 new */ &new, /* $5 action_id */ &action,
    ];
    match column {
        SealedColumn::WebhookSecret => database.execute(&REPLACE_WEBHOOK_SECRET, &row[..4]).await,
        SealedColumn::AccountCredential => {
            database
                .execute(&REPLACE_ACCOUNT_CREDENTIAL, &row[..4])
                .await
        }
        SealedColumn::ActionAnswer => database.execute(&REPLACE_ACTION_ANSWER, row).await,
    }
}
