//! The statements over the spill.

use letterbox_broker::{Alone, MessageType, ReceivedEntry, decode_alone, topology::EXCHANGE};
use letterbox_common::ids::WorkspaceId;
use letterbox_database::{
    Database, DatabaseError, FromRow, Row, RowError, Transaction, statements,
};
use uuid::Uuid;

statements! {
    /// Takes messages that no worker has, for $2 seconds, those first that have waited longest
    /// since they were spilled or put off; of the workspaces $3, or if not $4, of all but these.
    pub(crate) fn take_spilled(
        most: i64, seconds: f64, workspaces: &[WorkspaceId], is_of_them: bool,
    ) -> Vec<Spilled> = "
UPDATE spilled_messages s
SET lease_until = clock_timestamp() + $2::float8 * interval '1 second', takes = s.takes + 1
FROM (SELECT workspace_id, spill_id FROM spilled_messages
      WHERE lease_is_over(lease_until, $2) AND (workspace_id = ANY ($3)) = $4
      ORDER BY lease_until LIMIT $1 FOR UPDATE SKIP LOCKED) AS oldest
WHERE s.workspace_id = oldest.workspace_id AND s.spill_id = oldest.spill_id
RETURNING s.spill_id AS id, s.takes - 1 AS returns, s.routing_key AS queue, s.message_type, s.body";

    /// Deletes messages in the transaction that stores what is in them.
    fn leave_spill(messages: &[i64]) -> u64 = "
DELETE FROM spilled_messages WHERE spill_id = ANY ($1)";

    /// Deletes the messages $1, of which there are dead letters, and puts off the messages $2 for
    /// $3 seconds, as taken $4 times.
    pub(crate) fn settle_spilled(over: &[i64], left: &[i64], seconds: f64, takes: i64) = "
WITH over AS (DELETE FROM spilled_messages WHERE spill_id = ANY ($1))
UPDATE spilled_messages
SET lease_until = clock_timestamp() + $3::float8 * interval '1 second', takes = $4
WHERE spill_id = ANY ($2)";

    /// Gives messages back that were not tried, as if they had not been taken.
    pub(crate) fn give_back(messages: &[i64]) = "
UPDATE spilled_messages SET lease_until = clock_timestamp(), takes = takes - 1
WHERE spill_id = ANY ($1)";

    /// Puts entries of a queue into the spill, as taken so often.
    fn put_aside(
        workspaces: &[Uuid], routing_key: &str, message_types: &[MessageType], bodies: &[&[u8]],
        takes: &[i64],
    ) = "
INSERT INTO spilled_messages (workspace_id, routing_key, message_type, body, takes)
SELECT workspace_id, $2, message_type, body, takes
FROM unnest($1::uuid[], $3::text[], $4::bytea[], $5::bigint[])
     AS new (workspace_id, message_type, body, takes)";
}

/// A message that was taken from the spill.
#[derive(FromRow)]
pub(crate) struct Spilled {
    pub(crate) id: i64,
    /// How often it was taken before and nobody has said what became of it.
    pub(crate) returns: i64,
    /// The queue to which it would have been published, or from which it came.
    #[row(with = queue)]
    pub(crate) queue: String,
    /// One, unless it is malformed.
    #[row(from = entries)]
    pub(crate) entries: Vec<ReceivedEntry>,
}

fn queue(routing_key: &str) -> String {
    format!("{EXCHANGE}.{routing_key}")
}

fn entries(row: &Row) -> Result<Vec<ReceivedEntry>, RowError> {
    let kind: MessageType = row.try_get("message_type")?;
    let id: i64 = row.try_get("id")?;
    let body: Vec<u8> = row.try_get("body")?;
    Ok(decode_alone(kind, id.to_string(), body.into()))
}

/// Deletes messages; `false` if one of them is gone: after the lease, another worker has stored it.
pub(crate) async fn leave(
    transaction: &Transaction<'_>,
    messages: &[i64],
) -> Result<bool, DatabaseError> {
    if messages.is_empty() {
        return Ok(true);
    }
    let deleted = leave_spill(transaction, messages).await?;
    Ok(deleted == messages.len() as u64)
}

/// An entry to put into the spill.
pub(crate) struct Aside {
    /// Nil if it can't be told.
    pub(crate) workspace: Uuid,
    pub(crate) alone: Alone,
    /// How often it was returned to its queue.
    pub(crate) returns: i64,
}

/// Puts entries of a queue into the spill.
///
/// # Errors
/// When the database did not answer: they may be there nevertheless.
pub(crate) async fn put(
    database: &Database,
    queue: &str,
    entries: &[Aside],
) -> Result<(), DatabaseError> {
    let workspaces: Vec<Uuid> = entries.iter().map(|one| one.workspace).collect();
    let kinds: Vec<MessageType> = entries.iter().map(|one| kind(&one.alone)).collect();
    let bodies: Vec<&[u8]> = entries.iter().map(|one| &one.alone.body[..]).collect();
    let takes: Vec<i64> = entries.iter().map(|one| one.returns).collect();
    let key = queue.strip_prefix(EXCHANGE).unwrap_or(queue);
    let key = key.trim_start_matches('.');
    put_aside(database, &workspaces, key, &kinds, &bodies, &takes).await
}

/// What Letterbox did not write is malformed whatever its type says.
fn kind(alone: &Alone) -> MessageType {
    let kind = alone.properties.kind().as_ref();
    let kind = kind.and_then(|kind| kind.as_str().parse().ok());
    kind.unwrap_or(MessageType::WebhookDeliveries)
}
