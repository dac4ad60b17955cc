//! The intake protocol as a finite model, checked over every schedule.
//!
//! The protocol itself is described in `gateway/src/acceptance/README.md`. Two gateways, the first
//! of which has two messages under way at once, take posts of two keys. A lane claims the keys of a
//! batch in PostgreSQL, publishes one message, and answers 202 after the broker's confirm or after
//! its entries are in the spill and its row is gone, which is one step. Workers apply what is
//! claimed, then ack it; an effect exists once for each message id. What is spilled they apply as
//! well, and delete it in the same step; it may be in the queue, too. Posts come at any time to any
//! gateway, a lease may be over at any time, so that any number of workers may have what is spilled
//! in hand, and faults strike anywhere until their budget is spent. A 202 counts as soon as it may
//! go out, so a death just before it is covered; the entries of a message are applied one by one,
//! so a part of it may be applied, too.
//!
//! Each key has a workspace of its own. Somebody may lock a row of the first one, and never let go
//! of it. A statement that needs the row fails for all that it is about, so the others get one of
//! their own: a lane answers the locked key alone with 503; a worker stores what else is in a
//! message, sets the rest of it aside in the spill, and goes on; what is spilled it stores but for
//! that. A returned message is set aside, too, whatever is in it.
//!
//! Claims are made in one of two halves. A mover changes the halves, copies what is recorded of the
//! other one into the memory, carries the rest over, and empties it. A claiming statement sees the
//! claims of its half as they are when it ends, and the memory and the other half as they were when
//! it began.
//!
//! Proven in the scopes below: no accepted event is lost, no key has two effects, nothing is stored
//! from the spill twice (its effect may be erased meanwhile), no settled key is unrecorded, no key
//! ends stuck, unless its own row is locked. The last one is liveness. The model has no cycle,
//! because every step uses up a post, a fault or a stage of a message. So it is enough to look
//! where nothing is left but faults: there one more post of each key, all in one batch, with the
//! leases over and no fault, is accepted and applied. Each [`Flaw`] breaks one of these promises,
//! so none of them holds for want of schedules.

use std::collections::BTreeSet;
use std::num::NonZero;
use std::thread::available_parallelism;

use Action::{
    Ack, Apply, Begin, Carry, Change, Clear, Confirm, Crash, Die, Drain, Free, Gather, Lock,
    Publish, Refuse, Remember, SetAside, Settle, Spill, SpillUnseen, TimeOut, Unlock,
};
use Stage::{Claimed, Failed, Idle, Sent};
use stateright::{Checker, HasDiscoveries, Model, Property};

use crate::{Row, stands_for};

const KEYS: usize = 2;
/// The gateway of each lane: what one lane knows to be confirmed, the others of its gateway know,
/// too.
const LANES: [usize; 3] = [0, 0, 1];
const GATEWAYS: usize = 2;

/// The posts of each key, the budget of faults, and whether there is a mover. Larger scopes only
/// take longer.
type Scope = ([u8; KEYS], u8, bool);
const ONE_KEY: Scope = ([3, 0], 6, false);
const TWO_KEYS: Scope = ([2, 1], 3, false);
const MOVED: Scope = ([3, 0], 3, true);
const TWO_MOVED: Scope = ([2, 1], 1, true);
/// How often the halves change at most.
const CHANGES: u8 = 2;

/// What a lane gathers: most of all both. The first post of a key stands for all its posts in the
/// batch.
const GATHERS: [&[usize]; 3] = [&[0, 1], &[0], &[1]];

/// A set of ids of entries, one byte for each key.
type Ids = u16;
/// The ids of the first key.
const FIRST: Ids = 0xff;
/// Messages by their entries: a second copy adds nothing.
type Messages = BTreeSet<Ids>;
type Lane = usize;
type BatchId = usize;

/// A broken variant of the protocol.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Flaw {
    None,
    AnswerBeforeConfirm,
    AnswerBeforeSpill,
    SettleBeforeConfirm,
    /// Who takes a spilled entry deletes it, and dies before it is stored.
    DeletedBeforeStored,
    /// A spilled entry is stored, and stays in the spill.
    StoredAndKept,
    /// Of two workers that have a spilled entry in hand, the slower one stores it, too.
    StoredByTwo,
    /// What is spilled is stored in its order, and waits for what is locked.
    SpillWaits,
    TakeoverWithNewId,
    /// Of two doors to one key, in two messages of a claim, the key is put into the batch of the
    /// one and published in the message of the other.
    TakenIntoOtherBatch,
    /// Other keys, or a late spill, need the row of the batch that is taken over.
    TakeoverDeletesRow,
    /// A snapshot that shows a claim without its batch's row does the same.
    DuplicateWhileClaimed,
    LeaseWithoutEnd,
    FailureDeletesRow,
    FailureDeletesClaims,
    AckBeforeCommit,
    /// One acknowledgement is for all messages, also for those that are not finished.
    AckOfAll,
    /// What is set aside is acknowledged before it is in the spill.
    AckBeforeAside,
    /// A locked row fails the claim of the whole batch.
    ClaimFailsWhole,
    /// A locked row is taken for a database that is away: what comes behind it is not tried.
    LockIsOutage,
    /// A worker takes no other message while it tries the one again.
    TriesInPlace,
    /// What is set aside is not tried again.
    AsideForEver,
    /// The claim commits asynchronously, as the settle does.
    ClaimNotDurable,
    DeletedBeforeCopied,
    /// The mover does not wait for statements that began before it had copied.
    DeletedBeforeSeen,
    /// The mover takes a claim whose id has no effect yet.
    CopiedBeforeRecorded,
    /// The mover empties a half in which there is a claim that is not recorded.
    EmptiedBeforeCarried,
    /// The halves change while a statement is under way.
    ChangedBeforeOver,
    /// A statement that claims looks into its own half only.
    OtherHalfNotAsked,
}

/// A batch and its row in `open_batches`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Batch {
    ids: Ids,
    spilled: bool,
    deleted: bool,
    /// The gateways that know it as confirmed and have yet to settle it.
    confirmed: [bool; GATEWAYS],
}

/// A row of `claims`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Claim {
    id: Ids,
    batch: BatchId,
    half: bool,
}

/// What a statement that claims knows from its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Snapshot {
    memory: [Ids; KEYS],
    filled: bool,
    /// Whether there are claims in the other half.
    others: [bool; KEYS],
}

/// How far a lane is with its batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Stage {
    #[default]
    Idle,
    Claimed,
    Sent,
    Failed,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct State {
    /// Posts to come.
    posts: [u8; KEYS],
    claims: [Option<Claim>; KEYS],
    /// Keys that the mover has copied: the id that was claimed.
    memory: [Ids; KEYS],
    /// The half in which claims are made, how often that has changed, and whether a claim was
    /// carried over.
    filled: bool,
    changes: u8,
    is_carried: bool,
    /// The lane whose statement has begun, and what it sees.
    begun: Option<(Lane, Snapshot)>,
    batches: Vec<Batch>,
    lanes: [(Stage, BatchId); LANES.len()],
    /// Published without a confirm: it may reach the queue at any time.
    late: Messages,
    /// In the queue or with a worker, not acked.
    queued: Messages,
    /// In the spill.
    spilled: Ids,
    /// Of what was spilled last under each id: what was stored from the spill, and whether anything
    /// was stored from it once more.
    drained: Ids,
    is_drained_twice: bool,
    /// In the workers' database.
    applied: Ids,
    /// Answered 202.
    accepted: Ids,
    /// Of the first key's workspace: new claims and effects of this key need it.
    row: Row,
    /// Faults so far.
    faults: u8,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Action {
    /// The lane's claiming statement takes its snapshot some time before it claims. One at a time
    /// is enough: what it sees does not depend on others.
    Begin(Lane),
    /// The lane gathers and claims; the flag tells whether the leases that it meets are over.
    Gather(Lane, &'static [usize], bool),
    /// From now on, claims are made in the other half.
    Change,
    /// The mover copies a claim.
    Remember(usize),
    /// The mover carries a claim over into the half that is filled.
    Carry(usize),
    /// The mover deletes a claim.
    Clear(usize),
    Publish(Lane),
    /// The broker takes the message and confirms it, and the held posts are answered 202.
    Confirm(Lane),
    /// Fault: the message is refused or lost.
    Refuse(Lane),
    /// Fault: the confirm is lost, or the message is late.
    TimeOut(Lane),
    Spill(Lane),
    /// Fault: the spill commits, but the gateway sees an error.
    SpillUnseen(Lane),
    /// The lane ends its lease, which may be over anyway, and answers 503.
    Free(Lane),
    /// Fault: the gateway dies and comes back without memory.
    Die(Lane),
    Settle(Lane, BatchId),
    /// Fault: the database crashes and loses the deletion of the row.
    Crash(BatchId),
    /// Fault: somebody locks the row, and may never let go of it.
    Lock,
    /// Counts as a fault, because nobody may rely on it.
    Unlock,
    /// A worker that dies before its ack leaves the message in the queue.
    Apply(Ids),
    /// A worker stores a spilled entry and deletes it from the spill.
    Drain(Ids),
    /// What is not applied of a message is put into the spill, and the message is acked.
    SetAside(Ids),
    /// All entries of the message are applied.
    Ack(Ids),
}

stands_for! {
    Begin(_) | Gather(..) =>
        "statement.claim_new" "statement.take_over_claims";
    Change => "statement.change_halves";
    Remember(_) => "statement.begin_segment" "statement.extend_segment";
    Carry(_) => "statement.extend_segment";
    Clear(_) => "statement.empty_half";
    Publish(_) => "publish.webhooks" "publish.forms";
    Confirm(_) => "answer";
    Spill(_) | SpillUnseen(_) => "statement.spill_batches";
    Free(_) => "statement.end_leases";
    Settle(..) => "statement.close_batches";
    Apply(_) =>
        "statement.store_signals" "statement.unclaimed_deliveries"
        "statement.insert_signals"
        "statement.record_runs" "statement.unclaimed_submissions" "statement.insert_runs";
    Drain(_) =>
        "statement.spilling_workspaces" "statement.take_spilled" "statement.leave_spill"
        "statement.settle_spilled" "statement.give_back"
        "statement.store_signals" "statement.record_runs";
    SetAside(_) => "statement.put_aside" "acknowledge";
    Ack(_) => "acknowledge";
    // What others do, or do not.
    Refuse(_) | TimeOut(_) | Die(_) | Crash(_) | Lock | Unlock =>;
}

impl Action {
    fn is_fault(&self) -> bool {
        let is_loss = matches!(self, Refuse(_) | TimeOut(_) | SpillUnseen(_));
        is_loss || matches!(self, Die(_) | Crash(_) | Lock | Unlock)
    }
}

impl State {
    /// The rows of `claims`.
    fn claims(&self) -> impl Iterator<Item = &Claim> {
        self.claims.iter().flatten()
    }

    fn claimed(&self) -> Ids {
        self.claims().fold(0, |ids, claim| ids | claim.id)
    }

    fn snapshot(&self) -> Snapshot {
        let is_other = |claim: Option<Claim>| claim.is_some_and(|claim| claim.half != self.filled);
        Snapshot {
            memory: self.memory,
            filled: self.filled,
            others: self.claims.map(is_other),
        }
    }

    /// The batches of the lanes at this stage.
    fn at(&self, stage: Stage) -> impl Iterator<Item = &Batch> {
        let lanes = self.lanes.iter().filter(move |lane| lane.0 == stage);
        lanes.map(|lane| &self.batches[lane.1])
    }

    /// The ids in messages that are in the queue, or may come to it.
    fn published(&self) -> Ids {
        let messages = self.late.iter().chain(&self.queued);
        messages.fold(0, |ids, message| ids | message)
    }

    /// The ids whose effect is there or certain to come.
    fn recorded(&self) -> Ids {
        let ids = self.applied | self.spilled;
        self.queued.iter().fold(ids, |ids, message| ids | message)
    }

    fn is_locked(&self, key: usize) -> bool {
        self.row == Row::Locked && key == 0
    }

    /// The ids that wait for the locked row.
    fn locked(&self) -> Ids {
        let ids = if self.is_locked(0) { FIRST } else { 0 };
        ids & !self.applied
    }

    /// Moves a lane on with its batch.
    fn advance(&mut self, lane: Lane, stage: Stage) -> &mut Batch {
        let (_, batch) = self.lanes[lane];
        self.lanes[lane] = (stage, if stage == Idle { 0 } else { batch });
        &mut self.batches[batch]
    }

    /// Only flaws do this.
    fn delete_claims(&mut self, batch: BatchId) {
        for claim in &mut self.claims {
            claim.take_if(|claim| claim.batch == batch);
        }
    }
}

#[derive(Clone, Copy)]
struct Intake {
    flaw: Flaw,
    scope: Scope,
}

impl Intake {
    fn is_duplicate(&self, lane: Lane, earlier: &Batch) -> bool {
        let is_safe = earlier.deleted || earlier.confirmed[LANES[lane]];
        is_safe || self.flaw == Flaw::DuplicateWhileClaimed
    }

    /// The claiming statement. A batch that holds no key needs no row.
    fn claim(&self, s: &mut State, lane: Lane, keys: &[usize], is_over: bool) {
        keys.iter().for_each(|&key| s.posts[key] -= 1);
        let batch = s.batches.len();
        let begun = s.begun.take_if(|begun| begun.0 == lane);
        let seen = begun.map_or_else(|| s.snapshot(), |(_, seen)| seen);
        if self.flaw == Flaw::ClaimFailsWhole && keys.iter().any(|&key| s.is_locked(key)) {
            return;
        }
        let half = seen.filled;
        let (mut new, mut other) = (Batch::default(), Batch::default());
        let is_apart = self.flaw == Flaw::TakenIntoOtherBatch && lane == 0 && s.lanes[1].0 == Idle;
        for &key in keys {
            let mut id = 1 << (8 * key + batch);
            if seen.memory[key] != 0 {
                s.accepted |= seen.memory[key];
                continue;
            }
            let is_met = seen.others[key] && self.flaw != Flaw::OtherHalfNotAsked;
            if let Some(claim) = s.claims[key].filter(|claim| is_met || claim.half == half) {
                let earlier = &mut s.batches[claim.batch];
                if self.is_duplicate(lane, earlier) {
                    s.accepted |= claim.id;
                    continue;
                } else if !is_over || self.flaw == Flaw::LeaseWithoutEnd {
                    continue;
                }
                earlier.deleted |= self.flaw == Flaw::TakeoverDeletesRow;
                if self.flaw != Flaw::TakeoverWithNewId {
                    id = claim.id;
                }
                s.claims[key] = Some(Claim { id, batch, ..claim });
                if is_apart && keys.len() > 1 {
                    other.ids |= id;
                    continue;
                }
            } else if s.is_locked(key) {
                // It alone is answered 503.
                continue;
            } else {
                s.claims[key] = Some(Claim { id, batch, half });
            }
            new.ids |= id;
        }
        let opened = [(lane, new), (1, other)].into_iter();
        for (lane, batch) in opened.filter(|(_, batch)| batch.ids != 0) {
            s.lanes[lane] = (Claimed, s.batches.len());
            s.batches.push(batch);
        }
    }

    /// The entries that workers can store now: all but locked ones. In a message, the entry of the
    /// first key is before that of the second.
    fn storable(&self, s: &State) -> Ids {
        let is_held = |message: &&Ids| *message & s.locked() != 0;
        let is_tried = |message: &&Ids| match self.flaw {
            Flaw::LockIsOutage => !is_held(message),
            Flaw::TriesInPlace => s.queued.iter().filter(is_held).all(|one| one == *message),
            _ => true,
        };
        let tried = s.late.union(&s.queued).filter(is_tried);
        let tried = tried.fold(0, |ids, message| ids | message);
        tried & s.claimed() & !s.applied & !s.locked()
    }

    /// The spilled entries that workers can store now: all but locked ones.
    fn drainable(&self, s: &State) -> Ids {
        let spilled = match self.flaw {
            Flaw::SpillWaits if s.spilled & s.locked() != 0 => 0,
            Flaw::StoredAndKept | Flaw::StoredByTwo if s.is_drained_twice => 0,
            Flaw::StoredByTwo => s.spilled | s.drained,
            Flaw::AsideForEver if s.row == Row::Released => s.spilled & !FIRST,
            _ => s.spilled,
        };
        spilled & (s.claimed() | s.applied) & !s.locked()
    }

    fn step(&self, s: &mut State, action: Action) {
        let is = |flaw| self.flaw == flaw;
        let when = |holds, ids| if holds { ids } else { 0 };
        match action {
            Gather(lane, keys, is_over) => self.claim(s, lane, keys, is_over),
            Publish(lane) => {
                let batch = s.advance(lane, Sent);
                batch.deleted |= is(Flaw::SettleBeforeConfirm);
                s.accepted |= when(is(Flaw::AnswerBeforeConfirm), batch.ids);
            }
            Confirm(lane) => {
                let batch = s.advance(lane, Idle);
                batch.confirmed[LANES[lane]] = true;
                let ids = batch.ids;
                s.queued.insert(ids);
                s.accepted |= ids;
            }
            Refuse(lane) | TimeOut(lane) => {
                let ids = s.advance(lane, Failed).ids;
                if action == TimeOut(lane) {
                    s.late.insert(ids);
                }
                s.accepted |= when(is(Flaw::AnswerBeforeSpill), ids);
            }
            // Nothing is spilled of a batch that has no row.
            Spill(lane) | SpillUnseen(lane) => {
                let is_seen = action == Spill(lane);
                let batch = s.advance(lane, if is_seen { Idle } else { Failed });
                let ids = when(!batch.deleted, batch.ids);
                batch.spilled |= !batch.deleted;
                batch.deleted = true;
                s.spilled |= ids;
                s.drained &= !ids;
                s.accepted |= when(is_seen, ids);
            }
            Free(lane) => {
                let (_, id) = s.lanes[lane];
                let batch = s.advance(lane, Idle);
                batch.deleted |= is(Flaw::FailureDeletesRow);
                if is(Flaw::FailureDeletesClaims) {
                    s.delete_claims(id);
                }
            }
            Die(lane) => {
                for lane in (0..LANES.len()).filter(|one| LANES[*one] == LANES[lane]) {
                    if s.lanes[lane].0 != Idle {
                        let is_sent = s.lanes[lane].0 == Sent;
                        let ids = s.advance(lane, Idle).ids;
                        if is_sent {
                            s.late.insert(ids);
                        }
                    }
                }
                for batch in &mut s.batches {
                    batch.confirmed[LANES[lane]] = false;
                }
            }
            Settle(lane, batch) => {
                s.batches[batch].confirmed[LANES[lane]] = false;
                s.batches[batch].deleted = true;
            }
            Crash(batch) => {
                s.batches[batch].deleted = false;
                if is(Flaw::ClaimNotDurable) {
                    s.delete_claims(batch);
                }
            }
            Begin(lane) => s.begun = Some((lane, s.snapshot())),
            Change => {
                s.filled = !s.filled;
                s.changes += 1;
            }
            Carry(key) => {
                let filled = s.filled;
                s.claims[key]
                    .iter_mut()
                    .for_each(|claim| claim.half = filled);
                s.is_carried = true;
            }
            Remember(key) => {
                let id = s.claims[key].map_or(0, |claim| claim.id);
                s.memory[key] = id;
            }
            Clear(key) => s.claims[key] = None,
            Lock => s.row = Row::Locked,
            Unlock => s.row = Row::Released,
            Apply(id) => s.applied |= id,
            Drain(id) => {
                s.is_drained_twice |= id & s.drained != 0;
                s.drained |= id;
                s.applied |= when(!is(Flaw::DeletedBeforeStored), id);
                s.spilled &= !when(!is(Flaw::StoredAndKept), id);
            }
            SetAside(message) => {
                s.queued.remove(&message);
                let rest = message & !s.applied;
                s.spilled |= when(!is(Flaw::AckBeforeAside), rest);
                s.drained &= !rest;
            }
            Ack(_) if is(Flaw::AckOfAll) => s.queued.clear(),
            Ack(message) => {
                s.queued.remove(&message);
            }
        }
        // A late copy of what is applied has nothing left to do.
        s.late.retain(|message| message & !s.applied != 0);
    }

    /// Whether nothing is left but faults.
    fn is_end(&self, s: &State) -> bool {
        let mut left = Vec::new();
        self.actions(s, &mut left);
        left.iter().all(Action::is_fault)
    }

    /// Whether one more post of each key, all in one batch, with no lease and no fault, is accepted
    /// and applied, unless its row is locked.
    fn is_open(&self, end: &State) -> bool {
        let mut s = end.clone();
        s.posts = [1; KEYS];
        s.faults = u8::MAX;
        while let Some(next) = self.next_states(&s).into_iter().next() {
            s = next;
        }
        let done = s.accepted & s.applied;
        let is_done = |key: usize| {
            let claimed = s.claims[key].map_or(s.memory[key], |claim| claim.id);
            claimed & done != 0 || s.is_locked(key)
        };
        (0..KEYS).all(is_done)
    }
}

impl Model for Intake {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let (posts, ..) = self.scope;
        let none = State::default();
        vec![State { posts, ..none }]
    }

    fn actions(&self, s: &State, actions: &mut Vec<Action>) {
        let (_, _, has_mover) = self.scope;
        for (lane, &(stage, _)) in s.lanes.iter().enumerate() {
            match stage {
                // The gateways are alike, so the first one makes the first claim.
                Idle if lane > 0 && s.batches.is_empty() => {}
                Idle => {
                    // Before any claim there is nothing that could move meanwhile, and the lanes
                    // are alike.
                    let may_begin = lane == LANES.len() - 1 && s.begun.is_none();
                    let is_needed = s.posts != [0; KEYS] && s.claims().next().is_some();
                    if has_mover && may_begin && is_needed {
                        actions.push(Begin(lane));
                    }
                    let is_posted = |keys: &[usize]| keys.iter().all(|&key| s.posts[key] > 0);
                    for keys in GATHERS.into_iter().filter(|keys| is_posted(keys)) {
                        actions.extend([Gather(lane, keys, true), Gather(lane, keys, false)]);
                    }
                }
                Claimed => actions.push(Publish(lane)),
                Sent => actions.extend([Confirm(lane), Refuse(lane), TimeOut(lane)]),
                Failed => actions.extend([Spill(lane), SpillUnseen(lane), Free(lane)]),
            }
            let knows = |batch: &Batch| batch.confirmed[LANES[lane]];
            if stage != Idle || s.batches.iter().any(knows) {
                actions.push(Die(lane));
            }
            for (id, batch) in s.batches.iter().enumerate() {
                if knows(batch) {
                    actions.push(Settle(lane, id));
                }
            }
        }
        let is = |flaw| self.flaw == flaw;
        let is_other = |claim: &Claim| claim.half != s.filled;
        // The mover waits for statements that have begun.
        let is_alone = s.begun.is_none();
        let has_claims = s.claims().next().is_some() && !s.claims().any(is_other);
        if has_mover
            && has_claims
            && s.changes < CHANGES
            && (is_alone || is(Flaw::ChangedBeforeOver))
        {
            actions.push(Change);
        }
        for (key, claim) in s.claims.iter().enumerate().filter(|_| has_mover) {
            let Some(claim) = claim.filter(is_other) else {
                continue;
            };
            let is_recorded = claim.id & s.applied != 0;
            let is_copied = s.memory[key] != 0;
            if (is_recorded || is(Flaw::CopiedBeforeRecorded)) && !is_copied {
                actions.push(Remember(key));
            }
            if !is_recorded && !is_copied {
                actions.push(Carry(key));
            }
            let may_clear = is_copied
                || is_recorded && is(Flaw::DeletedBeforeCopied)
                || is(Flaw::EmptiedBeforeCarried);
            if may_clear && (is_alone || is(Flaw::DeletedBeforeSeen)) {
                actions.push(Clear(key));
            }
        }
        // A spill is durable.
        let is_settled = |batch: &Batch| batch.deleted && !batch.spilled;
        let settled = (0..s.batches.len()).filter(|&id| is_settled(&s.batches[id]));
        actions.extend(settled.map(Crash));
        let each = |ids: Ids| (0..Ids::BITS).map(move |bit| 1 << bit & ids);
        let each = |ids: Ids| each(ids).filter(|id| *id != 0);
        actions.extend(each(self.storable(s)).map(Apply));
        actions.extend(each(self.drainable(s)).map(Drain));
        for &message in &s.queued {
            let goes_on = !is(Flaw::TriesInPlace) && !is(Flaw::LockIsOutage);
            if message & !s.applied != 0 && goes_on {
                actions.push(SetAside(message));
            }
            if message & !s.applied == 0 || is(Flaw::AckBeforeCommit) {
                actions.push(Ack(message));
            }
        }
        match s.row {
            Row::Free => actions.push(Lock),
            Row::Locked => actions.push(Unlock),
            Row::Released => {}
        }
        let (_, budget, _) = self.scope;
        actions.retain(|action| s.faults < budget || !action.is_fault());
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut next = last.clone();
        next.faults += u8::from(action.is_fault());
        self.step(&mut next, action);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let always = Property::<Self>::always;
        let sometimes = Property::<Self>::sometimes;
        vec![
            always(LOST, |_, s| s.accepted & !s.recorded() == 0),
            always(TWICE, |_, s| {
                let published = s.published() | s.spilled | s.applied;
                let published = s.at(Sent).fold(published, |ids, batch| ids | batch.ids);
                let keys = published.to_le_bytes();
                keys.iter().all(|ids| ids.count_ones() <= 1)
            }),
            always(UNCLAIMED, |_, s| {
                s.accepted & !s.applied & !s.claimed() == 0
            }),
            always(UNRECORDED, |_, s| {
                let mut settled = s.claims().filter(|claim| s.batches[claim.batch].deleted);
                settled.all(|claim| claim.id & s.recorded() != 0)
            }),
            always(STUCK, |model, s| !model.is_end(s) || model.is_open(s)),
            sometimes("a run ends with a key left to a retry", |model, s| {
                s.claims().any(|claim| claim.id & s.recorded() == 0) && model.is_end(s)
            }),
            sometimes("a duplicate is answered", |model, s| {
                let posted = (0..KEYS).filter(|&key| s.posts[key] > 0);
                let mut earlier = posted.filter_map(|key| Some(&s.batches[s.claims[key]?.batch]));
                s.lanes[0].0 == Idle && earlier.any(|batch| model.is_duplicate(0, batch))
            }),
            sometimes("a claim is taken over", |_, s| {
                let first_batch = |claim: &Claim| claim.id.trailing_zeros() as usize % 8;
                s.claims().any(|claim| claim.batch != first_batch(claim))
            }),
            sometimes("two gateways publish the same id", |_, s| {
                let sent: Vec<_> = s.at(Sent).map(|batch| batch.ids).collect();
                sent.len() > 1 && sent[0] & sent[1] != 0
            }),
            sometimes("a confirm is lost after the effect", |_, s| {
                let mut failed = s.at(Failed).filter(|batch| !batch.spilled);
                failed.any(|batch| batch.ids & !s.applied == 0)
            }),
            sometimes("a copy has no effect", |_, s| {
                s.at(Sent).any(|batch| batch.ids & !s.applied == 0)
            }),
            always(ONCE, |_, s| !s.is_drained_twice),
            sometimes("what is spilled is stored", |_, s| s.drained != 0),
            sometimes("what is spilled is in the queue, too", |_, s| {
                s.spilled & s.published() != 0
            }),
            sometimes("a spill commits unseen", |_, s| {
                let mut spilled = s.at(Failed).filter(|batch| batch.spilled);
                spilled.any(|batch| batch.ids & s.accepted == 0)
            }),
            sometimes(
                "a claim is copied while a statement is under way",
                |model, s| {
                    let (_, _, has_mover) = model.scope;
                    let is_copied = |key| match s.begun {
                        Some((_, seen)) => s.memory[key] != 0 && seen.memory[key] == 0,
                        None => false,
                    };
                    !has_mover || (0..KEYS).any(is_copied)
                },
            ),
            sometimes("a claim is carried over", |model, s| {
                let (_, _, has_mover) = model.scope;
                !has_mover || s.is_carried
            }),
            sometimes("a message is stored but for a locked entry", |model, s| {
                let ([_, others], ..) = model.scope;
                let is_held = |ids: &Ids| ids & s.locked() != 0 && ids & s.applied != 0;
                others == 0 || s.queued.iter().any(is_held)
            }),
            sometimes("a crash brings a settled row back", |model, s| {
                let (_, budget, _) = model.scope;
                let is_settled = |batch: &Batch| batch.deleted && !batch.spilled;
                s.faults < budget && s.batches.iter().any(is_settled)
            }),
        ]
    }
}

const LOST: &str = "no accepted event is lost";
const TWICE: &str = "no key has two effects";
const ONCE: &str = "nothing is stored from the spill twice";
const UNRECORDED: &str = "no settled key is unrecorded";
const UNCLAIMED: &str = "no accepted event is unclaimed before it is applied";
const STUCK: &str = "no key ends stuck, unless its own row is locked";

/// Goes through every schedule, and panics for one in which a promise is broken.
pub fn check_every_schedule() {
    let threads = available_parallelism().map_or(1, NonZero::get);
    for (scope, floor) in [(ONE_KEY, 50_000), (TWO_KEYS, 100_000), (MOVED, 100_000)] {
        let flaw = Flaw::None;
        let model = Intake { flaw, scope };
        let checker = model.checker().threads(threads).spawn_bfs().join();
        let (states, depth) = (checker.unique_state_count(), checker.max_depth());
        let reached = checker.discoveries().len();
        println!("intake model: {states} states, depth {depth}, {reached} of 13 reached");
        checker.assert_properties();
        assert!(states > floor && depth > 15, "the model has shrunk");
    }
}

/// How many steps a schedule takes that breaks the promise.
fn steps_to_break(promise: &'static str, flaw: Flaw) -> usize {
    let scope = match flaw {
        Flaw::DeletedBeforeCopied
        | Flaw::DeletedBeforeSeen
        | Flaw::CopiedBeforeRecorded
        | Flaw::EmptiedBeforeCarried
        | Flaw::ChangedBeforeOver
        | Flaw::OtherHalfNotAsked => TWO_MOVED,
        _ => TWO_KEYS,
    };
    let broken = HasDiscoveries::AnyOf([promise].into());
    let checker = Intake { flaw, scope }.checker().finish_when(broken);
    let found = checker.spawn_bfs().join().discovery(promise);
    found.expect("the flaw goes unseen").into_actions().len()
}

/// Panics if one of the broken variants keeps its promise.
pub fn check_every_flaw() {
    for (flaw, promise) in [
        (Flaw::AnswerBeforeConfirm, LOST),
        (Flaw::AnswerBeforeSpill, LOST),
        (Flaw::SettleBeforeConfirm, UNRECORDED),
        (Flaw::DeletedBeforeStored, LOST),
        (Flaw::StoredAndKept, ONCE),
        (Flaw::StoredByTwo, ONCE),
        (Flaw::SpillWaits, STUCK),
        (Flaw::TakeoverWithNewId, TWICE),
        (Flaw::TakenIntoOtherBatch, UNRECORDED),
        (Flaw::TakeoverDeletesRow, UNRECORDED),
        (Flaw::DuplicateWhileClaimed, LOST),
        (Flaw::LeaseWithoutEnd, STUCK),
        (Flaw::FailureDeletesRow, UNRECORDED),
        (Flaw::FailureDeletesClaims, TWICE),
        (Flaw::AckBeforeCommit, LOST),
        (Flaw::AckOfAll, LOST),
        (Flaw::AckBeforeAside, LOST),
        (Flaw::ClaimFailsWhole, STUCK),
        (Flaw::LockIsOutage, STUCK),
        (Flaw::TriesInPlace, STUCK),
        (Flaw::AsideForEver, STUCK),
        (Flaw::ClaimNotDurable, TWICE),
        (Flaw::DeletedBeforeCopied, TWICE),
        (Flaw::DeletedBeforeSeen, TWICE),
        (Flaw::CopiedBeforeRecorded, UNCLAIMED),
        (Flaw::EmptiedBeforeCarried, UNCLAIMED),
        (Flaw::ChangedBeforeOver, TWICE),
        (Flaw::OtherHalfNotAsked, TWICE),
    ] {
        let steps = steps_to_break(promise, flaw);
        println!("intake model: {flaw:?}: {promise:?} does not hold after {steps} steps");
    }
}
