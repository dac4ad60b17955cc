//! The statements over the spill.

use letterbox_broker::{Alone, MessageType, ReceivedEntry, decode_alone, topology::EXCHANGE};
use letterbox_common::ids::WorkspaceId;
use letterbox_database::{
    Database, DatabaseError, FromRow, Row, RowError, Transaction, statements,
};
use uuid::Uuid;

/// How many bytes are put into the spill at once, unless it is one entry.
const MAX_PUT: usize = 16 << 20;

statements! {
    /// Workspaces that have something in the spill, in their order from $2 on, but those of $3.
    pub(crate) fn spilling_workspaces(
        most: i64, from: Uuid, but: &[WorkspaceId],
    ) -> Vec<(Uuid,)> = "
WITH RECURSIVE one (workspace_id) AS (
    (SELECT workspace_id FROM spilled_messages WHERE workspace_id >= $2
     ORDER BY workspace_id LIMIT 1)
    UNION ALL
    SELECT (SELECT s.workspace_id FROM spilled_messages s WHERE s.workspace_id > one.workspace_id
            ORDER BY s.workspace_id LIMIT 1)
    FROM one WHERE one.workspace_id IS NOT NULL
)
SELECT workspace_id FROM one
WHERE workspace_id IS NOT NULL AND workspace_id <> ALL ($3::uuid[]) LIMIT $1";

    /// Takes messages that no worker has, for $3 seconds: at most $2 of each workspace, those first
    /// that have waited longest since they were spilled or put off, and no more bytes than a worker
    /// may hold, however large what is not Letterbox's own.
    pub(crate) fn take_spilled(
        workspaces: &[Uuid], most: i64, seconds: f64,
    ) -> Vec<Spilled> = "
WITH due AS (
    SELECT s.* FROM unnest($1::uuid[]) AS of (workspace_id), LATERAL (
        SELECT d.workspace_id, d.spill_id, d.length, d.lease_until FROM spilled_messages d
        WHERE d.workspace_id = of.workspace_id AND lease_is_over(d.lease_until, $3)
        ORDER BY d.lease_until LIMIT $2 FOR UPDATE SKIP LOCKED) AS s
), page AS (
    SELECT *, sum(length) OVER (ORDER BY lease_until, spill_id) - length AS before FROM due
)
UPDATE spilled_messages s
SET lease_until = clock_timestamp() + $3::float8 * interval '1 second', takes = s.takes + 1
FROM page p
WHERE s.workspace_id = ANY (ARRAY[p.workspace_id]) AND s.spill_id = ANY (ARRAY[p.spill_id])
  AND p.before < 16 * 1024 * 1024
RETURNING s.spill_id AS id, s.takes - 1 AS returns, s.routing_key AS queue, s.message_type,
          s.body";

    /// Deletes messages in the transaction that stores what is in them.
    fn leave_spill(messages: &[i64]) -> u64 = "
DELETE FROM spilled_messages WHERE spill_id = ANY ($1)";

    /// Deletes the messages $1, of which there are dead letters, and puts off the messages $2 for
    /// $4 seconds, as taken $5 times, unless they have been taken since: returned $3 times, each.
    pub(crate) fn settle_spilled(
        over: &[i64], left: &[i64], returns: &[i64], seconds: f64, takes: i64,
    ) = "
WITH over AS (DELETE FROM spilled_messages WHERE spill_id = ANY ($1))
UPDATE spilled_messages s
SET lease_until = clock_timestamp() + $4::float8 * interval '1 second', takes = $5
FROM unnest($2::bigint[], $3::bigint[]) AS one (id, returns)
WHERE s.spill_id = ANY (ARRAY[one.id]) AND s.takes = one.returns + 1";

    /// Gives messages back that were not tried, as if they had not been taken, unless they have
    /// been taken since.
    pub(crate) fn give_back(messages: &[i64], returns: &[i64]) = "
UPDATE spilled_messages s SET lease_until = clock_timestamp(), takes = s.takes - 1
FROM unnest($1::bigint[], $2::bigint[]) AS one (id, returns)
WHERE s.spill_id = ANY (ARRAY[one.id]) AND s.takes = one.returns + 1";

    /// Puts entries of a queue into the spill, as taken so often.
    fn put_aside(
        workspaces: &[Uuid], batches: &[Option<i64>], routing_key: &str,
        message_types: &[Option<MessageType>], bodies: &[&[u8]], takes: &[i64],
    ) = "
INSERT INTO spilled_messages
    (workspace_id, batch_id, is_aside, routing_key, message_type, body, takes)
SELECT workspace_id, batch_id, true, $3, message_type, body, takes
FROM unnest($1::uuid[], $2::bigint[], $4::text[], $5::bytea[], $6::bigint[])
     AS new (workspace_id, batch_id, message_type, body, takes)";
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
    let kind: Option<MessageType> = row.try_get("message_type")?;
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
    /// The batch of its claim, as its message says.
    pub(crate) batch: Option<i64>,
    pub(crate) alone: Alone,
    /// How often it was returned to its queue.
    pub(crate) returns: i64,
}

/// How many of these entries, at least one, are put into the spill by one statement, which can't be
/// of any size.
pub(crate) fn that_fit(entries: &[Aside]) -> usize {
    let mut bytes = 0;
    let fits = |one: &&Aside| {
        bytes += one.alone.body.len();
        bytes <= MAX_PUT
    };
    entries.iter().take_while(fits).count().max(1)
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
    let batches: Vec<Option<i64>> = entries.iter().map(|one| one.batch).collect();
    let kinds: Vec<_> = entries.iter().map(|one| kind(&one.alone)).collect();
    let bodies: Vec<&[u8]> = entries.iter().map(|one| &one.alone.body[..]).collect();
    let takes: Vec<i64> = entries.iter().map(|one| one.returns).collect();
    let key = queue.strip_prefix(EXCHANGE).unwrap_or(queue);
    let key = key.trim_start_matches('.');
    put_aside(
        database,
        &workspaces,
        &batches,
        key,
        &kinds,
        &bodies,
        &takes,
    )
    .await
}

/// `None` if it is none of Letterbox's.
fn kind(alone: &Alone) -> Option<MessageType> {
    let kind = alone.properties.kind().as_ref()?;
    kind.as_str().parse().ok()
}
