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
    /// The newest signals of a workspace that a filter lets through. Ids sort by time of receipt.
    SIGNALS = signals "
SELECT s.signal_id, s.workspace_id, s.webhook_id, w.name AS webhook_name, s.kind, s.generic_reason,
       s.entity, s.source_tool, s.amount_value::text AS amount_value, s.amount_currency,
       s.event_id, s.request_id, s.received_at
FROM signals s JOIN webhooks w ON w.workspace_id = s.workspace_id AND w.webhook_id = s.webhook_id
WHERE s.workspace_id = $1 AND ($2::uuid IS NULL OR s.webhook_id = $2)
  AND ($3::text IS NULL OR s.kind = $3) AND ($4::timestamptz IS NULL OR s.received_at >= $4)
  AND ($5::text IS NULL OR s.event_id = $5) AND ($6::text IS NULL OR s.request_id = $6)
  AND ($7::uuid IS NULL OR s.signal_id < $7)
ORDER BY s.signal_id DESC LIMIT $8";

    /// One signal with its body.
    SIGNAL = signal "
SELECT s.signal_id, s.workspace_id, s.webhook_id, h.name AS webhook_name, s.kind, s.generic_reason,
       s.entity, s.source_tool, s.amount_value::text AS amount_value, s.amount_currency,
       s.event_id, s.request_id, s.received_at, s.stored_at, s.body
FROM workspaces w JOIN signals s ON s.workspace_id = w.workspace_id AND s.signal_id = $1
JOIN webhooks h ON h.workspace_id = s.workspace_id AND h.webhook_id = s.webhook_id";

    /// The logins that may read the signals of a workspace.
    SIGNAL_READERS = signal_readers "
SELECT login::text AS login, created_at FROM signal_readers WHERE workspace_id = $1 ORDER BY login";

    /// Lets a login read the signals of a workspace.
    ADD_SIGNAL_READER = add_signal_reader "
INSERT INTO signal_readers (workspace_id, login) VALUES ($1, $2::text::name)
ON CONFLICT DO NOTHING";

    /// Takes that back.
    REMOVE_SIGNAL_READER = remove_signal_reader "
DELETE FROM signal_readers WHERE workspace_id = $1 AND login = $2::text::name";
}

/// Which signals are wanted.
#[derive(Debug, Clone)]
pub struct SignalFilter {
    /// The workspace of their webhooks.
    pub workspace: WorkspaceId,
    /// Only of this webhook.
    pub webhook: Option<WebhookId>,
    /// Only of this kind.
    pub kind: Option<SignalKind>,
    /// Only what was received since then.
    pub since: Option<Timestamp>,
    /// Only with this id of their sender's.
    pub event_id: Option<String>,
    /// Only what was answered with this `X-Request-Id`.
    pub request_id: Option<String>,
}

impl SignalFilter {
    /// All signals of a workspace.
    #[must_use]
    pub fn of(workspace: WorkspaceId) -> Self {
        Self {
            workspace,
            webhook: None,
            kind: None,
            since: None,
            event_id: None,
            request_id: None,
        }
    }
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
    /// The webhook's name.
    pub webhook_name: String,
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
    /// The `X-Request-Id` that its sender was answered; None where it is not known.
    pub request_id: Option<String>,
    /// When its delivery was received, by the gateway's clock.
    pub received_at: Timestamp,
}

impl SignalRow {
    fn decode(row: &Row) -> Result<Self, Error> {
        Ok(Self {
            signal_id: row.try_get("signal_id")?,
            workspace_id: row.try_get("workspace_id")?,
            webhook_id: row.try_get("webhook_id")?,
            webhook_name: row.try_get("webhook_name")?,
            kind: row.try_get("kind")?,
            generic_reason: row.try_get("generic_reason")?,
            entity: row.try_get("entity")?,
            source_tool: row.try_get("source_tool")?,
            amount_value: row.try_get("amount_value")?,
            amount_currency: row.try_get("amount_currency")?,
            event_id: row.try_get("event_id")?,
            request_id: row.try_get("request_id")?,
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
    filter: &SignalFilter,
    before: Option<DeliveryId>,
    limit: u32,
) -> Result<Vec<SignalRow>, DatabaseError> {
    let rows = database
        .query(
            &SIGNALS,
            &[
                /* $1 workspace_id */ &filter.workspace,
                /* $2 webhook_id */ &filter.webhook,
                /* $3 kind */ &filter.kind,
                /* $4 since */ &filter.since,
                /* $5 event_id */ &filter.event_id,
                /* $6 request_id */ &filter.request_id,
                /* $7 before */ &before,
                /* $8 limit */ &i64::from(limit),
            ],
        )
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

/// A login of the database that may read the signals of a workspace.
#[derive(Debug, Clone, Serialize)]
pub struct SignalReader {
    /// Its name.
    pub login: String,
    /// Since when it may.
    pub created_at: Timestamp,
}

pub(crate) async fn signal_readers(
    database: &Database,
    workspace: WorkspaceId,
) -> Result<Vec<SignalReader>, DatabaseError> {
    let rows = database.query(&SIGNAL_READERS, &[&workspace]).await?;
    let decode = |row: &Row| {
        Ok(SignalReader {
            login: row.try_get("login")?,
            created_at: row.try_get("created_at")?,
        })
    };
    rows.iter().map(decode).collect()
}

/// False if nothing had to be changed.
pub(crate) async fn set_signal_reader(
    database: &Database,
    workspace: WorkspaceId,
    login: &str,
    may_read: bool,
) -> Result<bool, DatabaseError> {
    let statement = match may_read {
        true => &ADD_SIGNAL_READER,
        false => &REMOVE_SIGNAL_READER,
    };
    let changed = database.execute(statement, &[&workspace, &login]).await?;
    Ok(changed > 0)
}
