//! Rotation of sealing keys: seals again each value that is not sealed with the first key of its
//! ring. A table can't be an argument of a statement, so each column has its own two.

use letterbox_common::{
    ids::WorkspaceId,
    sealing::{GrantRow, KeyRing, Place, SealedColumn},
    states::Program,
};
use letterbox_database::{Client, Parameters, Row, RowError, Statement, statements};
use serde::Serialize;
use uuid::Uuid;

use crate::{Operator, Reason, Result, recipients::opened_by};

/// Rows that a rotation loads at a time. Each is sealed again in a short statement of its own.
const PAGE: i64 = 500;

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

    /// A page of former webhook secrets.
    FORMER_WEBHOOK_SECRETS = former_webhook_secrets "
SELECT workspace_id, webhook_id AS id, former_secret_sealed AS value FROM webhooks
WHERE former_secret_sealed IS NOT NULL
  AND ($1::uuid IS NULL OR (workspace_id, webhook_id) > ($1, $2))
ORDER BY workspace_id, webhook_id LIMIT $3";

    /// Replaces a former webhook secret that is still the same.
    REPLACE_FORMER_WEBHOOK_SECRET = replace_former_webhook_secret "
UPDATE webhooks SET former_secret_sealed = $4
WHERE workspace_id = $1 AND webhook_id = $2 AND former_secret_sealed = $3";

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

    /// A page of client secrets.
    CLIENT_SECRETS = client_secrets "
SELECT workspace_id, account_id AS id, user_id, token_url, client_id, client_secret_sealed AS value
FROM grants
WHERE client_secret_sealed IS NOT NULL
  AND ($1::uuid IS NULL OR (workspace_id, account_id) > ($1, $2))
ORDER BY workspace_id, account_id LIMIT $3";

    /// Replaces a client secret that is still the same.
    REPLACE_CLIENT_SECRET = replace_client_secret "
UPDATE grants SET client_secret_sealed = $4
WHERE workspace_id = $1 AND account_id = $2 AND client_secret_sealed = $3";

    /// A page of codes and refresh tokens.
    GRANTS = sealed_grants "
SELECT workspace_id, account_id AS id, user_id, token_url, client_id, grant_sealed AS value
FROM grants
WHERE grant_sealed IS NOT NULL
  AND ($1::uuid IS NULL OR (workspace_id, account_id) > ($1, $2))
ORDER BY workspace_id, account_id LIMIT $3";

    /// Replaces a code or refresh token that is still the same.
    REPLACE_GRANT = replace_sealed_grant "
UPDATE grants SET grant_sealed = $4
WHERE workspace_id = $1 AND account_id = $2 AND grant_sealed = $3";

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

    /// A page of secrets of subscriptions.
    SUBSCRIPTION_SECRETS = subscription_secrets "
SELECT workspace_id, subscription_id AS id, url, secret_sealed AS value FROM subscriptions
WHERE secret_sealed IS NOT NULL AND ($1::uuid IS NULL OR (workspace_id, subscription_id) > ($1, $2))
ORDER BY workspace_id, subscription_id LIMIT $3";

    /// Replaces a secret of a subscription that is still the same.
    REPLACE_SUBSCRIPTION_SECRET = replace_subscription_secret "
UPDATE subscriptions SET secret_sealed = $4
WHERE workspace_id = $1 AND subscription_id = $2 AND secret_sealed = $3";
}

/// The result of a rotation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Rotation {
    /// Values sealed again with the first key.
    pub resealed: u64,
    /// Values that were sealed with it already.
    pub current: u64,
}

/// The keys of every column that holds sealed values.
#[derive(Debug, Clone)]
pub struct KeyRings {
    /// Keys of webhook secrets.
    pub webhooks: KeyRing,
    /// Keys of account credentials, answers, and secrets of subscriptions.
    pub accounts: KeyRing,
}

impl KeyRings {
    fn of(&self, column: SealedColumn) -> &KeyRing {
        match opened_by(column) {
            Program::Gateway => &self.webhooks,
            Program::Worker => &self.accounts,
        }
    }
}

/// The next sealed values of a column behind a key, at most [`PAGE`]; and what replaces one unless
/// it has changed.
fn statements_of(column: SealedColumn) -> [&'static Statement; 2] {
    match column {
        SealedColumn::WebhookSecret => [&WEBHOOK_SECRETS, &REPLACE_WEBHOOK_SECRET],
        SealedColumn::FormerWebhookSecret => {
            [&FORMER_WEBHOOK_SECRETS, &REPLACE_FORMER_WEBHOOK_SECRET]
        }
        SealedColumn::AccountCredential => [&ACCOUNT_CREDENTIALS, &REPLACE_ACCOUNT_CREDENTIAL],
        SealedColumn::ClientSecret => [&CLIENT_SECRETS, &REPLACE_CLIENT_SECRET],
        SealedColumn::Grant => [&GRANTS, &REPLACE_GRANT],
        SealedColumn::ActionAnswer => [&ACTION_ANSWERS, &REPLACE_ACTION_ANSWER],
        SealedColumn::SubscriptionSecret => [&SUBSCRIPTION_SECRETS, &REPLACE_SUBSCRIPTION_SECRET],
    }
}

/// What names a sealed value: workspace, id, and in the table whose key has it, a text.
type SealedKey = (WorkspaceId, Uuid, Option<String>);

fn key_of(column: SealedColumn, row: &Row) -> Result<SealedKey, RowError> {
    let action = match has_action(column) {
        true => Some(row.try_get("action_id")?),
        false => None,
    };
    Ok((row.try_get("workspace_id")?, row.try_get("id")?, action))
}

/// Whether an action is the last part of its key, and so the last argument of its statements.
fn has_action(column: SealedColumn) -> bool {
    column == SealedColumn::ActionAnswer
}

/// The place that the value of a row is sealed to.
fn place_of(column: SealedColumn, row: &Row) -> Result<Place<'_>, RowError> {
    let workspace = row.try_get("workspace_id")?;
    let granted = || {
        Ok::<_, RowError>(GrantRow {
            workspace,
            account: row.try_get("id")?,
            user: row.try_get("user_id")?,
            token_url: row.try_get("token_url")?,
            client_id: row.try_get("client_id")?,
        })
    };
    Ok(match column {
        SealedColumn::WebhookSecret | SealedColumn::FormerWebhookSecret => Place::WebhookSecret {
            workspace,
            webhook: row.try_get("id")?,
        },
        SealedColumn::AccountCredential => Place::AccountCredential {
            workspace,
            account: row.try_get("id")?,
            user: row.try_get("user_id")?,
            header: row.try_get("header_name")?,
            base_url: row.try_get("base_url")?,
        },
        SealedColumn::ClientSecret => Place::ClientSecret(granted()?),
        SealedColumn::Grant => Place::Grant(granted()?),
        SealedColumn::ActionAnswer => Place::ActionAnswer {
            workspace,
            run: row.try_get("id")?,
            action: row.try_get("action_id")?,
        },
        SealedColumn::SubscriptionSecret => Place::SubscriptionSecret {
            workspace,
            subscription: row.try_get("id")?,
            url: row.try_get("url")?,
        },
    })
}

impl Operator {
    /// Seals every secret, credential and answer again that is not sealed with the first key of its
    /// ring, or by an older version. Safe while everything runs, and safe to repeat: a value that
    /// changes meanwhile is left alone.
    ///
    /// # Errors
    /// When a value can't be decrypted. What was sealed until then stays so.
    pub async fn rotate_keys(&self, keys: &KeyRings) -> Result<Rotation> {
        let mut rotation = Rotation::default();
        for column in SealedColumn::ALL {
            let each = async |row: &Row| {
                match reseal(keys.of(column), column, row)? {
                    None => rotation.current += 1,
                    // Somebody may have replaced it since it was read: then theirs stays.
                    Some(fresh) => {
                        rotation.resealed += self.replace_sealed(column, row, &fresh).await?;
                    }
                }
                Ok(())
            };
            self.each_sealed(column, each).await?;
        }
        Ok(rotation)
    }

    /// The sealed values that do not open: table, column, id and why.
    pub(crate) async fn closed_values(&self, keys: &KeyRings) -> Result<Vec<String>> {
        let mut closed = Vec::new();
        for column in SealedColumn::ALL {
            let each = async |row: &Row| {
                let value: &[u8] = row.try_get("value")?;
                if let Err(error) = keys.of(column).open(place_of(column, row)?, value) {
                    let table = column.table();
                    let name = column.name();
                    let id: Uuid = row.try_get("id")?;
                    closed.push(format!("{table}.{name} of {id}: {error}"));
                }
                Ok(())
            };
            self.each_sealed(column, each).await?;
        }
        Ok(closed)
    }

    /// Does something with each sealed value of a column, page by page.
    async fn each_sealed(
        &self,
        column: SealedColumn,
        mut each: impl AsyncFnMut(&Row) -> Result<()>,
    ) -> Result<()> {
        let [page, _] = statements_of(column);
        let (mut workspace, mut id, mut action) = (None, None, None);
        loop {
            let key: Parameters<'_> = &[&workspace, &id, &PAGE, &action];
            let key = &key[..3 + usize::from(has_action(column))];
            let rows = self.ask(page, key).await?.rows;
            let Some(last) = rows.last() else {
                return Ok(());
            };
            let last = key_of(column, last)?;
            (workspace, id, action) = (Some(last.0), Some(last.1), last.2);
            for row in &rows {
                each(row).await?;
            }
        }
    }

    /// Replaces a sealed value unless it has changed. Gives how many were replaced: 1 or 0.
    async fn replace_sealed(&self, column: SealedColumn, row: &Row, new: &[u8]) -> Result<u64> {
        let (workspace, id, action) = key_of(column, row)?;
        let old: &[u8] = row.try_get("value")?;
        let row: Parameters<'_> = &[
            /* $1 workspace_id */ &workspace, /* $2 id */ &id, /* $3 old */ &old,
            /* $4 new */ &new, /* $5 action_id */ &action,
        ];
        let [_, replace] = statements_of(column);
        let row = &row[..4 + usize::from(has_action(column))];
        Ok(self.ask(replace, row).await?.count)
    }
}

/// The value sealed with the first key; `None` if it is already.
fn reseal(keys: &KeyRing, column: SealedColumn, row: &Row) -> Result<Option<Vec<u8>>> {
    let resealed = keys.reseal(place_of(column, row)?, row.try_get("value")?);
    let id: Uuid = row.try_get("id")?;
    Ok(resealed.map_err(|error| Reason::SealedValue {
        table: column.table(),
        column: column.name(),
        id: id.to_string(),
        problem: error.to_string(),
    })?)
}
