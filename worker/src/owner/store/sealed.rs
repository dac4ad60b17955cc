//! Sealed values, wherever they stand.

use letterbox_common::ids::WorkspaceId;
use tokio_postgres::{Client, Error, Row};
use uuid::Uuid;

use crate::owner::rotation::{Sealed, SealedColumn};

/// Every column that holds sealed values.
pub const SEALED: [SealedColumn; 2] = [
    SealedColumn {
        table: "webhooks",
        column: "secret_sealed",
        page: "
SELECT workspace_id, webhook_id, secret_sealed FROM webhooks
WHERE secret_sealed IS NOT NULL AND ($1::uuid IS NULL OR (workspace_id, webhook_id) > ($1, $2))
ORDER BY workspace_id, webhook_id LIMIT $3",
        replace: "
UPDATE webhooks SET secret_sealed = $4 WHERE workspace_id = $1 AND webhook_id = $2 AND secret_sealed = $3",
    },
    SealedColumn {
        table: "connected_accounts",
        column: "credential_sealed",
        page: "
SELECT workspace_id, account_id, credential_sealed FROM connected_accounts
WHERE credential_sealed IS NOT NULL AND ($1::uuid IS NULL OR (workspace_id, account_id) > ($1, $2))
ORDER BY workspace_id, account_id LIMIT $3",
        replace: "
UPDATE connected_accounts SET credential_sealed = $4
WHERE workspace_id = $1 AND account_id = $2 AND credential_sealed = $3",
    },
];

pub async fn sealed(
    client: &Client,
    column: SealedColumn,
    after: Option<(WorkspaceId, Uuid)>,
    limit: i64,
) -> Result<Vec<Sealed>, Error> {
    let (workspace, id) = after.unzip();
    let rows = client
        .query(column.page, &[&workspace, &id, &limit])
        .await?;
    let read = |row: &Row| {
        Ok(Sealed {
            workspace: row.try_get(0)?,
            id: row.try_get(1)?,
            value: row.try_get(2)?,
        })
    };
    rows.iter().map(read).collect()
}

pub async fn reseal(
    client: &Client,
    column: SealedColumn,
    workspace: WorkspaceId,
    id: Uuid,
    old: &[u8],
    new: &[u8],
) -> Result<u64, Error> {
    client
        .execute(column.replace, &[&workspace, &id, &old, &new])
        .await
}
