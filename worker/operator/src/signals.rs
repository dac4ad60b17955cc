//! Signals and their bodies, read by what they are or in the order in which they came.

use clap::Args;
use jiff::Timestamp;
use letterbox_common::{
    ids::{DeliveryId, WebhookId, WorkspaceId},
    states::SignalKind,
    webhook::KeptHeaders,
};
use letterbox_database::{FromRow, statements};
use serde::Serialize;

use crate::{Operator, Result, asking::Sought, lossy, moment};

/// The columns of a [`SignalRow`]: of a signal `s` and its webhook `h`.
macro_rules! columns {
    () => {
        "s.signal_id, s.workspace_id, s.webhook_id, h.name AS webhook_name, s.kind,
       s.generic_reason, s.entity, s.source_tool, s.amount_value::text AS amount_value,
       s.amount_currency, s.event_id, s.event_type, s.request_id, s.received_at"
    };
}

statements! {
    /// The newest signals of a workspace that a filter lets through. Ids sort by time of receipt.
    desk fn signals(
        workspace: WorkspaceId, webhook: Option<WebhookId>, kind: Option<&str>,
        since: Option<Timestamp>, event_id: Option<&str>, request_id: Option<&str>,
        before: Option<DeliveryId>, limit: i64,
    ) -> Vec<SignalRow> = concat!("
SELECT ", columns!(), "
FROM signals s JOIN webhooks h ON h.workspace_id = s.workspace_id AND h.webhook_id = s.webhook_id
WHERE s.workspace_id = $1 AND ($2::uuid IS NULL OR s.webhook_id = $2)
  AND ($3::text IS NULL OR $3 IN (s.kind, s.event_type))
  AND ($4::timestamptz IS NULL OR s.received_at >= $4)
  AND ($5::text IS NULL OR s.event_id = $5) AND ($6::text IS NULL OR s.request_id = $6)
  AND ($7::uuid IS NULL OR s.signal_id < $7)
ORDER BY s.signal_id DESC LIMIT $8");

    /// One signal with its body.
    desk fn signal(signal: DeliveryId) -> Option<SignalDetail> = concat!("
SELECT ", columns!(), ", s.stored_at, s.body, s.headers
FROM workspaces w JOIN signals s ON s.workspace_id = w.workspace_id AND s.signal_id = $1
JOIN webhooks h ON h.workspace_id = s.workspace_id AND h.webhook_id = s.webhook_id");

    /// Where the signals of a workspace begin that were stored since a time, or are from now on.
    fn cursor_at(workspace: WorkspaceId, time: Option<Timestamp>) -> SignalCursor = "
SELECT CASE WHEN $2::timestamptz IS NULL THEN settled_position() - 1
            ELSE position_before($1, $2) END AS position,
       'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid AS signal_id";
}

/// Which signals of a workspace. The flags of the command line are this, which names the webhook
/// otherwise.
#[derive(Debug, Clone, Default, Args)]
pub struct SignalFilter {
    /// Only of this webhook.
    #[arg(skip)]
    pub webhook: Option<WebhookId>,
    /// Only of this kind: generic, or the type of the event, as its tool calls it
    #[arg(long)]
    pub kind: Option<String>,
    /// Only those received since a time, such as 2026-01-31T08:00:00Z, yesterday or 1h
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub since: Option<Timestamp>,
    /// Only with this eventId
    #[arg(long, value_name = "ID")]
    pub event_id: Option<String>,
    /// Only those answered with this X-Request-Id
    #[arg(long, value_name = "ID")]
    pub request_id: Option<String>,
}

/// A signal in a list.
#[derive(Debug, Clone, FromRow, Serialize)]
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
    /// The first rule of the contract that its body breaks; `None` if it is native.
    pub generic_reason: Option<String>,
    /// The entity; `None` for generic signals.
    pub entity: Option<String>,
    /// The tool that sent it, as it calls itself; `None` if it is generic.
    pub source_tool: Option<String>,
    /// Decimal notation: text, because programs parse numbers as binary floats.
    pub amount_value: Option<String>,
    /// Three capital letters; `None` if there is no amount.
    pub amount_currency: Option<String>,
    /// The sender's own id of the event; `None` if it gave none or the signal is generic.
    pub event_id: Option<String>,
    /// What its tool calls the event; `None` if that is not known.
    pub event_type: Option<String>,
    /// The `X-Request-Id` that its sender was answered; `None` if it is not known.
    pub request_id: Option<String>,
    /// When its delivery was received, by the gateway's clock.
    pub received_at: Timestamp,
}

/// A signal with its body.
#[derive(Debug, Clone, FromRow, Serialize)]
pub struct SignalDetail {
    /// The signal as in a list.
    #[row(flatten)]
    #[serde(flatten)]
    pub row: SignalRow,
    /// When a worker stored it, by the database's clock.
    pub stored_at: Timestamp,
    /// The kept headers of its first delivery.
    #[row(with = KeptHeaders::parse)]
    pub headers: KeptHeaders,
    /// The exact body: it is UTF-8, or it would not have been accepted. `None` if it was forgotten.
    #[row(with = text)]
    pub body: Option<String>,
}

/// A place in the order in which the signals of a workspace are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromRow)]
pub struct SignalCursor {
    pub(crate) position: i64,
    pub(crate) signal_id: DeliveryId,
}

impl Operator {
    /// Lists the newest signals that a filter lets through, at most `limit`; only those before
    /// `before`, if it is given.
    pub async fn signals(
        &self,
        workspace: WorkspaceId,
        filter: &SignalFilter,
        before: Option<DeliveryId>,
        limit: u32,
    ) -> Result<Vec<SignalRow>> {
        self.need_workspace(workspace).await?;
        signals(
            self,
            workspace,
            filter.webhook,
            filter.kind.as_deref(),
            filter.since,
            filter.event_id.as_deref(),
            filter.request_id.as_deref(),
            before,
            limit.into(),
        )
        .await
    }

    /// Gives one signal with its body.
    pub async fn signal(&self, id: DeliveryId) -> Result<SignalDetail> {
        signal(self, id).await?.found("signal")
    }

    /// Where signals are read on that were stored since a time, or that are stored from now on.
    pub async fn signal_cursor(
        &self,
        workspace: WorkspaceId,
        from: Option<Timestamp>,
    ) -> Result<SignalCursor> {
        self.need_workspace(workspace).await?;
        cursor_at(self, workspace, from).await
    }
}

fn text(stored: Option<&[u8]>) -> Option<String> {
    stored.map(lossy)
}
