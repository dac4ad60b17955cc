//! Storing signals: one statement for a batch. A signal that stands there already is left as it is.

use std::time::Duration;

use deadpool_postgres::Pool;
use jiff::Timestamp;
use letterbox_common::{
    database::{Checkout, DatabaseError, storable, within},
    ids::{DeliveryId, WebhookId, WorkspaceId},
};
use tokio_postgres::types::ToSql;

use super::{Mapped, Signal};

const DEADLINE: Duration = Duration::from_secs(10);

/// insert_signals: a batch of signals; those that came before change nothing
pub const INSERT_SIGNALS: &str = "
INSERT INTO signals (workspace_id, signal_id, webhook_id, received_at, kind, generic_reason, entity, source_tool,
                     amount_value, amount_currency, event_id, body)
SELECT workspace_id, signal_id, webhook_id, received_at, kind, generic_reason, entity, source_tool,
       amount_value::numeric, amount_currency, event_id, body
FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::timestamptz[], $5::text[], $6::text[], $7::text[], $8::text[],
            $9::text[], $10::text[], $11::text[], $12::bytea[])
     AS new (workspace_id, signal_id, webhook_id, received_at, kind, generic_reason, entity, source_tool,
             amount_value, amount_currency, event_id, body)
ORDER BY workspace_id, signal_id
ON CONFLICT (workspace_id, signal_id) DO NOTHING";

/// Stores signals, all or none. They are committed when this returns.
///
/// # Errors
/// Transient when the database is away (whether it committed is then unknown, and does not matter),
/// permanent when one of them breaks a constraint.
pub async fn store(pool: &Pool, signals: &[&Signal]) -> Result<(), DatabaseError> {
    if signals.is_empty() {
        return Ok(());
    }
    within(DEADLINE, "storing signals", insert(pool, signals))
        .await
        .inspect_err(
            |error| tracing::warn!(%error, signals = signals.len(), "signals could not be stored"),
        )
}

async fn insert(pool: &Pool, signals: &[&Signal]) -> Result<(), DatabaseError> {
    let mut columns = Columns::default();
    signals.iter().for_each(|signal| columns.push(signal));

    let client = Checkout::get(pool).await?;
    let statement = client.prepare_cached(INSERT_SIGNALS).await?;
    let parameters: [&(dyn ToSql + Sync); 12] = [
        &columns.workspaces,
        &columns.ids,
        &columns.webhooks,
        &columns.received,
        &columns.kinds,
        &columns.reasons,
        &columns.entities,
        &columns.tools,
        &columns.values,
        &columns.currencies,
        &columns.events,
        &columns.bodies,
    ];
    let inserted = client.execute(&statement, &parameters).await?;
    client.done();
    metrics::counter!("letterbox_signals_total").increment(inserted);
    metrics::counter!("letterbox_signals_repeated_total")
        .increment(signals.len() as u64 - inserted);
    Ok(())
}

/// A batch by column.
#[derive(Default)]
struct Columns<'a> {
    workspaces: Vec<WorkspaceId>,
    ids: Vec<DeliveryId>,
    webhooks: Vec<WebhookId>,
    received: Vec<Timestamp>,
    kinds: Vec<&'static str>,
    reasons: Vec<Option<&'static str>>,
    entities: Vec<Option<String>>,
    tools: Vec<Option<String>>,
    values: Vec<Option<String>>,
    currencies: Vec<Option<&'a str>>,
    events: Vec<Option<String>>,
    bodies: Vec<&'a [u8]>,
}

impl<'a> Columns<'a> {
    fn push(&mut self, signal: &'a Signal) {
        self.workspaces.push(signal.workspace);
        self.ids.push(signal.id);
        self.webhooks.push(signal.webhook);
        self.received.push(signal.received_at);
        self.bodies.push(&signal.body);

        let (native, reason) = match &signal.mapped {
            Mapped::Native(native) => (Some(native), None),
            Mapped::Generic(reason) => (None, Some(*reason)),
        };
        self.kinds
            .push(native.map_or("generic", |native| native.kind.as_str()));
        self.reasons.push(reason);
        self.entities
            .push(native.map(|native| storable(&native.entity)));
        self.tools
            .push(native.map(|native| storable(&native.source_tool)));
        self.events.push(
            native
                .and_then(|native| native.event_id.as_deref())
                .map(storable),
        );
        let amount = native.and_then(|native| native.amount.as_ref());
        self.values.push(amount.map(super::Amount::value));
        self.currencies
            .push(amount.map(|amount| amount.currency.as_str()));
    }
}
