//! The statements over open batches.

use std::collections::BTreeSet;

use letterbox_broker::BatchBody;
use letterbox_common::ids::WorkspaceId;
use letterbox_database::{Database, DatabaseError, FromRow, statements};

use super::BatchId;

statements! {
    /// Deletes the rows of confirmed batches.
    pub(super) fn close_batches(batches: &[BatchId]) = "SELECT close_batches($1::bigint[])";

    /// Frees batches that were not published for takeover.
    pub(super) fn end_leases(batches: &[BatchId]) = "SELECT end_leases($1::bigint[])";

    /// Puts the entries of batches into the spill, and closes the batches. Durable.
    fn spill_batches(
        batches: &[BatchId], routing_keys: &[&str], message_types: &[&str],
        workspaces: &[WorkspaceId], bodies: &[&[u8]],
    ) -> Vec<(BatchId,)> = "
SELECT spill_batches($1::bigint[], $2::text[], $3::text[], $4::uuid[], $5::bytea[]) AS batch_id";

    /// The size and age of the spill, over all gateways.
    pub(super) fn measure_spill() -> Measured = "
SELECT count(*) FILTER (WHERE NOT is_aside) AS messages,
       coalesce(sum(length) FILTER (WHERE NOT is_aside), 0)::bigint AS bytes,
       count(*) AS all_messages, coalesce(sum(length), 0)::bigint AS all_bytes,
       coalesce(extract(epoch FROM now() - min(spilled_at)), 0)::float8 AS oldest_seconds
FROM spilled_messages";

    /// How much of the spill each workspace has, with what workers have put there.
    pub(super) fn measure_spill_shares() -> Vec<WorkspaceShare> = "
SELECT workspace_id, count(*) AS messages, sum(length)::bigint AS bytes
FROM spilled_messages
GROUP BY workspace_id ORDER BY bytes DESC LIMIT 1000";
}

/// Puts the entries of batches into the spill, each as a message of its own, and returns those
/// batches that had a row.
///
/// # Errors
/// When the database did not answer: they may be spilled nevertheless.
pub(super) async fn spill(
    database: &Database,
    batches: &[Spillable],
) -> Result<BTreeSet<BatchId>, DatabaseError> {
    let entries = || {
        batches
            .iter()
            .flat_map(|of| of.body.entries.iter().map(move |one| (of, one)))
    };
    let ids: Vec<BatchId> = entries().map(|(of, _)| of.batch).collect();
    let keys: Vec<&str> = entries().map(|(of, _)| of.routing_key.as_str()).collect();
    let kinds: Vec<&str> = entries().map(|(of, _)| of.body.kind.as_str()).collect();
    let workspaces: Vec<WorkspaceId> = entries().map(|(_, (workspace, _))| *workspace).collect();
    let bodies: Vec<&[u8]> = entries()
        .map(|(of, (_, place))| &of.body.bytes[place.clone()])
        .collect();
    let spilled = spill_batches(database, &ids, &keys, &kinds, &workspaces, &bodies).await?;
    Ok(spilled.into_iter().map(|(batch,)| batch).collect())
}

/// A batch with its message.
#[derive(Debug, Clone)]
pub(crate) struct Spillable {
    pub(crate) batch: BatchId,
    pub(crate) routing_key: String,
    pub(crate) body: BatchBody,
}

/// A size of the spill: what it has, may have, or has of one workspace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromRow)]
pub(crate) struct SpillSize {
    #[row(with = i64::unsigned_abs)]
    pub(crate) messages: u64,
    #[row(with = i64::unsigned_abs)]
    pub(crate) bytes: u64,
}

/// The spill as it was measured.
#[derive(FromRow)]
pub(super) struct Measured {
    /// What gateways have put there.
    #[row(flatten)]
    pub(super) size: SpillSize,
    /// With what workers have put there.
    #[row(with = i64::unsigned_abs)]
    pub(super) all_messages: u64,
    #[row(with = i64::unsigned_abs)]
    pub(super) all_bytes: u64,
    /// The age of the oldest message.
    pub(super) oldest_seconds: f64,
}

/// A workspace's share.
#[derive(FromRow)]
pub(super) struct WorkspaceShare {
    pub(super) workspace_id: WorkspaceId,
    #[row(flatten)]
    pub(super) share: SpillSize,
}

impl SpillSize {
    /// Adds a message.
    pub(super) fn add(&mut self, bytes: usize) {
        self.messages += 1;
        self.bytes += bytes as u64;
    }
}
