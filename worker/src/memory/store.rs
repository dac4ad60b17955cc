//! The statements of the mover. What they write is written by functions of the database, each of
//! which does nothing if another mover was faster.

use std::time::Duration;

use letterbox_common::states::{MovedClaims, SegmentState};
use letterbox_database::{Database, DatabaseError, FromRow, statements};
use tokio_postgres::types::ToSql;

use super::segment::{Input, Place, Row};

statements! {
    /// The segments of the memory.
    SEGMENTS = memory_segments "
SELECT segment, state, source, merged_into, next_workspace, next_key, keys,
       version
FROM memory_segments ORDER BY segment";

    /// What is remembered, and about how many claims there are.
    MEMORY_SIZE = memory_size "
SELECT keys, segments, bytes, deliveries, submissions FROM memory_size";

    /// The halves of the claims; first those that were filled for longest.
    HALVES = claim_halves "
SELECT source, claims, carried, has_other, seconds FROM claim_sizes
ORDER BY seconds DESC";

    /// The claims of deliveries that follow a key in the half that is not filled, and whether they
    /// are stored as signals. What was stored once counts for ever.
    READ_DELIVERIES = read_delivery_claims "
SELECT d.workspace_id, d.key_high,
       (SELECT true FROM signals s
        WHERE s.workspace_id = d.workspace_id AND s.signal_id = d.delivery_id) IS TRUE
           AS is_stored
FROM webhook_deliveries d
WHERE d.half = (SELECT 3 - filled FROM claim_halves WHERE source = 'deliveries')
  AND (d.workspace_id, d.key_high) > ($1, $2)
ORDER BY d.workspace_id, d.key_high LIMIT $3";

    /// The same for submissions, by their runs.
    READ_SUBMISSIONS = read_submission_claims "
SELECT c.workspace_id, c.key_high,
       (SELECT true FROM runs r
        WHERE r.workspace_id = c.workspace_id AND r.run_id = c.submission_id) IS TRUE
    OR (SELECT true FROM erased_runs e
        WHERE e.workspace_id = c.workspace_id AND e.run_id = c.submission_id) IS TRUE
           AS is_stored
FROM form_submissions c
WHERE c.half = (SELECT 3 - filled FROM claim_halves WHERE source = 'submissions')
  AND (c.workspace_id, c.key_high) > ($1, $2)
ORDER BY c.workspace_id, c.key_high LIMIT $3";

    /// From now on, claims are made in the other half.
    CHANGE_HALVES = change_halves "SELECT change_halves($1) AS is_done";

    /// Rows of a segment: the last one before a key, and those that follow.
    READ_ROWS = read_memory "
(SELECT true AS is_before, m.workspace_id, m.keys FROM memory m
 WHERE m.segment = $1 AND (m.workspace_id, m.first_key) < ($2, $3)
 ORDER BY m.workspace_id DESC, m.first_key DESC LIMIT 1)
UNION ALL
(SELECT false, m.workspace_id, m.keys FROM memory m
 WHERE m.segment = $1 AND (m.workspace_id, m.first_key) >= ($2, $3)
 ORDER BY m.workspace_id, m.first_key LIMIT $4)";

    /// Takes an empty segment to move claims into, or to merge others into.
    BEGIN_SEGMENT = begin_segment "SELECT begin_segment($1, $2) AS segment";

    /// Writes the rows that follow, carries claims over, and says where to go on.
    EXTEND_SEGMENT = extend_segment "
SELECT extend_segment($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) AS is_done";

    /// Empties the half that was copied into a segment.
    EMPTY_HALF = empty_half "SELECT empty_half($1, $2) AS is_done";

    /// Empties a segment that was replaced.
    EMPTY_SEGMENT = empty_segment "SELECT empty_segment($1, $2) AS is_done";
}

/// A segment, as `memory_segments` describes it.
#[derive(Debug, Clone, FromRow)]
pub(super) struct Segment {
    pub(super) segment: i16,
    pub(super) state: SegmentState,
    pub(super) source: Option<MovedClaims>,
    pub(super) merged_into: Option<i16>,
    next_workspace: Option<uuid::Uuid>,
    next_key: Option<uuid::Uuid>,
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

/// The segments.
pub(super) async fn segments(database: &Database) -> Result<Vec<Segment>, DatabaseError> {
    database.fetch_all(&SEGMENTS, &[]).await
}

/// The halves of the claims of one kind.
#[derive(Clone, Copy, FromRow)]
pub(super) struct Halves {
    pub(super) source: MovedClaims,
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

/// The halves of the claims of each kind; first those that were filled for longest.
pub(super) async fn halves(database: &Database) -> Result<Vec<Halves>, DatabaseError> {
    database.fetch_all(&HALVES, &[]).await
}

/// From now on, claims are made in the other half. Returns `false` if that is not empty, or if this
/// is to be tried again.
pub(super) async fn change_halves(
    database: &Database,
    source: MovedClaims,
) -> Result<bool, DatabaseError> {
    let source = source.as_str();
    is_done(&database.query_one(&CHANGE_HALVES, &[&source]).await?)
}

/// About how many claims there are.
#[derive(Default, FromRow)]
pub(super) struct Claims {
    pub(super) deliveries: i64,
    pub(super) submissions: i64,
}

/// What the memory holds, and about how many claims are not in it.
#[derive(Default, FromRow)]
pub(super) struct Size {
    pub(super) keys: i64,
    /// Those that are looked up.
    pub(super) segments: i64,
    pub(super) bytes: i64,
    #[row(flatten)]
    pub(super) claims: Claims,
}

/// What the memory holds.
pub(super) async fn size(database: &Database) -> Result<Size, DatabaseError> {
    database.fetch_one(&MEMORY_SIZE, &[]).await
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
    source: MovedClaims,
    after: Place,
    most: i64,
) -> Result<ReadClaims, DatabaseError> {
    let (workspace, key) = after;
    let statement = match source {
        MovedClaims::Deliveries => &READ_DELIVERIES,
        MovedClaims::Submissions => &READ_SUBMISSIONS,
    };
    let values: [&(dyn ToSql + Sync); 3] = [&workspace, &key, &most];
    let rows = database.query(statement, &values).await?;
    let (mut stored, mut others) = (Vec::with_capacity(rows.len()), vec![]);
    let mut last = None;
    for row in &rows {
        let place = (row.try_get("workspace_id")?, row.try_get("key_high")?);
        last = Some(place);
        let is_stored = row.try_get("is_stored")?;
        if is_stored { &mut stored } else { &mut others }.push(place);
    }
    let is_end = (rows.len() as i64) < most;
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
    let found = database
        .query(&READ_ROWS, &[&segment, &workspace, &key, &most])
        .await?;
    let mut rows = Vec::with_capacity(found.len());
    let mut following = 0;
    for row in &found {
        following += i64::from(!row.try_get::<_, bool>("is_before")?);
        rows.push((row.try_get("workspace_id")?, row.try_get("keys")?));
    }
    rows.sort();
    Ok(Input {
        rows,
        is_complete: following < most,
    })
}

/// Takes an empty segment to move claims into, or to merge segments into. Returns whether there was
/// one.
pub(super) async fn begin(
    database: &Database,
    moved: Option<MovedClaims>,
    merged: &[i16],
) -> Result<bool, DatabaseError> {
    let moved = moved.map(MovedClaims::as_str);
    let begun = database
        .query_one(
            &BEGIN_SEGMENT,
            &[/* $1 moved */ &moved, /* $2 merged */ &merged],
        )
        .await?;
    Ok(begun.try_get::<_, Option<i16>>("segment")?.is_some())
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
    let (mut workspaces, mut first_keys) = (vec![], vec![]);
    let (mut filters, mut lists) = (vec![], vec![]);
    for row in rows {
        workspaces.push(row.workspace);
        first_keys.push(row.first_key);
        filters.push(row.filter);
        lists.push(row.keys);
    }
    let (carried_workspaces, carried_keys): (Vec<_>, Vec<_>) = carried.into_iter().unzip();
    let (next_workspace, next_key) = next.unzip();
    database
        .query_one(
            &EXTEND_SEGMENT,
            &[
                /* $1 segment */ &segment.segment,
                /* $2 read_version */ &segment.version,
                /* $3 workspaces */ &workspaces,
                /* $4 first_keys */ &first_keys,
                /* $5 filters */ &filters,
                /* $6 lists */ &lists,
                /* $7 carried_workspaces */ &carried_workspaces,
                /* $8 carried_keys */ &carried_keys,
                /* $9 to_workspace */ &next_workspace,
                /* $10 to_key */ &next_key,
            ],
        )
        .await
        .map(drop)
}

/// Empties the half whose claims were copied into a segment so long ago, or the segment if it was
/// replaced, unless somebody may still need it. Returns whether it did.
pub(super) async fn empty(
    database: &Database,
    segment: &Segment,
    after: Duration,
) -> Result<bool, DatabaseError> {
    let statement = match segment.state {
        SegmentState::Copied => &EMPTY_HALF,
        _ => &EMPTY_SEGMENT,
    };
    let values: [&(dyn ToSql + Sync); 2] = [&segment.segment, &after.as_secs_f64()];
    is_done(&database.query_one(statement, &values).await?)
}

fn is_done(told: &tokio_postgres::Row) -> Result<bool, DatabaseError> {
    Ok(told.try_get("is_done")?)
}
