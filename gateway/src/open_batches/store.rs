//! The statements over open batches.

use std::collections::{BTreeMap, BTreeSet};

use letterbox_broker::BatchBody;
use letterbox_common::ids::WorkspaceId;
use letterbox_database::{Database, DatabaseError, FromRow, statements};

use super::BatchId;

statements! {
    /// Deletes the rows of confirmed batches.
    pub(super) fn close_batches(batches: &[BatchId]) = "SELECT close_batches($1::bigint[])";

    /// Frees batches that were not published for takeover.
    pub(super) fn end_leases(batches: &[BatchId]) = "SELECT end_leases($1::bigint[])";

    /// Writes messages into the rows of their batches. Durable. $6 says how many bytes of each
    /// every workspace has.
    fn spill_batches(
        batches: &[BatchId], routing_keys: &[&str], message_types: &[&str], entries: &[i32],
        bodies: &[&[u8]], shares: &str,
    ) -> Vec<(BatchId,)> = "
SELECT spill_batches($1::bigint[], $2::text[], $3::text[], $4::int[], $5::bytea[], $6::text::jsonb)
    AS batch_id";

    /// The size and age of the spill, over all gateways.
    pub(super) fn measure_spill() -> Measured = "
SELECT count(*) AS messages, coalesce(sum(length), 0)::bigint AS bytes,
       coalesce(extract(epoch FROM now() - min(spilled_at)), 0)::float8 AS oldest_seconds
FROM open_batches WHERE spilled_at IS NOT NULL";

    /// How much of the spill each workspace has: of a message that it shares with others, its part.
    pub(super) fn measure_spill_shares() -> Vec<WorkspaceShare> = "
SELECT s.workspace_id, sum(s.bytes)::bigint AS bytes,
       sum(s.bytes / greatest((SELECT sum(part) FROM unnest(o.shares) AS part), 1)::float8)
           AS messages
FROM open_batches o, unnest(o.workspaces, o.shares) AS s (workspace_id, bytes)
WHERE o.spilled_at IS NOT NULL GROUP BY s.workspace_id ORDER BY bytes DESC LIMIT 1000";
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
    let spilled = spill_batches(
        database, &batches, &keys, &kinds, &entries, &bodies, &shares,
    );
    Ok(spilled.await?.into_iter().map(|(batch,)| batch).collect())
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
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromRow)]
pub(super) struct SpillSize {
    #[row(with = i64::unsigned_abs)]
    pub(super) messages: u64,
    #[row(with = i64::unsigned_abs)]
    pub(super) bytes: u64,
}

/// The spill as it was measured.
#[derive(FromRow)]
pub(super) struct Measured {
    #[row(flatten)]
    pub(super) size: SpillSize,
    /// The age of the oldest message.
    pub(super) oldest_seconds: f64,
}

/// The part of the spill that one workspace has.
#[derive(Debug, Clone, Copy, Default, FromRow)]
pub(super) struct SpillShare {
    /// Of a message that it shares with others, its part.
    pub(super) messages: f64,
    #[row(with = i64::unsigned_abs)]
    pub(super) bytes: u64,
}

/// A workspace's share.
#[derive(FromRow)]
pub(super) struct WorkspaceShare {
    pub(super) workspace_id: WorkspaceId,
    #[row(flatten)]
    pub(super) share: SpillShare,
}

impl SpillSize {
    pub(super) fn with(self, messages: u64, bytes: u64) -> Self {
        Self {
            messages: self.messages + messages,
            bytes: self.bytes + bytes,
        }
    }
}
