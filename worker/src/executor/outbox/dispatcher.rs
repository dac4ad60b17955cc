//! What the relay remembers, and one look at the outbox: which wakes are handed over now, and which
//! wait for their turn.
//!
//! The database knows everything; what is remembered here is which part of it to ask for. One
//! dispatcher at a time is at work, under a lease, so that nothing is handed over behind its back.
//! It asks for what is new, for whether what it knows to be in flight still is, and for the first
//! wakes of those lanes that have room. So a look costs as much as there is to do, however many
//! wakes wait, and however many entries an old snapshot keeps in the indexes.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    time::{Duration, Instant, SystemTime},
};

use letterbox_common::ids::{RunId, WorkspaceId};
use letterbox_database::{DatabaseError, Transaction, Work};
use uuid::Uuid;

use super::{
    fairness::{Candidate, InFlight, Lane, Limits, take_turns},
    store::{self, DueWake, HandedOver, Lanes},
};

/// Maximum number of due wakes that one look takes up.
pub(super) const PAGE: usize = 1_000;
/// How often everything is looked at.
const ALL_EVERY: Duration = Duration::from_secs(60);
/// How many runs may be in flight for each place of a worker: one is executed, another one is in
/// the queue, so that no place is empty while the relay is busy.
const IN_FLIGHT_PER_PLACE: usize = 2;

/// A wake is put off, because the queue may hold it, until it was handed over so often: perhaps it
/// holds others.
const MAX_HANDOVERS: i32 = 4;

/// The outbox, as far as one relay knows it.
#[derive(Debug, Clone)]
pub(super) struct Memory {
    in_flight: HashMap<(WorkspaceId, RunId), Lane>,
    lanes: Lanes,
    /// Who was last to be given a turn.
    last: Option<WorkspaceId>,
    looked_at_all: Instant,
}

/// One look.
pub(super) struct Look<'m> {
    pub(super) worker: Uuid,
    pub(super) limits: Limits,
    /// The queue of wakes holds some that no worker has.
    pub(super) has_backlog: bool,
    /// None at first, and when it is not known whether the last look was committed.
    pub(super) memory: Option<&'m Memory>,
}

/// What came of a look.
pub(super) struct Looked {
    /// What is to be published.
    pub(super) handed_over: Vec<HandedOver>,
    /// There may be more to do.
    pub(super) is_busy: bool,
    pub(super) memory: Memory,
}

impl Work for Look<'_> {
    /// Committed, also where nothing was to be done; rolled back where another relay leads.
    type Output = Looked;

    async fn run(&self, transaction: &Transaction<'_>) -> Result<Option<Looked>, DatabaseError> {
        // What is new. Where too little is remembered, everything.
        let recent = |memory: &&Memory| memory.looked_at_all.elapsed() < ALL_EVERY;
        let remembered = self.memory.filter(recent);
        let known = remembered.map(|memory| memory.in_flight.keys().copied());
        let (workspaces, runs): (Vec<_>, Vec<_>) = known.into_iter().flatten().unzip();
        let (known, all) = ((&workspaces[..], &runs[..]), remembered.is_none());
        let news = store::news(transaction, self.worker, known, PAGE, all).await?;
        if !news.standing.leads {
            return Ok(None);
        }
        let mut memory = match remembered {
            Some(memory) => memory.clone(),
            None => {
                let (in_flight, lanes) = store::everything(transaction).await?;
                let key = |(run, lane): (RunId, Lane)| ((lane.workspace, run), lane);
                Memory {
                    in_flight: in_flight.into_iter().map(key).collect(),
                    lanes,
                    last: self.memory.and_then(|memory| memory.last),
                    looked_at_all: Instant::now(),
                }
            }
        };
        memory.in_flight.retain(|key, _| !news.landed.contains(key));

        // What the queue still holds is put off; everything else that is due may have a turn.
        let is_full_page = news.due.len() == PAGE;
        let (held, due) = self.sort(news.due);
        for one in &due {
            memory.in_flight.remove(&(one.lane.workspace, one.run));
        }

        // Turns.
        let total = news.standing.places * IN_FLIGHT_PER_PLACE;
        let in_flight = InFlight::count(memory.in_flight.values().copied());
        let turns = Turns {
            in_flight: &in_flight,
            limits: self.limits,
            total,
            held: &news.standing.held,
        };
        let wanted = turns.lanes(&memory, &due);
        let ready = match wanted.is_empty() {
            true => Vec::new(),
            false => store::ready_wakes(transaction, &wanted).await?,
        };
        let taken = turns.take(&memory, &ready, &due);

        // What has no turn waits in its lane.
        let is_taken: HashSet<_> = taken
            .iter()
            .map(|one| (one.lane.workspace, one.run))
            .collect();
        let without_turn = |one: &&Candidate| !is_taken.contains(&(one.lane.workspace, one.run));
        let waiting: Vec<Candidate> = due.iter().filter(without_turn).copied().collect();
        memory.note_lanes(&wanted, &ready, &is_taken);
        for one in &waiting {
            let since = memory.lanes.entry(one.lane).or_insert(one.due_at);
            *since = one.due_at.min(*since);
        }
        let is_busy = is_full_page || !taken.is_empty();
        let moved = taken.iter().chain(&held).copied().collect::<Vec<_>>();
        let mut handed_over = Vec::new();
        if !moved.is_empty() || !waiting.is_empty() {
            handed_over = store::move_wakes(transaction, &moved, &waiting).await?;
        }
        for one in &handed_over {
            let key = (one.lane.workspace, one.run);
            memory.in_flight.insert(key, one.lane);
        }
        handed_over.retain(|one| is_taken.contains(&(one.lane.workspace, one.run)));
        memory.last = taken.last().map(|one| one.lane.workspace).or(memory.last);
        Ok(Some(Looked {
            handed_over,
            is_busy,
            memory,
        }))
    }
}

impl Look<'_> {
    /// What is put off, and what may have a turn.
    fn sort(&self, due: Vec<DueWake>) -> (Vec<Candidate>, Vec<Candidate>) {
        let is_held = |one: &DueWake| {
            self.has_backlog && one.is_in_flight && (1..MAX_HANDOVERS).contains(&one.handovers)
        };
        let (held, due): (Vec<_>, Vec<_>) = due.into_iter().partition(is_held);
        let candidates = |wakes: Vec<DueWake>| wakes.into_iter().map(|one| one.candidate).collect();
        (candidates(held), candidates(due))
    }
}

impl Memory {
    /// Notes how far the lanes have come that were `asked` for their first wakes.
    fn note_lanes(
        &mut self,
        asked: &[(Lane, SystemTime, usize)],
        ready: &[Candidate],
        is_taken: &HashSet<(WorkspaceId, RunId)>,
    ) {
        for (lane, _, most) in asked {
            let found: Vec<_> = ready.iter().filter(|one| one.lane == *lane).collect();
            let left = found
                .iter()
                .find(|one| !is_taken.contains(&(one.lane.workspace, one.run)));
            match (left, found.last()) {
                (Some(first), _) => self.lanes.insert(*lane, first.due_at),
                // There may be more behind those that were asked for.
                (None, Some(last)) if found.len() == *most => self.lanes.insert(*lane, last.due_at),
                _ => self.lanes.remove(lane),
            };
        }
    }
}

/// Whose turn it is.
struct Turns<'t> {
    in_flight: &'t InFlight,
    limits: Limits,
    /// Runs that may be in flight.
    total: usize,
    /// Workspaces that have no turn.
    held: &'t HashSet<WorkspaceId>,
}

impl Turns<'_> {
    /// The lanes whose first wakes may have a turn: since when, and how many of them. No more
    /// workspaces than there can be turns.
    fn lanes(&self, memory: &Memory, due: &[Candidate]) -> Vec<(Lane, SystemTime, usize)> {
        let room = |lane: Lane| self.in_flight.room(lane, self.limits, self.total);
        let workspaces: HashSet<_> = self.in_turn(memory, due).into_iter().collect();
        let lanes = memory.lanes.iter();
        lanes
            .filter(|(lane, _)| workspaces.contains(&lane.workspace))
            .map(|(lane, since)| (*lane, *since, room(*lane)))
            .filter(|(.., room)| *room > 0)
            .collect()
    }

    fn take(&self, memory: &Memory, ready: &[Candidate], due: &[Candidate]) -> Vec<Candidate> {
        let mut waiting: HashMap<WorkspaceId, Vec<Candidate>> = HashMap::new();
        for one in ready.iter().chain(due) {
            waiting.entry(one.lane.workspace).or_default().push(*one);
        }
        let queues = self.in_turn(memory, due).into_iter().map(|workspace| {
            let mut candidates = waiting.remove(&workspace).unwrap_or_default();
            candidates.sort_by_key(|one| one.due_at);
            VecDeque::from(candidates)
        });
        take_turns(queues.collect(), self.in_flight, self.limits, self.total)
    }

    /// The workspaces with wakes and with room, in the order of their ids, beginning behind the one
    /// that had the last turn. No more than there can be turns.
    fn in_turn(&self, memory: &Memory, due: &[Candidate]) -> Vec<WorkspaceId> {
        let has_room = |lane: &Lane| {
            !self.held.contains(&lane.workspace)
                && self.in_flight.room(*lane, self.limits, self.total) > 0
        };
        let lanes = memory.lanes.keys().chain(due.iter().map(|one| &one.lane));
        let lanes = lanes.copied().filter(has_room);
        let mut workspaces: Vec<_> = lanes.map(|lane| lane.workspace).collect();
        workspaces.sort_unstable();
        workspaces.dedup();
        let behind = match memory.last {
            Some(last) => workspaces.partition_point(|one| *one <= last),
            None => 0,
        };
        workspaces.rotate_left(behind);
        workspaces.truncate(self.total);
        workspaces
    }
}
