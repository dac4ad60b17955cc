//! One look for due runs, in one transaction under a lock that all workers share: which runs are
//! taken now, and which wait for their turn.
//!
//! Nothing is decided from memory: what others have taken is read by its keys, and of what waits
//! only the first runs of lanes that have room. So a look costs as much as there is to do, however
//! many runs wait, and however many entries an old snapshot keeps in the indexes by time.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    time::{Duration, Instant, SystemTime},
};

use letterbox_common::ids::{RunId, WorkspaceId};
use letterbox_database::{DatabaseError, Transaction, Work};
use uuid::Uuid;

use super::{
    fairness::{Candidate, InFlight, Lane, Limits, take_turns},
    store::{self, Held, Report, Seen},
};
use crate::executor::record::TakenRun;

/// Maximum number of runs whose time has come that one look takes up.
const PAGE: usize = 1_000;
/// Maximum number of lanes that one look considers; the next one goes on behind them.
const MAX_LANES: usize = 256;
/// How often runs are looked for that have been due for long.
const ALL_EVERY: Duration = Duration::from_secs(60);

/// How long a worker must seem to have died: one that lives has reported by then.
const LOST_AFTER: Duration = Duration::from_secs(15);

/// What a worker remembers from look to look.
#[derive(Debug, Clone, Default)]
pub(super) struct Memory {
    /// The workspace that was last to have a turn.
    last: Option<WorkspaceId>,
    /// The last lane of a window that did not show all; looks go on there and behind the last turn
    /// alternately.
    window: Option<Lane>,
    looked_at_all: Option<Instant>,
    /// Since when every look has seen runs of workers that seem to have died before the clock was
    /// set back.
    lost_since: Option<Instant>,
    /// When this worker last reported what it has.
    pub(super) reported: Option<Instant>,
    /// Runs were left for which there was no room.
    pub(super) has_more: bool,
    /// There may be further runs whose time has come.
    pub(super) is_full: bool,
}

impl Memory {
    pub(super) fn note(&mut self, looked: &Looked) {
        self.last = looked.last.or(self.last);
        self.window = looked.window;
        self.has_more = looked.has_more;
        self.is_full = looked.is_full;
        self.lost_since = match looked.has_lost {
            true => self.lost_since.or_else(|| Some(Instant::now())),
            false => None,
        };
        if looked.at_all {
            self.looked_at_all = Some(Instant::now());
        }
    }
}

/// One look.
pub(super) struct Look<'l> {
    pub(super) worker: Uuid,
    pub(super) name: &'l str,
    pub(super) places: u16,
    /// Places that are free.
    pub(super) free: usize,
    pub(super) lease: Duration,
    pub(super) limits: Limits,
    /// What this worker has.
    pub(super) in_hand: HashMap<(WorkspaceId, RunId), Lane>,
    /// What it has was reported recently.
    pub(super) is_reported: bool,
    pub(super) memory: &'l Memory,
}

/// What came of a look.
pub(super) struct Looked {
    pub(super) taken: Vec<TakenRun>,
    pub(super) is_reported: bool,
    last: Option<WorkspaceId>,
    window: Option<Lane>,
    has_more: bool,
    is_full: bool,
    at_all: bool,
    has_lost: bool,
}

impl Work for Look<'_> {
    type Output = Looked;

    async fn run(&self, transaction: &Transaction<'_>) -> Result<Option<Looked>, DatabaseError> {
        let recent = |at: Instant| at.elapsed() < ALL_EVERY;
        let all = !self.memory.looked_at_all.is_some_and(recent);
        let last = self.memory.last.map(Lane::all_of);
        let behind = self.memory.window.or(last);
        let seen = store::see(transaction, self.worker, behind, PAGE, MAX_LANES, all);
        let seen = seen.await?;

        // Turns. What this worker still has although its lease is over, it has.
        let is_long = |since: Instant| since.elapsed() >= LOST_AFTER;
        let lost = match self.memory.lost_since.is_some_and(is_long) {
            true => &seen.lost[..],
            false => &[],
        };
        let due = seen.due.iter().chain(lost).copied();
        let due: Vec<Candidate> = due.filter(|one| !self.has(one)).collect();
        let is_full_page = seen.due.len() == PAGE && !due.is_empty();
        let in_flight = self.in_flight(&seen);
        let free = if seen.holds_all { 0 } else { self.free };
        let turns = Choice {
            in_flight: &in_flight,
            limits: self.limits,
            free,
            total: in_flight.total() + free,
            held: &seen.held,
            last: self.memory.last,
        };
        let lanes: BTreeMap<Lane, SystemTime> = seen.lanes.iter().copied().collect();
        let wanted = turns.lanes(&lanes, &due);
        let mut ready = match wanted.is_empty() {
            true => Vec::new(),
            false => store::first_runs(transaction, &wanted).await?,
        };
        ready.retain(|one| !self.has(one));
        let mut chosen = turns.take(&lanes, &ready, &due);
        let last = chosen.last().map(|one| one.lane.workspace);

        // Whose time has come but not the turn waits in its lane.
        let key = |one: &Candidate| (one.lane.workspace, one.run);
        let is_chosen: HashSet<_> = chosen.iter().map(key).collect();
        let waiting = due.iter().filter(|one| !is_chosen.contains(&key(one)));
        let mut waiting: Vec<Candidate> = waiting.copied().collect();
        // Rows are locked in the order of their keys; what others have locked is skipped.
        chosen.sort_unstable_by_key(key);
        waiting.sort_unstable_by_key(key);
        let is_reported = !chosen.is_empty() || !self.is_reported;
        let report = is_reported.then(|| self.report(&chosen));
        let taken = match (chosen.is_empty(), waiting.is_empty(), &report) {
            (true, true, None) => Vec::new(),
            _ => store::take(transaction, &chosen, &waiting, report, self.lease).await?,
        };
        // Behind a window that did not show all, unless this look was itself behind one.
        let is_full_window = seen.lanes.len() == MAX_LANES && self.memory.window.is_none();
        let window = seen.lanes.last().filter(|_| is_full_window);
        Ok(Some(Looked {
            last,
            window: window.map(|(lane, _)| *lane),
            has_more: !waiting.is_empty() || !lanes.is_empty(),
            has_lost: !seen.lost.is_empty(),
            is_full: is_full_page,
            at_all: all && !is_full_page,
            is_reported,
            taken,
        }))
    }
}

impl Look<'_> {
    fn has(&self, one: &Candidate) -> bool {
        self.in_hand.contains_key(&(one.lane.workspace, one.run))
    }

    /// What all workers have taken, counted. A run that this worker has let go of may be another's
    /// before its place here is free: it counts where it is now.
    fn in_flight(&self, seen: &Seen) -> InFlight {
        let mut lanes = self.in_hand.clone();
        lanes.extend(seen.taken_by_others.iter().map(|(key, lane)| (*key, *lane)));
        InFlight::count(lanes.into_values())
    }

    /// What this worker has, once it has taken these.
    fn report(&self, chosen: &[Candidate]) -> Report<'_> {
        let chosen = chosen.iter().map(|one| (one.lane.workspace, one.run));
        let (workspaces, runs) = self.in_hand.keys().copied().chain(chosen).unzip();
        Report {
            worker: self.worker,
            name: self.name,
            places: self.places,
            workspaces,
            runs,
        }
    }
}

/// Whose turn it is.
struct Choice<'t> {
    in_flight: &'t InFlight,
    limits: Limits,
    /// Places that are free.
    free: usize,
    /// Runs that may be in flight.
    total: usize,
    held: &'t Held,
    /// The workspace that had the last turn.
    last: Option<WorkspaceId>,
}

impl Choice<'_> {
    /// The lanes whose first runs may have a turn: since when, and how many of them. No more
    /// workspaces than there can be turns.
    fn lanes(
        &self,
        lanes: &BTreeMap<Lane, SystemTime>,
        due: &[Candidate],
    ) -> Vec<(Lane, SystemTime, usize)> {
        let room = |lane: Lane| self.in_flight.room(lane, self.limits, self.total);
        let workspaces: HashSet<_> = self.in_turn(lanes, due).into_iter().collect();
        lanes
            .iter()
            .filter(|(lane, _)| workspaces.contains(&lane.workspace) && !self.held.holds(lane))
            .map(|(lane, since)| (*lane, *since, room(*lane)))
            .filter(|(.., room)| *room > 0)
            .collect()
    }

    fn take(
        &self,
        lanes: &BTreeMap<Lane, SystemTime>,
        ready: &[Candidate],
        due: &[Candidate],
    ) -> Vec<Candidate> {
        let mut waiting: HashMap<WorkspaceId, Vec<Candidate>> = HashMap::new();
        let may = due.iter().filter(|one| !self.held.holds(&one.lane));
        for one in ready.iter().chain(may) {
            waiting.entry(one.lane.workspace).or_default().push(*one);
        }
        let queues = self.in_turn(lanes, due).into_iter().map(|workspace| {
            let mut candidates = waiting.remove(&workspace).unwrap_or_default();
            candidates.sort_by_key(|one| one.due_at);
            VecDeque::from(candidates)
        });
        take_turns(queues.collect(), self.in_flight, self.limits, self.total)
    }

    /// The workspaces with due runs and with room, in the order of their ids, beginning behind the
    /// one that had the last turn. No more than there can be turns.
    fn in_turn(&self, lanes: &BTreeMap<Lane, SystemTime>, due: &[Candidate]) -> Vec<WorkspaceId> {
        let has_room = |lane: &Lane| {
            !self.held.holds(lane) && self.in_flight.room(*lane, self.limits, self.total) > 0
        };
        let lanes = lanes.keys().chain(due.iter().map(|one| &one.lane));
        let lanes = lanes.copied().filter(has_room);
        let mut workspaces: Vec<_> = lanes.map(|lane| lane.workspace).collect();
        workspaces.sort_unstable();
        workspaces.dedup();
        let behind = match self.last {
            Some(last) => workspaces.partition_point(|one| *one <= last),
            None => 0,
        };
        workspaces.rotate_left(behind);
        workspaces.truncate(self.free);
        workspaces
    }
}
