//! The statements over open batches.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use letterbox_broker::BatchBody;
use letterbox_common::ids::WorkspaceId;
use letterbox_database::{Database, DatabaseError, Row, RowError, statements};

use super::BatchId;

statements! {
    /// Deletes the rows of confirmed batches.
    CLOSE_BATCHES = close_batches "SELECT close_batches($1::bigint[])";

    /// Frees batches that were not published for takeover.
    END_LEASES = end_leases "SELECT end_leases($1::bigint[])";

    /// Writes messages into the rows of their batches. Durable. $6 says how many bytes of each
    /// every workspace has.
    SPILL_BATCHES = spill_batches "
SELECT spill_batches($1::bigint[], $2::text[], $3::text[], $4::int[], $5::bytea[], $6::text::jsonb)
    AS batch_id";

    /// The size and age of the spill, over all gateways.
    MEASURE_SPILL = measure_spill "
SELECT count(*) AS messages, coalesce(sum(length), 0)::bigint AS bytes,
       coalesce(extract(epoch FROM now() - min(spilled_at)), 0)::float8 AS oldest_seconds
FROM open_batches WHERE spilled_at IS NOT NULL";

    /// How much of the spill each workspace has: of a message that it shares with others, its part.
    MEASURE_SHARES = measure_spill_shares "
SELECT s.workspace_id, sum(s.bytes)::bigint AS bytes,
       sum(s.bytes / greatest((SELECT sum(part) FROM unnest(o.shares) AS part), 1)::float8)
           AS messages
FROM open_batches o, unnest(o.workspaces, o.shares) AS s (workspace_id, bytes)
WHERE o.spilled_at IS NOT NULL GROUP BY s.workspace_id ORDER BY bytes DESC LIMIT 1000";
}

/// Deletes the rows of confirmed batches.
///
/// # Errors
/// When the database did not answer: the rows may still exist.
pub(super) async fn close(database: &Database, batches: &[BatchId]) -> Result<(), DatabaseError> {
    database.execute(&CLOSE_BATCHES, &[&batches]).await?;
    Ok(())
}

/// Ends the leases of batches that were not published.
///
/// # Errors
/// When the database did not answer: the leases end by themselves.
pub(super) async fn end_leases(
    database: &Database,
    batches: &BTreeSet<BatchId>,
) -> Result<(), DatabaseError> {
    let batches: Vec<_> = batches.iter().copied().collect();
    database.execute(&END_LEASES, &[&batches]).await?;
    Ok(())
}

/// Writes messages into the rows of their batches, and returns the batches that had a row.
///
/// # Errors
/// When the database did not answer: the messages may be written nevertheless.
pub(super) async fn spill(
    database: &Database,
    messages: &[Spillable],
) -> Result<BTreeSet<BatchId>, DatabaseError> {
    let batches: Vec<BatchId> = messages.iter().map(|one| one.batch).collect();
    let keys: Vec<&str> = messages
        .iter()
        .map(|one| one.routing_key.as_str())
        .collect();
    let kinds: Vec<&str> = messages.iter().map(|one| one.body.kind.as_str()).collect();
    let entries: Vec<i32> = messages.iter().map(|one| one.body.entries as i32).collect();
    let bodies: Vec<&[u8]> = messages.iter().map(|one| &one.body.bytes[..]).collect();
    let shares: Vec<&BTreeMap<WorkspaceId, usize>> =
        messages.iter().map(|one| &one.shares).collect();
    let shares = serde_json::json!(shares).to_string();
    let rows = database
        .query(
            &SPILL_BATCHES,
            &[
                /* $1 batch_id */ &batches, /* $2 routing_key */ &keys,
                /* $3 message_type */ &kinds, /* $4 entries */ &entries,
                /* $5 body */ &bodies, /* $6 shares */ &shares,
            ],
        )
        .await?;
    rows.iter()
        .map(|row| Ok(row.try_get("batch_id")?))
        .collect()
}

/// A batch with its message.
#[derive(Debug, Clone)]
pub(crate) struct Spillable {
    pub(crate) batch: BatchId,
    pub(crate) routing_key: String,
    pub(crate) body: BatchBody,
    /// The bytes of each workspace's entries.
    pub(crate) shares: BTreeMap<WorkspaceId, usize>,
}

/// The size of the spill.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct SpillSize {
    pub(super) messages: u64,
    pub(super) bytes: u64,
}

/// The part of the spill that one workspace has.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SpillShare {
    /// Of a message that it shares with others, its part.
    pub(super) messages: f64,
    pub(super) bytes: u64,
}

impl SpillSize {
    pub(super) fn with(self, messages: u64, bytes: u64) -> Self {
        Self {
            messages: self.messages + messages,
            bytes: self.bytes + bytes,
        }
    }
}

/// How much of the spill each workspace has, of those that have most of it.
pub(super) async fn measure_shares(
    database: &Database,
) -> Result<HashMap<WorkspaceId, SpillShare>, DatabaseError> {
    let rows = database.query(&MEASURE_SHARES, &[]).await?;
    let share = |row: &Row| {
        let bytes: i64 = row.try_get("bytes")?;
        let share = SpillShare {
            messages: row.try_get("messages")?,
            bytes: bytes as u64,
        };
        Ok((row.try_get("workspace_id")?, share))
    };
    rows.iter().map(share).collect()
}

fn size(row: &Row) -> Result<SpillSize, RowError> {
    let (messages, bytes): (i64, i64) = (row.try_get("messages")?, row.try_get("bytes")?);
    Ok(SpillSize {
        messages: messages as u64,
        bytes: bytes as u64,
    })
}

/// Measures the spill. Also returns the age of the oldest message in seconds.
pub(super) async fn measure(database: &Database) -> Result<(SpillSize, f64), DatabaseError> {
    let row = database.query_one(&MEASURE_SPILL, &[]).await?;
    Ok((size(&row)?, row.try_get("oldest_seconds")?))
}
