//! The statements of the mover. What they write is written by functions of the database, each of
//! which does nothing if another mover was faster.

use std::time::Duration;

use letterbox_common::states::{ClaimKind, SegmentState};
use letterbox_database::{Database, DatabaseError, FromRow, statements};
use uuid::Uuid;

use super::segment::{Input, Place, Row};

statements! {
    /// The segments of the memory.
    pub(super) fn memory_segments() -> Vec<Segment> = "
SELECT segment, state, source, merged_into, next_workspace, next_key, keys,
       version
FROM memory_segments ORDER BY segment";

    /// What is remembered, and about how many claims there are.
    pub(super) fn memory_size() -> Size = "
SELECT keys, segments, bytes, deliveries, submissions FROM memory_size";

    /// The halves of the claims; first those that were filled for longest.
    pub(super) fn claim_halves() -> Vec<Halves> = "
SELECT source, claims, carried, has_other, seconds FROM claim_sizes
ORDER BY seconds DESC";

    /// The claims of a kind that follow a key in the half that is not filled, and whether they are
    /// stored as signals or runs. What was stored once counts for ever.
    fn read_following(
        kind: ClaimKind, workspace: Uuid, key: Uuid, most: i64,
    ) -> Vec<ReadClaim> = "
SELECT c.workspace_id, c.key_high, CASE $1 WHEN 'deliveries' THEN
       (SELECT true FROM signals s
        WHERE s.workspace_id = c.workspace_id AND s.signal_id = c.claim_id) IS TRUE
  ELSE (SELECT true FROM runs r
        WHERE r.workspace_id = c.workspace_id AND r.run_id = c.claim_id) IS TRUE
    OR (SELECT true FROM erased_runs e
        WHERE e.workspace_id = c.workspace_id AND e.run_id = c.claim_id) IS TRUE
  END AS is_stored
FROM claims c
WHERE c.half = (SELECT other FROM claim_halves WHERE source = $1)
  AND (c.workspace_id, c.key_high) > ($2, $3)
ORDER BY c.workspace_id, c.key_high LIMIT $4";

    /// From now on, claims are made in the other half. `false` if that is not empty, or if this is
    /// to be tried again.
    pub(super) fn change_halves(source: ClaimKind) -> (bool,) = "
SELECT change_halves($1) AS is_done";

    /// Rows of a segment: the last one before a key, and those that follow.
    fn read_memory(segment: i16, workspace: Uuid, key: Uuid, most: i64) -> Vec<ReadRow> = "
(SELECT true AS is_before, m.workspace_id, m.keys FROM memory m
 WHERE m.segment = $1 AND (m.workspace_id, m.first_key) < ($2, $3)
 ORDER BY m.workspace_id DESC, m.first_key DESC LIMIT 1)
UNION ALL
(SELECT false, m.workspace_id, m.keys FROM memory m
 WHERE m.segment = $1 AND (m.workspace_id, m.first_key) >= ($2, $3)
 ORDER BY m.workspace_id, m.first_key LIMIT $4)";

    /// Takes an empty segment to move claims into, or to merge others into; `false` if there is
    /// none.
    pub(super) fn begin_segment(moved: Option<ClaimKind>, merged: &[i16]) -> (bool,) = "
SELECT begin_segment($1, $2) IS NOT NULL AS is_done";

    /// Writes the rows that follow, carries claims over, and says where to go on.
    fn extend_segment(
        segment: i16, read_version: i64, workspaces: &[Uuid], first_keys: &[Uuid],
        filters: &[Vec<u8>], lists: &[Vec<u8>], carried_workspaces: &[Uuid], carried_keys: &[Uuid],
        to_workspace: Option<Uuid>, to_key: Option<Uuid>,
    ) = "
SELECT extend_segment($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) AS is_done";

    /// Empties the half that was copied into a segment so long ago, unless somebody may still need
    /// it.
    pub(super) fn empty_half(segment: i16, after_seconds: f64) -> (bool,) = "
SELECT empty_half($1, $2) AS is_done";

    /// The same for a segment that was replaced.
    pub(super) fn empty_segment(segment: i16, after_seconds: f64) -> (bool,) = "
SELECT empty_segment($1, $2) AS is_done";
}

/// A segment, as `memory_segments` describes it.
#[derive(Debug, Clone, FromRow)]
pub(super) struct Segment {
    pub(super) segment: i16,
    pub(super) state: SegmentState,
    pub(super) source: Option<ClaimKind>,
    pub(super) merged_into: Option<i16>,
    next_workspace: Option<Uuid>,
    next_key: Option<Uuid>,
    keys: i64,
    version: i64,
}

impl Segment {
    /// Where writing goes on; the start if it has not begun.
    pub(super) fn next(&self) -> Place {
        (
            self.next_workspace.unwrap_or_default(),
            self.next_key.unwrap_or_default(),
        )
    }

    /// The number of keys in it.
    pub(super) fn keys(&self) -> u64 {
        self.keys.unsigned_abs()
    }
}

/// The halves of the claims of one kind.
#[derive(Clone, Copy, FromRow)]
pub(super) struct Halves {
    pub(super) source: ClaimKind,
    /// About how many claims the half has in which they are made.
    pub(super) claims: i64,
    /// How many of them were carried over.
    pub(super) carried: i64,
    /// Whether there are claims in the other one.
    pub(super) has_other: bool,
    seconds: f64,
}

impl Halves {
    /// Whether all claims in the other half are so old.
    pub(super) fn are_older(&self, age: Duration) -> bool {
        self.seconds >= age.as_secs_f64()
    }
}

/// What the memory holds, and what it does not.
#[derive(Default, FromRow)]
pub(super) struct Size {
    pub(super) keys: i64,
    /// Those that are looked up.
    pub(super) segments: i64,
    pub(super) bytes: i64,
    /// About how many claims are not in it.
    pub(super) deliveries: i64,
    pub(super) submissions: i64,
}

/// A claim of the half that is to be moved.
#[derive(FromRow)]
struct ReadClaim {
    workspace_id: Uuid,
    key_high: Uuid,
    is_stored: bool,
}

#[derive(FromRow)]
struct ReadRow {
    is_before: bool,
    workspace_id: Uuid,
    keys: Vec<u8>,
}

/// Claims of the half that is to be moved.
pub(super) struct ReadClaims {
    pub(super) stored: Vec<Place>,
    pub(super) others: Vec<Place>,
    /// Where they end; `None` if no more follow.
    pub(super) next: Option<Place>,
}

/// Claims that follow a place.
pub(super) async fn read_claims(
    database: &Database,
    source: ClaimKind,
    after: Place,
    most: i64,
) -> Result<ReadClaims, DatabaseError> {
    let (workspace, key) = after;
    let claims = read_following(database, source, workspace, key, most).await?;
    let place = |one: &ReadClaim| (one.workspace_id, one.key_high);
    let last = claims.last().map(place);
    let is_end = claims.len() < most as usize;
    let of = |is_stored| claims.iter().filter(move |one| one.is_stored == is_stored);
    let mut stored: Vec<Place> = of(true).map(place).collect();
    let others = of(false).map(place).collect();
    stored.dedup();
    Ok(ReadClaims {
        stored,
        others,
        next: last.filter(|_| !is_end),
    })
}

/// What a segment has from a place on: `most` rows, and the one before them.
pub(super) async fn read_rows(
    database: &Database,
    segment: i16,
    from: Place,
    most: i64,
) -> Result<Input, DatabaseError> {
    let (workspace, key) = from;
    let found = read_memory(database, segment, workspace, key, most).await?;
    let following = found.iter().filter(|row| !row.is_before).count();
    let rows = found.into_iter().map(|row| (row.workspace_id, row.keys));
    let mut rows: Vec<_> = rows.collect();
    rows.sort();
    Ok(Input {
        rows,
        is_complete: following < most as usize,
    })
}

/// Writes rows into a segment, and carries claims over into the half that is filled, unless it was
/// written since it was read. `next` is where to go on; `None` ends the segment.
pub(super) async fn extend(
    database: &Database,
    segment: &Segment,
    rows: Vec<Row>,
    carried: Vec<Place>,
    next: Option<Place>,
) -> Result<(), DatabaseError> {
    let columns = rows.into_iter();
    let columns = columns.map(|row| (row.workspace, row.first_key, row.filter, row.keys));
    let (workspaces, first_keys, filters, lists): (Vec<_>, Vec<_>, Vec<_>, Vec<_>) =
        columns.collect();
    let (carried_workspaces, carried_keys): (Vec<_>, Vec<_>) = carried.into_iter().unzip();
    let (next_workspace, next_key) = next.unzip();
    extend_segment(
        database,
        segment.segment,
        segment.version,
        &workspaces,
        &first_keys,
        &filters,
        &lists,
        &carried_workspaces,
        &carried_keys,
        next_workspace,
        next_key,
    )
    .await
}
