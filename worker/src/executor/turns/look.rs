//! One look for due runs, in one transaction under a lock that all workers share: which runs are
//! taken now, and which wait for their turn.
//!
//! Nothing is decided from memory: what others have taken is read by its keys, and of what waits
//! only the first runs of lanes that have room. So a look costs as much as there is to do, however
//! many runs wait, and however many entries an old snapshot keeps in the indexes by time.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque},
    time::{Duration, Instant, SystemTime},
};

use letterbox_common::ids::{RunId, WorkspaceId};
use letterbox_database::{DatabaseError, Transaction, Work};
use tokio::try_join;
use uuid::Uuid;

use super::{
    fairness::{Candidate, InFlight, Lane, Limits, Position, take_turns},
    store::{self, Held, ReadyLane, Report, Seen},
};
use crate::executor::{
    record::TakenRun,
    store::load::{AllLoaded, load_new},
};

/// Maximum number of runs whose time has come that one look takes up.
const PAGE: usize = 1_000;
/// Maximum number of lanes that one look considers; further ones are seen by the next looks.
const MAX_LANES: usize = 256;
/// Maximum number of runs that are loaded by who takes them, while nobody else has a turn.
const FEW: usize = 16;
/// How often runs are looked for that have been due for long.
const ALL_EVERY: Duration = Duration::from_secs(60);

/// How long a worker must seem to have died: one that lives has reported by then.
const LOST_AFTER: Duration = Duration::from_secs(15);

/// What a worker remembers from look to look.
#[derive(Debug, Clone, Default)]
pub(crate) struct LookMemory {
    /// Where looks go on.
    behind: Position,
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
    /// How many requests of it each account has quickly answered since the last look.
    pub(super) answered: HashMap<Lane, usize>,
    /// What it has was reported recently.
    pub(super) is_reported: bool,
    pub(super) memory: LookMemory,
}

pub(super) struct Looked {
    pub(super) taken: Vec<TakenRun>,
    pub(super) memory: LookMemory,
}

impl Work for Look<'_> {
    type Output = Looked;

    async fn run(&self, transaction: &Transaction<'_>) -> Result<Option<Looked>, DatabaseError> {
        let recent = |at: Instant| at.elapsed() < ALL_EVERY;
        let all = !self.memory.looked_at_all.is_some_and(recent);
        let ((), seen) = try_join!(
            biased;
            store::lock_turns(transaction),
            self.see(transaction, all),
        )?;
        let is_long = |since: Instant| since.elapsed() >= LOST_AFTER;
        let choice = self.choice(&seen, self.memory.lost_since.is_some_and(is_long));
        let wanted = choice.lanes();
        let mut ready = match wanted.is_empty() {
            true => Vec::new(),
            false => store::first_runs(transaction, &wanted).await?,
        };
        ready.retain(|one| !self.has(one));
        let taking = self.take(transaction, &seen, &choice, &ready, all);
        taking.await.map(Some)
    }
}

impl Look<'_> {
    /// Takes runs that this transaction has recorded, if nothing else waits; and loads few of them,
    /// as what they are in their first turn. Does not wait for another look.
    pub(super) async fn take_recorded(
        &self,
        transaction: &Transaction<'_>,
        workspaces: &[WorkspaceId],
        runs: &[RunId],
    ) -> Result<Option<(Looked, AllLoaded)>, DatabaseError> {
        let ((is_locked,), mut recorded, seen) = try_join!(
            biased;
            store::try_lock_turns(transaction),
            store::recorded_runs(transaction, workspaces, runs),
            self.see(transaction, false),
        )?;
        let is_first = |lane: &ReadyLane| {
            let first = |one: &Candidate| one.lane == lane.lane && one.due_at == lane.due_at;
            recorded.iter().any(first)
        };
        let is_else = !seen.due.is_empty() || !seen.open_lanes().all(is_first);
        if !is_locked || is_else || seen.lanes.len() == MAX_LANES {
            return Ok(None);
        }
        let choice = self.choice(&seen, false);
        let number = recorded.len();
        recorded.retain(|one| !self.has(one) && choice.room(one.lane) > 0);
        let few = recorded.iter().take(FEW);
        let few = few.map(|one| (one.key(), one.lane.account));
        let (mut looked, loaded) = try_join!(
            biased;
            self.take(transaction, &seen, &choice, &recorded, false),
            load_new(transaction, few),
        )?;
        looked.memory.has_more = looked.taken.len() < number;
        Ok(Some((looked, loaded)))
    }

    async fn see(&self, transaction: &Transaction<'_>, all: bool) -> Result<Seen, DatabaseError> {
        let behind = self.memory.behind;
        store::see(transaction, self.worker, behind, PAGE, MAX_LANES, all).await
    }

    /// Takes the runs whose turn it is by this choice.
    async fn take(
        &self,
        transaction: &Transaction<'_>,
        seen: &Seen,
        choice: &Choice<'_>,
        ready: &[Candidate],
        all: bool,
    ) -> Result<Looked, DatabaseError> {
        let memory = &self.memory;
        let Chosen { take, wait, behind } = choice.choose(ready);

        let is_reported = !take.is_empty() || !self.is_reported;
        let report = is_reported.then(|| self.report(&take));
        let taken = match (take.is_empty(), wait.is_empty(), &report) {
            (true, true, None) => Vec::new(),
            _ => store::take(transaction, &take, &wait, report, self.lease).await?,
        };
        let now = Instant::now();
        let is_full = seen.due.len() == PAGE && !choice.due.is_empty();
        let memory = LookMemory {
            behind,
            looked_at_all: Some(now)
                .filter(|_| all && !is_full)
                .or(memory.looked_at_all),
            lost_since: (!seen.lost.is_empty()).then(|| memory.lost_since.unwrap_or(now)),
            reported: is_reported.then_some(now).or(memory.reported),
            has_more: !wait.is_empty()
                || seen.open_lanes().next().is_some()
                || seen.lanes.len() == MAX_LANES,
            is_full,
        };
        Ok(Looked { taken, memory })
    }

    fn has(&self, one: &Candidate) -> bool {
        self.in_hand.contains_key(&one.key())
    }

    /// Whose turn it may be, by what was seen. What this worker still has although its lease is
    /// over, it has.
    fn choice<'t>(&self, seen: &'t Seen, with_lost: bool) -> Choice<'t> {
        let lost = if with_lost { &seen.lost[..] } else { &[] };
        let due = seen.due.iter().chain(lost).copied();
        let in_flight = self.in_flight(seen);
        let free = if seen.held.holds_all { 0 } else { self.free };
        Choice {
            due: due.filter(|one| !self.has(one)).collect(),
            limits: self.limits,
            free,
            total: in_flight.total() + free,
            in_flight,
            lanes: seen
                .lanes
                .iter()
                .map(|one| (one.lane, one.due_at))
                .collect(),
            window: seen
                .lanes
                .last()
                .filter(|_| seen.lanes.len() == MAX_LANES)
                .map(|one| one.lane.position()),
            held: &seen.held,
            behind: self.memory.behind,
        }
    }

    /// What all workers have taken, counted. A run that this worker has let go of may be another's
    /// before its place here is free: it counts where it is now.
    fn in_flight(&self, seen: &Seen) -> InFlight {
        let others = &seen.taken_by_others;
        let own = self.in_hand.iter();
        let own = own.filter(|(key, _)| !others.contains_key(*key));
        let own = own.map(|(_, lane)| *lane);
        InFlight::count(own, others.values().copied(), self.answered.clone())
    }

    /// What this worker has, once it has taken these.
    fn report(&self, chosen: &[Candidate]) -> Report<'_> {
        let chosen = chosen.iter().map(Candidate::key);
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

/// Whose turn it is: by what was seen, which runs are taken, which wait, and where the next look
/// goes on. Pure.
struct Choice<'t> {
    in_flight: InFlight,
    limits: Limits,
    /// Places that are free.
    free: usize,
    /// Runs that may be in flight.
    total: usize,
    held: &'t Held,
    /// Runs whose time has come.
    due: Vec<Candidate>,
    /// Lanes with ready runs, and since when.
    lanes: BTreeMap<Lane, SystemTime>,
    /// The last of these lanes, if there may be further ones.
    window: Option<Position>,
    /// Where the last look ended.
    behind: Position,
}

/// What was chosen, in the order of keys: rows are locked in it, and what others have locked is
/// skipped.
struct Chosen {
    take: Vec<Candidate>,
    /// Whose time has come but not the turn waits in its lane.
    wait: Vec<Candidate>,
    behind: Position,
}

impl Choice<'_> {
    fn room(&self, lane: Lane) -> usize {
        match self.held.holds(&lane) {
            true => 0,
            false => self.in_flight.room(lane, self.limits, self.total),
        }
    }

    /// The lanes whose first runs may have a turn: since when, and how many of them. No more
    /// workspaces than there can be turns.
    fn lanes(&self) -> Vec<(Lane, SystemTime, usize)> {
        let workspaces: HashSet<_> = self.in_turn().into_iter().collect();
        let lanes = self.lanes.iter();
        let lanes = lanes.filter(|(lane, _)| workspaces.contains(&lane.workspace));
        lanes
            .map(|(lane, since)| (*lane, *since, self.room(*lane)))
            .filter(|(.., room)| *room > 0)
            .collect()
    }

    /// Gives turns to runs that are due, or `ready` in those lanes.
    fn choose(&self, ready: &[Candidate]) -> Chosen {
        let mut waiting: HashMap<WorkspaceId, Vec<Candidate>> = HashMap::new();
        let may = self.due.iter().filter(|one| !self.held.holds(&one.lane));
        for one in ready.iter().chain(may) {
            waiting.entry(one.lane.workspace).or_default().push(*one);
        }
        let in_turn = self.in_turn();
        let queues = in_turn.iter().map(|workspace| {
            let mut candidates = waiting.remove(workspace).unwrap_or_default();
            candidates.sort_by_key(|one| one.due_at);
            VecDeque::from(candidates)
        });
        let mut take = take_turns(queues.collect(), &self.in_flight, self.limits, self.total);
        let behind = self.ends(&in_turn, &take);
        let is_taken: HashSet<_> = take.iter().map(Candidate::key).collect();
        let wait = self.due.iter().filter(|one| !is_taken.contains(&one.key()));
        let mut wait: Vec<Candidate> = wait.copied().collect();
        take.sort_unstable_by_key(Candidate::key);
        wait.sort_unstable_by_key(Candidate::key);
        Chosen { take, wait, behind }
    }

    /// Where this look ends: behind the lanes that it was shown if there may be further ones and
    /// nobody of these is left, otherwise behind the last workspace that had a turn or the chance.
    fn ends(&self, in_turn: &[WorkspaceId], take: &[Candidate]) -> Position {
        let mut open = self.lanes.keys().filter(|lane| self.room(**lane) > 0);
        let is_left = open.any(|lane| !in_turn.contains(&lane.workspace));
        let last = match is_left {
            true => in_turn.last().copied(),
            false => take.last().map(|one| one.lane.workspace),
        };
        let last = last.map(|workspace| (workspace.into(), Uuid::max()));
        let window = self.window.filter(|_| !is_left && self.free > 0);
        window.or(last).unwrap_or(self.behind)
    }

    /// The workspaces with due runs and with room, in the order of their lanes from where the last
    /// look ended round to there. No more than there can be turns.
    fn in_turn(&self) -> Vec<WorkspaceId> {
        let lanes = self
            .lanes
            .keys()
            .chain(self.due.iter().map(|one| &one.lane));
        let lanes = lanes.filter(|lane| self.room(**lane) > 0);
        let lanes = lanes.map(|lane| (lane.position() <= self.behind, lane.workspace));
        let mut known = HashSet::new();
        let in_order = BTreeSet::from_iter(lanes).into_iter();
        let workspaces = in_order.map(|(_, workspace)| workspace);
        let each = workspaces.filter(|workspace| known.insert(*workspace));
        each.take(self.free).collect()
    }
}
