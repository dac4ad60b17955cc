//! The statements over spilled messages.

use bytes::Bytes;
use letterbox_broker::BatchBody;
use letterbox_database::{FromRow, Row, RowError, statements};

statements! {
    /// Takes the oldest spilled messages that no worker is publishing, for $2 seconds; of the
    /// queues $3, or if not $4, of all but these.
    pub(super) fn take_spilled(
        most: i64, seconds: f64, queues: &[&str], is_of_them: bool,
    ) -> Vec<Spilled> = "
UPDATE open_batches o SET lease_until = clock_timestamp() + $2::float8 * interval '1 second'
FROM (SELECT batch_id FROM open_batches
      WHERE spilled_at IS NOT NULL AND lease_is_over(lease_until, $2)
        AND (routing_key = ANY ($3)) = $4
      ORDER BY spilled_at LIMIT $1 FOR UPDATE SKIP LOCKED) AS oldest
WHERE o.batch_id = oldest.batch_id
RETURNING o.batch_id AS batch, o.routing_key, o.message_type, o.entries, o.body";

    /// Deletes the rows of messages that the broker has confirmed.
    pub(super) fn close_spilled(batches: &[i64]) = "
DELETE FROM open_batches WHERE batch_id = ANY ($1)";

    /// Puts off messages that could not be published now, for $2 seconds.
    pub(super) fn put_off_spilled(batches: &[i64], seconds: f64) = "
UPDATE open_batches SET lease_until = clock_timestamp() + $2::float8 * interval '1 second'
WHERE batch_id = ANY ($1) AND spilled_at IS NOT NULL";
}

/// A spilled message.
#[derive(Debug, FromRow)]
pub(super) struct Spilled {
    /// The id of its batch, and its own.
    pub(super) batch: i64,
    pub(super) routing_key: String,
    #[row(from = body)]
    pub(super) body: BatchBody,
}

fn body(row: &Row) -> Result<BatchBody, RowError> {
    let (entries, bytes): (i32, Vec<u8>) = (row.try_get("entries")?, row.try_get("body")?);
    Ok(BatchBody {
        kind: row.try_get("message_type")?,
        entries: entries.unsigned_abs(),
        bytes: Bytes::from(bytes),
    })
}
