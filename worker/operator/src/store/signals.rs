//! Signals and their bodies.

use jiff::Timestamp;
use letterbox_common::{
    ids::{DeliveryId, WebhookId, WorkspaceId},
    states::SignalKind,
};
use letterbox_database::{Database, DatabaseError, statements};
use serde::Serialize;
use tokio_postgres::{Error, Row};

statements! {
    /// The newest signals of a workspace.
    SIGNALS = signals "
SELECT signal_id, workspace_id, webhook_id, kind, generic_reason, entity, source_tool,
       amount_value::text AS amount_value, amount_currency, event_id, received_at
FROM signals WHERE workspace_id = $1 ORDER BY signal_id DESC LIMIT $2";

    /// One signal with its body.
    SIGNAL = signal "
SELECT s.signal_id, s.workspace_id, s.webhook_id, s.kind, s.generic_reason, s.entity,
       s.source_tool, s.amount_value::text AS amount_value, s.amount_currency, s.event_id,
       s.received_at, s.stored_at, s.body
FROM workspaces w JOIN signals s ON s.workspace_id = w.workspace_id AND s.signal_id = $1";
}

/// A signal in a list.
#[derive(Debug, Clone, Serialize)]
pub struct SignalRow {
    /// The id of the delivery that it came from.
    pub signal_id: DeliveryId,
    /// The workspace of the webhook.
    pub workspace_id: WorkspaceId,
    /// The webhook that received it.
    pub webhook_id: WebhookId,
    /// The type of the event where its body keeps the proposal contract, else `generic`.
    pub kind: SignalKind,
    /// The first rule of the contract that its body breaks; None where it is native.
    pub generic_reason: Option<String>,
    /// Whom it is about; None where it is generic.
    pub entity: Option<String>,
    /// The tool that sent it, as it calls itself; None where it is generic.
    pub source_tool: Option<String>,
    /// Decimal notation: text, because programs parse numbers as binary floats.
    pub amount_value: Option<String>,
    /// Three capital letters; None where there is no amount.
    pub amount_currency: Option<String>,
    /// The sender's own id of the event; None where it gave none or the signal is generic.
    pub event_id: Option<String>,
    /// When its delivery was received, by the gateway's clock.
    pub received_at: Timestamp,
}

impl SignalRow {
    fn decode(row: &Row) -> Result<Self, Error> {
        Ok(Self {
            signal_id: row.try_get("signal_id")?,
            workspace_id: row.try_get("workspace_id")?,
            webhook_id: row.try_get("webhook_id")?,
            kind: row.try_get("kind")?,
            generic_reason: row.try_get("generic_reason")?,
            entity: row.try_get("entity")?,
            source_tool: row.try_get("source_tool")?,
            amount_value: row.try_get("amount_value")?,
            amount_currency: row.try_get("amount_currency")?,
            event_id: row.try_get("event_id")?,
            received_at: row.try_get("received_at")?,
        })
    }
}

/// A signal with its body.
#[derive(Debug, Clone, Serialize)]
pub struct SignalDetail {
    /// What a list shows of it.
    #[serde(flatten)]
    pub row: SignalRow,
    /// When a worker stored it, by the database's clock.
    pub stored_at: Timestamp,
    /// The exact body: it is UTF-8, or it would not have been accepted. None when it was forgotten.
    pub body: Option<String>,
}

pub(crate) async fn signals(
    database: &Database,
    workspace: WorkspaceId,
    limit: u32,
) -> Result<Vec<SignalRow>, DatabaseError> {
    let rows = database
        .query(&SIGNALS, &[&workspace, &i64::from(limit)])
        .await?;
    rows.iter().map(|row| Ok(SignalRow::decode(row)?)).collect()
}

pub(crate) async fn signal(
    database: &Database,
    id: DeliveryId,
) -> Result<Option<SignalDetail>, DatabaseError> {
    let row = database.query_opt(&SIGNAL, &[&id]).await?;
    let Some(row) = row else { return Ok(None) };
    Ok(Some(SignalDetail {
        row: SignalRow::decode(&row)?,
        stored_at: row.try_get("stored_at")?,
        body: row
            .try_get::<_, Option<&[u8]>>("body")?
            .map(|body| String::from_utf8_lossy(body).into_owned()),
    }))
}
