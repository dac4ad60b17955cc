//! Stores signals: one statement for the native ones of a batch and one for the generic ones. A
//! signal that is already stored stays unchanged.

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

/// Stores signals, all or none, and takes these messages out of the spill. It is committed when
/// this returns.
///
/// # Errors
/// Transient when the database is unavailable: whether it committed is then unknown, and doesn't
/// matter because a repeat changes nothing. Permanent when a signal breaks a constraint.
pub(crate) async fn store(
    recorder: &Recorder,
    signals: &[&Signal],
    spilled: &[i64],
) -> Result<(), DatabaseError> {
    let mut native = Vec::new();
    let mut generic = Vec::new();
    for &signal in signals {
        match &signal.mapped {
            Mapped::Native(mapped) => native.push((signal, mapped)),
            Mapped::Generic(reason) => generic.push((signal, *reason)),
        }
    }
    let work = StoreSignals { native, generic };
    let stored = recorder.store("store_signals", &work, spilled).await?;
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
    native: Vec<(&'a Signal, &'a Native)>,
    /// Each with the first rule that it broke.
    generic: Vec<(&'a Signal, &'static str)>,
}

impl Work for StoreSignals<'_> {
    type Output = usize;

    async fn run(&self, transaction: &Transaction<'_>) -> Result<Option<usize>, DatabaseError> {
        let native = self.native.first().map(|_| self.insert_native());
        let generic = self.generic.first().map(|_| self.insert_generic());
        let inserts = Vec::from_iter(native.into_iter().chain(generic));
        let inserted = transaction.pipeline(&inserts).await?;
        Ok(Some(inserted.iter().map(Vec::len).sum()))
    }
}

impl StoreSignals<'_> {
    fn insert_native(&self) -> BoundStatement<'_> {
        let native = || self.native.iter().map(|(_, native)| native);
        let amounts = || native().map(|one| one.amount.as_ref());
        common(
            &INSERT_NATIVE,
            &self.native.iter().map(|(signal, _)| *signal),
        )
        .column(/* $8 kind */ native().map(|one| one.kind))
        .column(
            /* $9 entity */ native().map(|one| replace_nul(&one.entity)),
        )
        .column(
            /* $10 source_tool */ native().map(|one| replace_nul(&one.source_tool)),
        )
        .column(
            /* $11 event_id */ native().map(|one| one.event_id.as_deref().map(replace_nul)),
        )
        .column(
            /* $12 amount_value */ amounts().map(|one| Some(one?.value.to_string())),
        )
        .column(
            /* $13 amount_currency */ amounts().map(|one| Some(one?.currency.as_str())),
        )
    }

    fn insert_generic(&self) -> BoundStatement<'_> {
        common(
            &INSERT_GENERIC,
            &self.generic.iter().map(|(signal, _)| *signal),
        )
        .column(
            /* $8 generic_reason */ self.generic.iter().map(|(_, reason)| *reason),
        )
    }
}

/// A statement with the columns that every signal has.
fn common<'a>(
    statement: &'static Statement,
    signals: &(impl Iterator<Item = &'a Signal> + Clone),
) -> BoundStatement<'a> {
    let all = || signals.clone();
    BoundStatement::new(statement)
        .column(/* $1 workspace_id */ all().map(|one| one.workspace))
        .column(/* $2 signal_id */ all().map(|one| one.id))
        .column(/* $3 webhook_id */ all().map(|one| one.webhook))
        .column(
            /* $4 received_at */ all().map(|one| one.receipt.received_at),
        )
        .column(
            /* $5 request_id */ all().map(|one| one.receipt.request_id.as_deref()),
        )
        .column(/* $6 body */ all().map(|one| &one.body[..]))
        .column(
            /* $7 headers */ all().map(|one| one.headers.as_deref()),
        )
}
