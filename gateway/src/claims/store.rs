//! The statements behind claims, the same for every kind of claim. Each serves a whole batch.
//!
//! Keys are sorted within a statement, so that two batches can't wait for each other in a circle.
//! Claims are durable when they return.

use std::collections::{BTreeSet, HashMap};

use letterbox_common::ids::WorkspaceId;
use letterbox_database::{DatabaseError, Statement};
use uuid::Uuid;

use super::{ClaimKey, Claimed, Claims, KeyState};
use crate::open_batches::BatchId;

/// The statements of one kind of claim.
#[derive(Debug, Clone, Copy)]
pub struct ClaimStatements {
    /// Opens batches and claims what has no row yet. Keys whose door is gone, and rows that exist,
    /// are not returned. Closes, on the way, batches that are known to be confirmed.
    pub(super) claim_new: &'static Statement,
    /// For what `claim_new` did not return: says why, and takes over what is open with its lease
    /// over. A statement of its own, because only a new one sees a row that was committed while
    /// `claim_new` waited for it.
    pub(super) claim_known: &'static Statement,
    /// What is known of one key.
    pub(super) find_claim: &'static Statement,
}

impl ClaimStatements {
    pub(super) fn all(self) -> [&'static Statement; 3] {
        [self.claim_new, self.claim_known, self.find_claim]
    }
}

/// The statements over `table`. `door` is the type of a door's key, `door_row` what a wanted key is
/// joined with to find that its door is open.
macro_rules! claim_statements {
    (name: $name:literal, table: $table:literal, id: $id:literal, door: $door:literal,
     door_row: $door_row:literal,) => {
        ClaimStatements {
            claim_new: &letterbox_database::Statement {
                name: concat!("claim_new_", $name),
                sql: concat!(
                    "
WITH closed AS (
    DELETE FROM open_batches WHERE batch_id = ANY ($9)
), opened AS (
    INSERT INTO open_batches (batch_id, lease_until)
    SELECT batch_id, clock_timestamp() + $8::float8 * interval '1 second'
    FROM unnest($7::bigint[]) AS batch (batch_id)
)
INSERT INTO ", $table, " (batch_id, workspace_id, key_high, key_low, ", $id, ")
SELECT wanted.batch_id, wanted.workspace_id, wanted.key_high, wanted.key_low, wanted.id
FROM unnest($1::bigint[], $2::uuid[], $3::uuid[], $4::uuid[], $5::", $door, "[], $6::uuid[])
     AS wanted (batch_id, workspace_id, key_high, key_low, door, id)
JOIN ", $door_row, "
ORDER BY wanted.workspace_id, wanted.key_high, wanted.key_low
ON CONFLICT DO NOTHING
RETURNING ", $id, " AS id"
                ),
            },
            claim_known: &letterbox_database::Statement {
                name: concat!("claim_known_", $name),
                sql: concat!(
                    "
WITH known AS (
    SELECT wanted.ordinal, wanted.batch_id, wanted.workspace_id, wanted.key_high, wanted.key_low,
           d.batch_id AS held_in, d.", $id, " AS id,
           b.batch_id IS NULL OR b.spilled_at IS NOT NULL OR d.batch_id = ANY ($6) AS settled,
           b.lease_until <= clock_timestamp() AS lease_is_over
    FROM unnest($1::bigint[], $2::uuid[], $3::uuid[], $4::uuid[], $5::", $door, "[])
         WITH ORDINALITY AS wanted (batch_id, workspace_id, key_high, key_low, door, ordinal)
    JOIN ", $door_row, "
    LEFT JOIN ", $table, " d ON d.workspace_id = wanted.workspace_id
        AND d.key_high = wanted.key_high AND d.key_low = wanted.key_low
    LEFT JOIN open_batches b ON b.batch_id = d.batch_id
), free AS (
    SELECT known.batch_id, d.workspace_id, d.key_high, d.key_low
    FROM known JOIN ", $table, " d ON d.workspace_id = known.workspace_id
        AND d.key_high = known.key_high AND d.key_low = known.key_low
        AND d.batch_id = known.held_in
    WHERE NOT known.settled AND known.lease_is_over
    FOR UPDATE OF d SKIP LOCKED
), taken AS (
    UPDATE ", $table, " d SET batch_id = free.batch_id FROM free
    WHERE d.workspace_id = free.workspace_id
      AND d.key_high = free.key_high AND d.key_low = free.key_low
    RETURNING d.workspace_id, d.key_high, d.key_low
)
SELECT known.ordinal, known.id, known.settled, taken.key_high IS NOT NULL AS taken
FROM known LEFT JOIN taken ON taken.workspace_id = known.workspace_id
    AND taken.key_high = known.key_high AND taken.key_low = known.key_low"
                ),
            },
            find_claim: &letterbox_database::Statement {
                name: concat!("find_claim_in_", $name),
                sql: concat!(
                    "
SELECT b.batch_id IS NULL OR b.spilled_at IS NOT NULL OR d.batch_id = ANY ($4) AS settled,
       coalesce(b.lease_until > clock_timestamp(), false) AS in_progress
FROM ", $table, " d LEFT JOIN open_batches b ON b.batch_id = d.batch_id
WHERE d.workspace_id = $1 AND d.key_high = $2 AND d.key_low = $3"
                ),
            },
        }
    };
}
pub(super) use claim_statements;

/// A key that shall be claimed into a batch.
pub(super) struct Wanted<K: ClaimKey> {
    key: K,
    batch: BatchId,
    halves: (Uuid, Uuid),
    /// Used if the key has no id yet.
    id: K::Id,
}

impl<K: ClaimKey> Wanted<K> {
    pub(super) fn new(key: K, batch: BatchId) -> Self {
        Self {
            key,
            batch,
            halves: key.key_hash().halves(),
            id: K::generate_id(),
        }
    }
}

/// What is wanted, by column.
struct Columns<'a, K: ClaimKey> {
    batches: Vec<BatchId>,
    workspaces: Vec<WorkspaceId>,
    highs: Vec<Uuid>,
    lows: Vec<Uuid>,
    doors: Vec<K::Door<'a>>,
}

impl<'a, K: ClaimKey> Columns<'a, K> {
    fn of(wanted: impl Iterator<Item = &'a Wanted<K>>) -> Self {
        let mut columns = Self {
            batches: vec![],
            workspaces: vec![],
            highs: vec![],
            lows: vec![],
            doors: vec![],
        };
        for Wanted {
            key, batch, halves, ..
        } in wanted
        {
            columns.batches.push(*batch);
            columns.workspaces.push(key.workspace());
            columns.highs.push(halves.0);
            columns.lows.push(halves.1);
            columns.doors.push(key.door());
        }
        columns
    }
}

impl Claims {
    /// Claims what has no row. One answer for each that was wanted, none where there is none yet.
    pub(super) async fn claim_new<K: ClaimKey>(
        &self,
        wanted: &[Wanted<K>],
    ) -> Result<Vec<Option<Claimed<K::Id>>>, DatabaseError> {
        let columns = Columns::of(wanted.iter());
        let ids: Vec<K::Id> = wanted.iter().map(|wanted| wanted.id).collect();
        let opened: BTreeSet<BatchId> = columns.batches.iter().copied().collect();
        let opened: Vec<BatchId> = opened.into_iter().collect();
        let closing = self.settlements.take_confirmed();
        let lease = self.lease.as_secs_f64();
        let rows = self
            .database
            .query(
                K::STATEMENTS.claim_new,
                &[
                    /* $1 batch_id */ &columns.batches,
                    /* $2 workspace_id */ &columns.workspaces,
                    /* $3 key_high */ &columns.highs,
                    /* $4 key_low */ &columns.lows,
                    /* $5 door */ &columns.doors,
                    /* $6 id */ &ids,
                    /* $7 opened */ &opened,
                    /* $8 lease_seconds */ &lease,
                    /* $9 closed */ &closing.ids(),
                ],
            )
            .await?;
        closing.are_closed();
        let places: HashMap<K::Id, usize> = ids.into_iter().zip(0..).collect();
        let mut claimed = vec![None; wanted.len()];
        for row in &rows {
            let id = row.try_get("id")?;
            claimed[places[&id]] = Some(Claimed::Held(id));
        }
        Ok(claimed)
    }

    /// Says of each, in their order, why it could not be claimed anew, or takes it over.
    pub(super) async fn claim_known<K: ClaimKey>(
        &self,
        wanted: Vec<&Wanted<K>>,
    ) -> Result<Vec<Claimed<K::Id>>, DatabaseError> {
        let columns = Columns::of(wanted.iter().copied());
        let rows = self
            .database
            .query(
                K::STATEMENTS.claim_known,
                &[
                    /* $1 batch_id */ &columns.batches,
                    /* $2 workspace_id */ &columns.workspaces,
                    /* $3 key_high */ &columns.highs,
                    /* $4 key_low */ &columns.lows,
                    /* $5 door */ &columns.doors,
                    /* $6 confirmed */ &self.settlements.confirmed(),
                ],
            )
            .await?;
        // A key that is not returned has no door.
        let mut claimed = vec![Claimed::Gone; wanted.len()];
        for row in &rows {
            let ordinal: i64 = row.try_get("ordinal")?;
            let (id, settled, taken) = (
                row.try_get("id")?,
                row.try_get("settled")?,
                row.try_get("taken")?,
            );
            claimed[ordinal as usize - 1] = match (id, settled, taken) {
                (Some(id), _, true) => Claimed::Held(id),
                (Some(_), true, false) => Claimed::Duplicate,
                _ => Claimed::InProgress,
            };
        }
        Ok(claimed)
    }

    /// What is known of one key.
    ///
    /// # Errors
    /// When the database did not answer.
    pub(crate) async fn find<K: ClaimKey>(&self, key: K) -> Result<KeyState, DatabaseError> {
        let (high, low) = key.key_hash().halves();
        let row = self
            .database
            .query_opt(
                K::STATEMENTS.find_claim,
                &[
                    /* $1 workspace_id */ &key.workspace(),
                    /* $2 key_high */ &high,
                    /* $3 key_low */ &low,
                    /* $4 confirmed */ &self.settlements.confirmed(),
                ],
            )
            .await?;
        let Some(row) = row else {
            return Ok(KeyState::New);
        };
        Ok(
            match (row.try_get("settled")?, row.try_get("in_progress")?) {
                (true, _) => KeyState::Recorded,
                (false, true) => KeyState::InProgress,
                (false, false) => KeyState::New,
            },
        )
    }
}
