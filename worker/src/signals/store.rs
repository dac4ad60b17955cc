//! Stores signals: one statement for the native ones of a batch and one for the generic ones. A
//! signal that is already stored stays unchanged.

use jiff::Timestamp;
use letterbox_common::{
    ids::{DeliveryId, WebhookId, WorkspaceId},
    states::SignalKind,
};
use letterbox_database::{
    BoundStatement, DatabaseError, Statement, Transaction, Work, replace_nul, statements,
};

use super::{Mapped, Signal, proposal::Native};
use crate::{metrics, recorder::Recorder, stored_bytes::ROW_BYTES};

statements! {
    /// Inserts signals that meet the proposal contract. Signals already stored stay unchanged.
    INSERT_NATIVE = insert_native_signals "
INSERT INTO signals (workspace_id, signal_id, webhook_id, received_at, request_id, body, headers,
                     kind, entity, source_tool, event_id, amount_value, amount_currency, position)
SELECT workspace_id, signal_id, webhook_id, received_at, request_id, body, headers, kind, entity,
       source_tool, event_id, amount_value::numeric, amount_currency,
       (SELECT p.position FROM signal_position p)
FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::timestamptz[], $5::text[], $6::bytea[],
            $7::text[], $8::text[], $9::text[], $10::text[], $11::text[], $12::text[], $13::text[])
     AS new (workspace_id, signal_id, webhook_id, received_at, request_id, body, headers, kind,
             entity, source_tool, event_id, amount_value, amount_currency)
ORDER BY workspace_id, signal_id
ON CONFLICT (workspace_id, signal_id) DO NOTHING
RETURNING signal_id";

    /// Inserts all other signals, with the first rule that each broke. Signals already stored stay
    /// unchanged.
    INSERT_GENERIC = insert_generic_signals "
INSERT INTO signals (workspace_id, signal_id, webhook_id, received_at, request_id, body, headers,
                     kind, generic_reason, position)
SELECT workspace_id, signal_id, webhook_id, received_at, request_id, body, headers, 'generic',
       reason, (SELECT p.position FROM signal_position p)
FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::timestamptz[], $5::text[], $6::bytea[],
            $7::text[], $8::text[])
     AS new (workspace_id, signal_id, webhook_id, received_at, request_id, body, headers, reason)
ORDER BY workspace_id, signal_id
ON CONFLICT (workspace_id, signal_id) DO NOTHING
RETURNING signal_id";
}

/// Stores signals, all or none. They are committed when this returns.
///
/// # Errors
/// Transient when the database is unavailable: whether it committed is then unknown, and doesn't
/// matter because a repeat changes nothing. Permanent when a signal breaks a constraint.
pub(crate) async fn store(recorder: &Recorder, signals: &[&Signal]) -> Result<(), DatabaseError> {
    let (mut native, mut generic) = (NativeColumns::default(), GenericColumns::default());
    for signal in signals {
        match &signal.mapped {
            Mapped::Native(mapped) => native.push(signal, mapped),
            Mapped::Generic(reason) => generic.push(signal, reason),
        }
    }
    let work = StoreSignals { native, generic };
    // An uncommitted batch must not be acknowledged.
    let name = "store_signals";
    let stored = recorder.database.transaction(name, &work).await?;
    let stored = stored.ok_or_else(|| DatabaseError::rolled_back(name))?;
    for signal in signals {
        let headers = signal.headers.as_ref().map_or(0, String::len);
        let bytes = (signal.body.len() + headers) as u64 + ROW_BYTES;
        recorder
            .stored_bytes
            .add(signal.workspace, Some(signal.webhook), bytes);
    }
    metrics::SIGNALS.increment(stored as u64);
    metrics::SIGNALS_REPEATED.increment((signals.len() - stored) as u64);
    Ok(())
}

/// Stores a batch and counts the new signals.
struct StoreSignals<'a> {
    native: NativeColumns<'a>,
    generic: GenericColumns<'a>,
}

impl Work for StoreSignals<'_> {
    type Output = usize;

    async fn run(&self, transaction: &Transaction<'_>) -> Result<Option<usize>, DatabaseError> {
        let inserts = [self.native.insert(), self.generic.insert()];
        let inserts: Vec<_> = inserts.into_iter().flatten().collect();
        let inserted = transaction.pipeline(&inserts).await?;
        Ok(Some(inserted.iter().map(Vec::len).sum()))
    }
}

/// The columns that every signal has.
#[derive(Default)]
struct Common<'a> {
    workspaces: Vec<WorkspaceId>,
    ids: Vec<DeliveryId>,
    webhooks: Vec<WebhookId>,
    received: Vec<Timestamp>,
    requests: Vec<Option<&'a str>>,
    bodies: Vec<&'a [u8]>,
    headers: Vec<Option<&'a str>>,
}

impl<'a> Common<'a> {
    fn push(&mut self, signal: &'a Signal) {
        self.workspaces.push(signal.workspace);
        self.ids.push(signal.id);
        self.webhooks.push(signal.webhook);
        self.received.push(signal.receipt.received_at);
        self.requests.push(signal.receipt.request_id.as_deref());
        self.bodies.push(&signal.body);
        self.headers.push(signal.headers.as_deref());
    }

    /// A statement with the arguments that every signal has.
    fn bound_to(&self, statement: &'static Statement) -> BoundStatement<'_> {
        BoundStatement::new(statement)
            .bind(/* $1 workspace_id */ &self.workspaces)
            .bind(/* $2 signal_id */ &self.ids)
            .bind(/* $3 webhook_id */ &self.webhooks)
            .bind(/* $4 received_at */ &self.received)
            .bind(/* $5 request_id */ &self.requests)
            .bind(/* $6 body */ &self.bodies)
            .bind(/* $7 headers */ &self.headers)
    }
}

#[derive(Default)]
struct NativeColumns<'a> {
    common: Common<'a>,
    kinds: Vec<SignalKind>,
    entities: Vec<String>,
    tools: Vec<String>,
    events: Vec<Option<String>>,
    values: Vec<Option<String>>,
    currencies: Vec<Option<&'a str>>,
}

impl<'a> NativeColumns<'a> {
    fn push(&mut self, signal: &'a Signal, native: &'a Native) {
        self.common.push(signal);
        self.kinds.push(native.kind);
        self.entities.push(replace_nul(&native.entity));
        self.tools.push(replace_nul(&native.source_tool));
        self.events
            .push(native.event_id.as_deref().map(replace_nul));
        let amount = native.amount.as_ref();
        self.values
            .push(amount.map(|amount| amount.value.to_string()));
        self.currencies
            .push(amount.map(|amount| amount.currency.as_str()));
    }

    /// `None` if the batch has no native signal.
    fn insert(&self) -> Option<BoundStatement<'_>> {
        (!self.common.ids.is_empty()).then(|| {
            self.common
                .bound_to(&INSERT_NATIVE)
                .bind(/* $8 kind */ &self.kinds)
                .bind(/* $9 entity */ &self.entities)
                .bind(/* $10 source_tool */ &self.tools)
                .bind(/* $11 event_id */ &self.events)
                .bind(/* $12 amount_value */ &self.values)
                .bind(/* $13 amount_currency */ &self.currencies)
        })
    }
}

#[derive(Default)]
struct GenericColumns<'a> {
    common: Common<'a>,
    reasons: Vec<&'static str>,
}

impl<'a> GenericColumns<'a> {
    fn push(&mut self, signal: &'a Signal, reason: &'static str) {
        self.common.push(signal);
        self.reasons.push(reason);
    }

    /// `None` if the batch has no generic signal.
    fn insert(&self) -> Option<BoundStatement<'_>> {
        (!self.common.ids.is_empty()).then(|| {
            self.common
                .bound_to(&INSERT_GENERIC)
                .bind(/* $8 generic_reason */ &self.reasons)
        })
    }
}
