//! The statements over open batches.

use std::{collections::BTreeSet, time::Duration};

use bytes::Bytes;
use letterbox_broker::{BatchBody, MessageType};
use letterbox_database::{Database, DatabaseError, statements};

use super::BatchId;

statements! {
    /// Deletes the rows of confirmed batches. Need not be durable: a row that a crash brings back
    /// costs one more publish of the same ids.
    CLOSE_BATCHES = close_batches "
DELETE FROM open_batches
USING (SELECT set_config('synchronous_commit', 'off', true) AS synchronous_commit) AS quick
WHERE batch_id = ANY ($1) AND quick.synchronous_commit = 'off'";

    /// Frees batches that were not published for takeover. Spilled ones stay spilled.
    END_LEASES = end_leases "
UPDATE open_batches SET lease_until = clock_timestamp()
WHERE batch_id = ANY ($1) AND spilled_at IS NULL";

    /// Writes messages into the rows of their batches. Durable.
    SPILL_BATCHES = spill_batches "
UPDATE open_batches o
SET spilled_at = clock_timestamp(), lease_until = clock_timestamp(), routing_key = new.routing_key,
    message_type = new.message_type, entries = new.entries, body = new.body
FROM unnest($1::bigint[], $2::text[], $3::text[], $4::int[], $5::bytea[])
     AS new (batch_id, routing_key, message_type, entries, body)
WHERE o.batch_id = new.batch_id
RETURNING o.batch_id";

    /// Takes the oldest spilled messages that no gateway is publishing, for $2 seconds.
    TAKE_SPILLED = take_spilled "
UPDATE open_batches o SET lease_until = clock_timestamp() + $2::float8 * interval '1 second'
FROM (SELECT batch_id FROM open_batches
      WHERE spilled_at IS NOT NULL AND lease_is_over(lease_until, $2)
      ORDER BY spilled_at LIMIT $1 FOR UPDATE SKIP LOCKED) AS oldest
WHERE o.batch_id = oldest.batch_id
RETURNING o.batch_id, o.routing_key, o.message_type, o.entries, o.body";

    /// Puts off spilled messages that could not be published now, for $2 seconds.
    PUT_OFF_SPILLED = put_off_spilled "
UPDATE open_batches SET lease_until = clock_timestamp() + $2::float8 * interval '1 second'
WHERE batch_id = ANY ($1) AND spilled_at IS NOT NULL";

    /// The size and age of the spill, over all gateways.
    MEASURE_SPILL = measure_spill "
SELECT count(*) AS messages, coalesce(sum(octet_length(body)), 0)::bigint AS bytes,
       coalesce(extract(epoch FROM now() - min(spilled_at)), 0)::float8 AS oldest_seconds
FROM open_batches WHERE spilled_at IS NOT NULL";
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
    let rows = database
        .query(
            &SPILL_BATCHES,
            &[
                /* $1 batch_id */ &batches, /* $2 routing_key */ &keys,
                /* $3 message_type */ &kinds, /* $4 entries */ &entries,
                /* $5 body */ &bodies,
            ],
        )
        .await?;
    rows.iter()
        .map(|row| Ok(row.try_get("batch_id")?))
        .collect()
}

/// Takes the oldest spilled messages for `lease`.
///
/// # Errors
/// When the database did not answer, or holds a message type that this program does not know.
pub(super) async fn take_spilled(
    database: &Database,
    count: i64,
    lease: Duration,
) -> Result<Vec<Spillable>, DatabaseError> {
    let lease = lease.as_secs_f64();
    let rows = database.query(&TAKE_SPILLED, &[&count, &lease]).await?;
    rows.iter()
        .map(|row| {
            let (kind, entries): (MessageType, i32) =
                (row.try_get("message_type")?, row.try_get("entries")?);
            let bytes: Vec<u8> = row.try_get("body")?;
            Ok(Spillable {
                batch: row.try_get("batch_id")?,
                routing_key: row.try_get("routing_key")?,
                body: BatchBody {
                    kind,
                    entries: entries as u32,
                    bytes: Bytes::from(bytes),
                },
            })
        })
        .collect()
}

/// Puts off messages that could not be published now.
///
/// # Errors
/// When the database did not answer: they stay with this gateway until the lease is over.
pub(super) async fn put_off_spilled(
    database: &Database,
    batches: &[BatchId],
    pause: Duration,
) -> Result<(), DatabaseError> {
    let pause = pause.as_secs_f64();
    database
        .execute(&PUT_OFF_SPILLED, &[&batches, &pause])
        .await?;
    Ok(())
}

/// A batch with its message.
#[derive(Debug, Clone)]
pub(crate) struct Spillable {
    pub(crate) batch: BatchId,
    pub(crate) routing_key: String,
    pub(crate) body: BatchBody,
}

/// The size of the spill.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct SpillSize {
    pub(super) messages: u64,
    pub(super) bytes: u64,
}

/// Measures the spill. Also returns the age of the oldest message in seconds.
///
/// # Errors
/// When the database did not answer.
pub(super) async fn measure(database: &Database) -> Result<(SpillSize, f64), DatabaseError> {
    let row = database.query_one(&MEASURE_SPILL, &[]).await?;
    let (messages, bytes): (i64, i64) = (row.try_get("messages")?, row.try_get("bytes")?);
    let size = SpillSize {
        messages: messages as u64,
        bytes: bytes as u64,
    };
    Ok((size, row.try_get("oldest_seconds")?))
}
