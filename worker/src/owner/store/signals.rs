//! Signals and their bodies.

use jiff::Timestamp;
use letterbox_common::ids::{DeliveryId, WebhookId, WorkspaceId};
use serde::Serialize;
use tokio_postgres::{Client, Error, Row};

/// A signal in a list.
#[derive(Debug, Clone, Serialize)]
pub struct SignalRow {
    pub signal_id: DeliveryId,
    pub workspace_id: WorkspaceId,
    pub webhook_id: WebhookId,
    pub kind: String,
    pub generic_reason: Option<String>,
    pub entity: Option<String>,
    pub source_tool: Option<String>,
    /// Decimal notation: a text, because programs read numbers as binary floats.
    pub amount_value: Option<String>,
    pub amount_currency: Option<String>,
    pub event_id: Option<String>,
    pub received_at: Timestamp,
}

/// A signal with everything that is known of it.
#[derive(Debug, Clone, Serialize)]
pub struct SignalDetail {
    #[serde(flatten)]
    pub row: SignalRow,
    pub stored_at: Timestamp,
    /// The exact body: it is UTF-8, or it would not have been accepted.
    pub body: String,
}

pub(super) const SIGNALS: &str = "
SELECT signal_id, workspace_id, webhook_id, kind, generic_reason, entity, source_tool, amount_value::text,
       amount_currency, event_id, received_at
FROM signals WHERE workspace_id = $1 ORDER BY signal_id DESC LIMIT $2";

pub async fn signals(
    client: &Client,
    workspace: WorkspaceId,
    limit: u32,
) -> Result<Vec<SignalRow>, Error> {
    client
        .query(SIGNALS, &[&workspace, &i64::from(limit)])
        .await?
        .iter()
        .map(signal_row)
        .collect()
}

/// Goes through the workspaces, because the key of a signal begins with one.
pub(super) const SIGNAL: &str = "
SELECT s.signal_id, s.workspace_id, s.webhook_id, s.kind, s.generic_reason, s.entity, s.source_tool,
       s.amount_value::text, s.amount_currency, s.event_id, s.received_at, s.stored_at, s.body
FROM workspaces w JOIN signals s ON s.workspace_id = w.workspace_id AND s.signal_id = $1";

pub async fn signal(client: &Client, id: DeliveryId) -> Result<Option<SignalDetail>, Error> {
    let Some(row) = client.query_opt(SIGNAL, &[&id]).await? else {
        return Ok(None);
    };
    let body = String::from_utf8_lossy(row.try_get(12)?).into_owned();
    Ok(Some(SignalDetail {
        row: signal_row(&row)?,
        stored_at: row.try_get(11)?,
        body,
    }))
}

fn signal_row(row: &Row) -> Result<SignalRow, Error> {
    Ok(SignalRow {
        signal_id: row.try_get(0)?,
        workspace_id: row.try_get(1)?,
        webhook_id: row.try_get(2)?,
        kind: row.try_get(3)?,
        generic_reason: row.try_get(4)?,
        entity: row.try_get(5)?,
        source_tool: row.try_get(6)?,
        amount_value: row.try_get(7)?,
        amount_currency: row.try_get(8)?,
        event_id: row.try_get(9)?,
        received_at: row.try_get(10)?,
    })
}
