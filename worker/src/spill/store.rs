//! The statements over spilled messages.

use std::time::Duration;

use bytes::Bytes;
use letterbox_broker::{BatchBody, MessageType};
use letterbox_database::{Database, DatabaseError, statements};

statements! {
    /// Takes the oldest spilled messages that no worker is publishing, for $2 seconds; of the
    /// queues $3, or if not $4, of all but these.
    TAKE_SPILLED = take_spilled "
UPDATE open_batches o SET lease_until = clock_timestamp() + $2::float8 * interval '1 second'
FROM (SELECT batch_id FROM open_batches
      WHERE spilled_at IS NOT NULL AND lease_is_over(lease_until, $2)
        AND (routing_key = ANY ($3)) = $4
      ORDER BY spilled_at LIMIT $1 FOR UPDATE SKIP LOCKED) AS oldest
WHERE o.batch_id = oldest.batch_id
RETURNING o.batch_id, o.routing_key, o.message_type, o.entries, o.body";

    /// Deletes the rows of messages that the broker has confirmed.
    CLOSE_SPILLED = close_spilled "DELETE FROM open_batches WHERE batch_id = ANY ($1)";

    /// Puts off messages that could not be published now, for $2 seconds.
    PUT_OFF_SPILLED = put_off_spilled "
UPDATE open_batches SET lease_until = clock_timestamp() + $2::float8 * interval '1 second'
WHERE batch_id = ANY ($1) AND spilled_at IS NOT NULL";
}

/// A spilled message.
#[derive(Debug)]
pub(super) struct Spilled {
    /// The id of its batch, and its own.
    pub(super) batch: i64,
    pub(super) routing_key: String,
    pub(super) body: BatchBody,
}

/// Takes the oldest spilled messages for `lease`.
///
/// # Errors
/// When the database did not answer, or holds a message type that this program does not know.
pub(super) async fn take(
    database: &Database,
    count: i64,
    lease: Duration,
    of: (&[&str], bool),
) -> Result<Vec<Spilled>, DatabaseError> {
    let lease = lease.as_secs_f64();
    let (queues, is_of_them) = of;
    let rows = database
        .query(&TAKE_SPILLED, &[&count, &lease, &queues, &is_of_them])
        .await?;
    rows.iter()
        .map(|row| {
            let (kind, entries): (MessageType, i32) =
                (row.try_get("message_type")?, row.try_get("entries")?);
            let bytes: Vec<u8> = row.try_get("body")?;
            Ok(Spilled {
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

/// Deletes the rows of messages that the broker has confirmed.
///
/// # Errors
/// When the database did not answer: then they are published once more under the same ids.
pub(super) async fn close(database: &Database, batches: &[i64]) -> Result<(), DatabaseError> {
    database.execute(&CLOSE_SPILLED, &[&batches]).await?;
    Ok(())
}

/// Puts off messages that could not be published now.
///
/// # Errors
/// When the database did not answer: they stay with this worker until the lease is over.
pub(super) async fn put_off(
    database: &Database,
    batches: &[i64],
    pause: Duration,
) -> Result<(), DatabaseError> {
    let pause = pause.as_secs_f64();
    database
        .execute(&PUT_OFF_SPILLED, &[&batches, &pause])
        .await?;
    Ok(())
}
