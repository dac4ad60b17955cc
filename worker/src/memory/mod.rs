//! The memory of what was stored long ago: moves its claims into segments, and merges segments. The
//! protocol is in `gateway/src/acceptance/README.md`.
//!
//! A mover does one step after the other. What is to be done next stands in the database alone, so
//! a mover may die anywhere, and another one goes on; two at once only do the same work.

pub mod segment;
mod store;

use std::time::{Duration, Instant};

use letterbox_common::states::{
    ClaimKind,
    SegmentState::{Copied, Copying, Empty, Merging, Ready, Retired},
};
use letterbox_database::{Database, DatabaseError};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

pub(crate) use self::store::STATEMENTS;
use self::store::{Halves, Segment, Size};
use crate::{metrics, upkeep::waiting::is_oldest_worker};

/// Claims that are moved when there are so many: a smaller table is fast enough, and what is moved
/// in larger pieces is written less often.
const MOVED_CLAIMS: i64 = 500_000;
/// When deliveries are moved, so long after the last of them: most are stored by then.
const KEPT_DELIVERIES: Duration = Duration::from_secs(10);
/// The same for submissions: the payloads of their repeats are compared until then.
const KEPT_SUBMISSIONS: Duration = Duration::from_secs(24 * 3600);
/// How long what was copied or replaced stays at least.
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
/// Moves need so many empty segments. When there are fewer, segments are merged whatever their
/// sizes.
const FEW_EMPTY: usize = 3;
/// By what a step's size is divided at most: to merge takes two rows of each segment.
const MAX_DIVISOR: i64 = 64;

/// Moves claims into the memory.
pub struct Mover {
    database: Database,
    moved_claims: i64,
    kept_deliveries: Duration,
    kept_submissions: Duration,
    emptied_after: Duration,
    /// When emptying was last tried in vain: a table that is locked by others would be waited for
    /// by everybody, each time.
    emptied_in_vain: Option<Instant>,
    moves_first: bool,
    divisor: i64,
}

impl Mover {
    /// Creates a mover.
    pub fn new(database: Database) -> Self {
        Self {
            database,
            moved_claims: MOVED_CLAIMS,
            kept_deliveries: KEPT_DELIVERIES,
            kept_submissions: KEPT_SUBMISSIONS,
            emptied_after: EMPTIED_AFTER,
            emptied_in_vain: None,
            moves_first: false,
            divisor: 1,
        }
    }

    /// One that moves whatever is stored, and empties whatever is replaced, at once; but keeps the
    /// claims of submissions for so long.
    pub fn eager(database: Database, kept_submissions: Duration) -> Self {
        Self {
            moved_claims: 0,
            kept_deliveries: Duration::ZERO,
            kept_submissions,
            emptied_after: Duration::ZERO,
            ..Self::new(database)
        }
    }

    /// Moves, merges and tells what there is until `stop`, while this is the worker that has been
    /// alive for longest.
    pub(crate) async fn keep(mut self, worker: Uuid, stop: CancellationToken) {
        let moving = async {
            let mut told: Option<Instant> = None;
            loop {
                // The database crate logs failures.
                let is_oldest = is_oldest_worker(&self.database, worker).await;
                let mut has_work = matches!(is_oldest, Ok((true,)));
                if let Ok((false,)) = is_oldest {
                    tell(&Size::default());
                }
                while has_work {
                    if told.is_none_or(|told| told.elapsed() > TELL_EVERY) {
                        told = Some(Instant::now());
                        if let Ok(size) = store::memory_size(&self.database).await {
                            tell(&size);
                        }
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

    /// Does the next step. Returns `false` if there is nothing to do. After an error the next steps
    /// are smaller, because this one may have exceeded the time limit.
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
        let segments = store::memory_segments(&self.database).await?;
        let of = |state| segments.iter().filter(move |one| one.state == state);
        if self.empty(of(Copied).chain(of(Retired))).await? {
            return Ok(true);
        }
        let halves = store::claim_halves(&self.database).await?;
        for copying in of(Copying) {
            let source = halves.iter().find(|one| Some(one.source) == copying.source);
            if let Some(source) = source {
                self.copy(copying, source.source).await?;
                return Ok(true);
            }
        }
        // By turns, so that neither hinders the other.
        self.moves_first ^= true;
        if self.moves_first && self.begin_move(&halves, &segments).await? {
            return Ok(true);
        }
        let has_merged = self.merge_next(&segments).await?;
        Ok(has_merged || !self.moves_first && self.begin_move(&halves, &segments).await?)
    }

    /// Empties a half that was copied, or a segment that was replaced.
    async fn empty(
        &mut self,
        segments: impl Iterator<Item = &Segment>,
    ) -> Result<bool, DatabaseError> {
        let waits = |tried: Instant| tried.elapsed() < self.emptied_after / 2;
        if self.emptied_in_vain.is_some_and(waits) {
            return Ok(false);
        }
        for one in segments {
            let seconds = self.emptied_after.as_secs_f64();
            let (is_done,) = match one.state {
                Copied => store::empty_half(&self.database, one.segment, seconds).await?,
                _ => store::empty_segment(&self.database, one.segment, seconds).await?,
            };
            if is_done {
                return Ok(true);
            }
            self.emptied_in_vain = Some(Instant::now());
        }
        Ok(false)
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
        let empty = of(Empty).count();
        let merged = segment::to_merge(&sizes, empty < FEW_EMPTY);
        Ok(!merged.is_empty() && store::begin_segment(&self.database, None, &merged).await?.0)
    }

    /// Begins to move the claims of a half, or to fill the other one.
    async fn begin_move(
        &self,
        halves: &[Halves],
        segments: &[Segment],
    ) -> Result<bool, DatabaseError> {
        for claims in halves {
            let is_moved = segments.iter().any(|one| one.source == Some(claims.source));
            let kept = match claims.source {
                ClaimKind::Deliveries => self.kept_deliveries,
                ClaimKind::Submissions => self.kept_submissions,
            };
            let has_begun = if is_moved {
                false
            } else if claims.has_other {
                claims.are_older(kept)
                    && store::begin_segment(&self.database, Some(claims.source), &[])
                        .await?
                        .0
            } else {
                self.are_many(claims)
                    && store::change_halves(&self.database, claims.source).await?.0
            };
            if has_begun {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether there are so many claims that they shall be moved. What is not stored for long is
    /// not carried over again and again.
    fn are_many(&self, halves: &Halves) -> bool {
        self.moved_claims == 0 || halves.claims >= self.moved_claims.max(2 * halves.carried)
    }

    /// Copies those of the next claims that are stored, and carries the others over.
    async fn copy(&self, into: &Segment, source: ClaimKind) -> Result<(), DatabaseError> {
        let most = CLAIMS / self.divisor;
        let read = store::read_claims(&self.database, source, into.next(), most).await?;
        let rows = segment::rows(&read.stored);
        store::extend(&self.database, into, rows, read.others, read.next).await
    }

    /// Merges what comes next in some segments.
    async fn merge(
        &self,
        into: &Segment,
        segments: impl Iterator<Item = &Segment>,
    ) -> Result<(), DatabaseError> {
        let mut inputs = Vec::new();
        for one in segments {
            let most = MERGED_ROWS / self.divisor;
            let read = store::read_rows(&self.database, one.segment, into.next(), most);
            inputs.push(read.await?);
        }
        let (places, next) = segment::merge(into.next(), &inputs);
        drop(inputs);
        store::extend(&self.database, into, segment::rows(&places), vec![], next).await
    }
}

fn tell(size: &Size) {
    let kinds = [
        (ClaimKind::Deliveries, size.deliveries),
        (ClaimKind::Submissions, size.submissions),
    ];
    for (kind, claims) in kinds {
        metrics::CLAIMS.set_under([kind.as_str()], claims as f64);
    }
    metrics::REMEMBERED.set(size.keys as f64);
    metrics::MEMORY_SEGMENTS.set(size.segments as f64);
    metrics::MEMORY_BYTES.set(size.bytes as f64);
}
