//! Stores signals. A signal that is already stored stays unchanged.

use jiff::Timestamp;
use letterbox_common::{
    ids::{DeliveryId, WebhookId, WorkspaceId},
    states::SignalKind,
};
use letterbox_database::{DatabaseError, Transaction, Work, replace_nul, statements};
use postgres_types::ToSql;

use super::{Mapped, Signal};
use crate::{
    metrics,
    recorder::{Recorded, Recorder},
    stored_bytes::ROW_BYTES,
};

statements! {
    /// Inserts signals: those that meet the proposal contract with their members, others with the
    /// first rule that each broke. Signals already stored stay unchanged.
    fn insert_signals(signals: &[NewSignal<'_>]) -> u64 = "
INSERT INTO signals (workspace_id, signal_id, webhook_id, received_at, request_id, body, headers,
                     kind, generic_reason, entity, source_tool, event_id, amount_value,
                     amount_currency, event_type, position)
SELECT workspace_id, signal_id, webhook_id, received_at, request_id, body, headers, kind,
       generic_reason, entity, source_tool, event_id, amount_value::numeric, amount_currency,
       event_type,
       (SELECT p.position FROM signal_position p)
FROM unnest($1::mapped_delivery[])
ORDER BY workspace_id, signal_id
ON CONFLICT (workspace_id, signal_id) DO NOTHING";
}

impl Recorded for Signal {
    fn workspace(&self) -> WorkspaceId {
        self.workspace
    }

    async fn store(
        recorder: &Recorder,
        signals: &[&Self],
        spilled: &[i64],
    ) -> Result<(), DatabaseError> {
        let rows = signals.iter().map(|signal| NewSignal::of(signal));
        let work = StoreSignals(rows.collect());
        let stored = recorder.store("store_signals", &work, spilled).await?;
        for signal in signals {
            let headers = signal.headers.as_ref().map_or(0, String::len);
            let bytes = (signal.body.len() + headers) as u64 + ROW_BYTES;
            recorder
                .stored_bytes
                .add(signal.workspace, Some(signal.webhook), bytes);
        }
        metrics::SIGNALS.increment(stored);
        metrics::SIGNALS_REPEATED.increment(signals.len() as u64 - stored);
        Ok(())
    }
}

/// Stores a batch and counts the new signals.
struct StoreSignals<'a>(Vec<NewSignal<'a>>);

impl Work for StoreSignals<'_> {
    type Output = u64;

    async fn run(&self, transaction: &Transaction<'_>) -> Result<Option<u64>, DatabaseError> {
        Ok(Some(insert_signals(transaction, &self.0).await?))
    }
}

/// A signal, as its columns.
#[derive(Debug, ToSql)]
#[postgres(name = "mapped_delivery")]
struct NewSignal<'a> {
    workspace_id: WorkspaceId,
    signal_id: DeliveryId,
    webhook_id: WebhookId,
    received_at: Timestamp,
    request_id: Option<&'a str>,
    body: &'a [u8],
    headers: Option<&'a str>,
    kind: SignalKind,
    generic_reason: Option<&'static str>,
    entity: Option<String>,
    source_tool: Option<String>,
    event_id: Option<String>,
    amount_value: Option<String>,
    amount_currency: Option<&'a str>,
    event_type: Option<&'a str>,
}

impl<'a> NewSignal<'a> {
    fn of(signal: &'a Signal) -> Self {
        let (native, generic_reason) = match &signal.mapped {
            Mapped::Native(native) => (Some(native), None),
            Mapped::Generic(reason) => (None, Some(*reason)),
        };
        let amount = native.and_then(|native| native.amount.as_ref());
        Self {
            workspace_id: signal.workspace,
            signal_id: signal.id,
            webhook_id: signal.webhook,
            received_at: signal.receipt.received_at,
            request_id: signal.receipt.request_id.as_deref(),
            body: &signal.body,
            headers: signal.headers.as_deref(),
            kind: native.map_or(SignalKind::Generic, |native| native.kind),
            generic_reason,
            entity: native.map(|native| replace_nul(&native.entity)),
            source_tool: native.map(|native| replace_nul(&native.source_tool)),
            event_id: native.and_then(|native| native.event_id.as_deref().map(replace_nul)),
            amount_value: amount.map(|amount| amount.value.to_string()),
            amount_currency: amount.map(|amount| amount.currency.as_str()),
            event_type: signal.event_type.as_deref(),
        }
    }
}
