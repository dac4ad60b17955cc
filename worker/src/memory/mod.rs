//! The memory of what was recorded long ago: moves recorded claims into segments, and merges
//! segments. The protocol is in `gateway/src/acceptance/README.md`.
//!
//! A mover does one step after the other. What is to be done next stands in the database alone, so
//! a mover may die anywhere, and another one goes on; two at once only do the same work.

pub mod segment;
mod store;

use std::time::{Duration, Instant};

use jiff::Timestamp;
use letterbox_common::{
    ids::RunId,
    states::{
        MovedClaims,
        SegmentState::{Clearing, Copied, Copying, Merging, Ready, Retired},
    },
};
use letterbox_database::{Database, DatabaseError};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

pub(crate) use self::store::STATEMENTS;
use self::store::{Segment, Size};
use crate::{metrics, waiting};

/// Claims that are moved when there are so many: a smaller table is fast enough, and what is moved
/// in larger pieces is written less often.
const MOVED_CLAIMS: i64 = 2_000_000;
/// How long the claim of a submission stays at least.
const KEPT_SUBMISSIONS: Duration = Duration::from_secs(24 * 3600);
/// Time between two moves, in which the server's statistics notice the first.
const MOVE_EVERY: Duration = Duration::from_secs(60);
/// How long a replaced segment stays at least.
const EMPTIED_AFTER: Duration = Duration::from_secs(60);
/// Time between two looks when there is nothing to do.
const EVERY: Duration = Duration::from_secs(5);
/// Time between two refreshes of the gauges.
const TELL_EVERY: Duration = Duration::from_secs(15);
/// A step's time, so many times, belongs to the others before the next step.
const REST: u32 = 3;

/// Claims that one step reads.
const CLAIMS: i64 = 48_000;
/// Rows of each segment that one step merges.
const MERGED_ROWS: i64 = 128;
/// Rows whose claims one step deletes.
const CLEARED_ROWS: i32 = 32;
/// By what a step's size is divided at most: to merge takes two rows of each segment.
const MAX_DIVISOR: i32 = 64;

/// Moves recorded claims into the memory.
pub struct Mover {
    database: Database,
    moved_claims: i64,
    kept_submissions: Duration,
    move_every: Duration,
    emptied_after: Duration,
    moved_at: [Option<Instant>; 2],
    moves_first: bool,
    divisor: i32,
}

impl Mover {
    /// Creates a mover.
    #[must_use]
    pub fn new(database: Database) -> Self {
        Self {
            database,
            moved_claims: MOVED_CLAIMS,
            kept_submissions: KEPT_SUBMISSIONS,
            move_every: MOVE_EVERY,
            emptied_after: EMPTIED_AFTER,
            moved_at: [None; 2],
            moves_first: false,
            divisor: 1,
        }
    }

    /// One that moves whatever is recorded, and empties whatever is replaced, at once.
    #[must_use]
    pub fn eager(database: Database) -> Self {
        Self {
            moved_claims: 0,
            kept_submissions: Duration::ZERO,
            move_every: Duration::ZERO,
            emptied_after: Duration::ZERO,
            ..Self::new(database)
        }
    }

    /// The same, but keeps the claims of submissions for so long.
    #[must_use]
    pub fn keeping(self, kept_submissions: Duration) -> Self {
        Self {
            kept_submissions,
            ..self
        }
    }

    /// Moves, merges and tells what there is until `stop`, while this is the worker that has been
    /// alive for longest.
    pub(crate) async fn keep(mut self, worker: Uuid, stop: CancellationToken) {
        let moving = async {
            let mut told: Option<Instant> = None;
            loop {
                // The database crate logs failures.
                let is_oldest = waiting::is_oldest(&self.database, worker).await;
                let mut has_work = matches!(is_oldest, Ok(true));
                if !has_work {
                    tell(&Size::default());
                }
                while has_work {
                    if told.is_none_or(|told| told.elapsed() > TELL_EVERY) {
                        told = Some(Instant::now());
                        self.tell().await;
                    }
                    let began = Instant::now();
                    has_work = matches!(self.step().await, Ok(true));
                    tokio::time::sleep(began.elapsed() * REST).await;
                }
                tokio::time::sleep(EVERY).await;
            }
        };
        stop.run_until_cancelled(moving).await;
    }

    /// Sets the gauges.
    async fn tell(&self) {
        if let Ok(size) = store::size(&self.database).await {
            tell(&size);
        }
    }

    /// Does the next step. Returns `false` if there is nothing to do. After an error the next steps
    /// are smaller, because this one may have exceeded the time limit.
    ///
    /// # Errors
    /// When the database did not answer.
    pub async fn step(&mut self) -> Result<bool, DatabaseError> {
        let done = self.next_step().await;
        match done {
            Ok(true) => {}
            Ok(false) => self.divisor = 1,
            Err(_) => self.divisor = (self.divisor * 2).min(MAX_DIVISOR),
        }
        done
    }

    async fn next_step(&mut self) -> Result<bool, DatabaseError> {
        let segments = store::segments(&self.database).await?;
        let of = |state| segments.iter().filter(move |one| one.state == state);
        for retired in of(Retired) {
            if store::empty(&self.database, retired.segment, self.emptied_after).await? {
                return Ok(true);
            }
        }
        if let Some(moved) = of(Copied).chain(of(Clearing)).next() {
            let rows = (CLEARED_ROWS / self.divisor).max(1);
            store::clear_claims(&self.database, moved.segment, rows).await?;
            return Ok(true);
        }
        if let Some((copied, source)) = of(Copying).find_map(|one| Some((one, one.source?))) {
            self.copy(copied, source).await?;
            return Ok(true);
        }
        // By turns, so that neither hinders the other.
        self.moves_first ^= true;
        if self.moves_first && self.begin_move().await? {
            return Ok(true);
        }
        let has_merged = self.merge_next(&segments).await?;
        Ok(has_merged || !self.moves_first && self.begin_move().await?)
    }

    /// Goes on with a merge, or begins one.
    async fn merge_next(&self, segments: &[Segment]) -> Result<bool, DatabaseError> {
        let of = |state| segments.iter().filter(move |one| one.state == state);
        // The smallest first: it is over soon, and none waits for another.
        let inputs = |into| {
            let is_input = move |one: &&Segment| one.merged_into == Some(into);
            segments.iter().filter(is_input)
        };
        let size = |into| inputs(into).map(Segment::keys).sum::<u64>();
        if let Some(merged) = of(Merging).min_by_key(|one| size(one.segment)) {
            self.merge(merged, inputs(merged.segment)).await?;
            return Ok(true);
        }
        let free = of(Ready).filter(|one| one.merged_into.is_none());
        let sizes: Vec<_> = free.map(|one| (one.segment, one.keys())).collect();
        let merged = segment::to_merge(&sizes);
        Ok(!merged.is_empty() && store::begin(&self.database, None, &merged).await?)
    }

    /// Begins to move claims, where there are many. Those that were last moved longer ago go first.
    async fn begin_move(&mut self) -> Result<bool, DatabaseError> {
        let rests = |at: &Option<Instant>| at.is_some_and(|at| at.elapsed() < self.move_every);
        if self.moved_at.iter().all(rests) {
            return Ok(false);
        }
        let claims = store::count_claims(&self.database).await?;
        let counts = [
            (MovedClaims::Deliveries, claims.deliveries),
            (MovedClaims::Submissions, claims.submissions),
        ];
        let mut kinds = Vec::from_iter(counts.into_iter().zip(&mut self.moved_at));
        kinds.sort_by_key(|(_, moved_at)| **moved_at);
        for ((source, claims), moved_at) in kinds {
            let rests = moved_at.is_some_and(|at| at.elapsed() < self.move_every);
            if claims >= self.moved_claims && !rests {
                *moved_at = Some(Instant::now());
                if store::begin(&self.database, Some(source), &[]).await? {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Copies the recorded ones of the next claims.
    async fn copy(&self, into: &Segment, source: MovedClaims) -> Result<(), DatabaseError> {
        let kept = Timestamp::now().as_millisecond().unsigned_abs();
        let kept = kept.saturating_sub(self.kept_submissions.as_millis() as u64);
        let younger = RunId::earliest_at(kept);
        let most = CLAIMS / i64::from(self.divisor);
        let (next, places) =
            store::read_claims(&self.database, source, into.next(), most, younger).await?;
        store::extend(&self.database, into, segment::rows(&places), next).await
    }

    /// Merges what comes next in some segments.
    async fn merge(
        &self,
        into: &Segment,
        segments: impl Iterator<Item = &Segment>,
    ) -> Result<(), DatabaseError> {
        let mut inputs = Vec::new();
        for one in segments {
            let most = MERGED_ROWS / i64::from(self.divisor);
            let read = store::read_rows(&self.database, one.segment, into.next(), most);
            inputs.push(read.await?);
        }
        let (places, next) = segment::merge(into.next(), &inputs);
        drop(inputs);
        store::extend(&self.database, into, segment::rows(&places), next).await
    }
}

fn tell(size: &Size) {
    let kinds = [
        (MovedClaims::Deliveries, size.claims.deliveries),
        (MovedClaims::Submissions, size.claims.submissions),
    ];
    for (kind, claims) in kinds {
        metrics::CLAIMS.set_under([kind.as_str()], claims as f64);
    }
    metrics::REMEMBERED.set(size.keys as f64);
    metrics::MEMORY_SEGMENTS.set(size.segments as f64);
    metrics::MEMORY_BYTES.set(size.bytes as f64);
}
