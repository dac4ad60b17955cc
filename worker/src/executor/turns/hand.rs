//! What this worker has in hand: its places, the runs that have them, and the accounts that those
//! may call.

use std::{
    collections::HashMap,
    mem,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use letterbox_common::{
    ids::{AccountId, RunId, WorkspaceId},
    process::metrics::OneMore,
};
use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, SetOnce};
use uuid::Uuid;

use super::fairness::Lane;
use crate::{
    executor::{record::Turn, transition::Beginning},
    metrics,
};

/// Runs in hand by their keys: the token of the turn, and the lane that they count in.
type Runs = HashMap<(WorkspaceId, RunId), (i64, Lane)>;

/// How long a run whose attempt has begun waits until its account may be called. It goes to the end
/// of its lane then.
const CALL_WITHIN: Duration = Duration::from_millis(500);
/// A request that is answered within this time lets another run be taken ahead: that will have room
/// in a few times as long.
const QUICK: Duration = Duration::from_millis(100);

/// How long to gather room while there is more to do than room for it: runs that were taken ahead
/// are in hand meanwhile.
const GATHER: Duration = Duration::from_millis(4);

/// The runs that a worker executes, and for whom it may look. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Hand(Arc<Inner>);

struct Inner {
    places: u16,
    requests_per_account: u16,
    runs: Mutex<Runs>,
    accounts: Mutex<HashMap<Lane, RoomOfAccount>>,
    /// A run is due.
    due: Notify,
    /// There is room again: a place, or a request to an account.
    room: Notify,
}

/// The room of an account that runs in hand call.
struct RoomOfAccount {
    /// A permit for each further request that may be under way.
    free: Arc<Semaphore>,
    /// The requests that were quickly answered since the last look.
    answered: usize,
}

impl Hand {
    /// A hand with this many places, all of them free, and with this many requests to an account
    /// at once.
    pub(crate) fn new(places: u16, requests_per_account: u16) -> Self {
        metrics::PLACES.set(places.into());
        Self(Arc::new(Inner {
            places,
            requests_per_account,
            runs: Mutex::default(),
            accounts: Mutex::default(),
            due: Notify::new(),
            room: Notify::new(),
        }))
    }

    /// Tells that a run is due: looking for it now saves the pause.
    pub(crate) fn look(&self) {
        self.0.due.notify_one();
    }

    /// Waits until a run is due; or until there is room again, if there is `more` to do with it,
    /// and a moment longer: one look for several places costs less than one for each.
    pub(super) async fn more(&self, more: bool) {
        let room = async {
            self.0.room.notified().await;
            tokio::time::sleep(GATHER).await;
        };
        tokio::select! {
            () = self.0.due.notified() => {}
            () = room, if more => {}
        }
    }

    pub(super) fn places(&self) -> u16 {
        self.0.places
    }

    pub(super) fn free(&self) -> usize {
        usize::from(self.0.places).saturating_sub(self.0.runs.lock().len())
    }

    /// The runs in hand, with the lanes that they count in.
    pub(super) fn runs(&self) -> HashMap<(WorkspaceId, RunId), Lane> {
        let runs = self.0.runs.lock();
        runs.iter().map(|(key, (_, lane))| (*key, *lane)).collect()
    }

    /// How many requests each account has quickly answered since this was asked last.
    pub(super) fn answered(&self) -> HashMap<Lane, usize> {
        let mut accounts = self.0.accounts.lock();
        let answered = accounts.iter_mut();
        let answered = answered.map(|(lane, one)| (*lane, mem::take(&mut one.answered)));
        let answered = answered.filter(|(_, number)| *number > 0).collect();
        // Nobody calls the others, or waits for that.
        accounts.retain(|_, one| Arc::strong_count(&one.free) > 1);
        answered
    }

    /// Gives a place to a run that was taken to call this account, and may not be recorded yet.
    pub(super) fn take(
        &self,
        turn: Turn,
        account: Option<AccountId>,
        recording: Option<Arc<Recording>>,
    ) -> Place {
        let key = (turn.workspace, turn.run);
        let lane = Lane {
            workspace: turn.workspace,
            account,
        };
        self.0.runs.lock().insert(key, (turn.token, lane));
        Place {
            hand: self.clone(),
            key,
            lane,
            turn: turn.token,
            recording,
            is_due: AtomicBool::new(false),
            _taken: metrics::PLACES_TAKEN.hold(),
        }
    }
}

/// What came of a beginning: its idempotency key, if all that it was decided by held.
pub(super) type Begun = Option<Uuid>;

/// What a run and the transaction that records it tell each other, if the run is executed while
/// that is open: as far as it comes without waiting, or asking the database. Nothing of it is
/// written, and nothing is sent, before the commit is known, but what is begun in the same
/// transaction.
#[derive(Default)]
pub(super) struct Recording {
    /// What the run is about to begin.
    pub(super) beginning: Mutex<Option<Arc<Beginning>>>,
    /// It is committed; what came of the beginning, if it began there.
    pub(super) committed: SetOnce<Option<Begun>>,
}

/// The place of one run, until it is dropped.
pub(in crate::executor) struct Place {
    hand: Hand,
    key: (WorkspaceId, RunId),
    /// The one that it was taken in.
    lane: Lane,
    turn: i64,
    /// Of a run that is executed before its recording is committed.
    recording: Option<Arc<Recording>>,
    is_due: AtomicBool,
    _taken: OneMore,
}

impl Place {
    /// Waits until the run is recorded.
    pub(in crate::executor) async fn recorded(&self) {
        if let Some(recording) = &self.recording {
            recording.committed.wait().await;
        }
    }

    /// What came of this beginning, if the run is recorded with it.
    pub(in crate::executor) async fn begun(&self, beginning: &Arc<Beginning>) -> Option<Begun> {
        let open = |one: &&Arc<Recording>| !one.committed.initialized();
        let recording = self.recording.as_ref().filter(open)?;
        *recording.beginning.lock() = Some(beginning.clone());
        *recording.committed.wait().await
    }

    /// Waits until the account of its lane may be called, by one run more; `None` if that takes too
    /// long.
    pub(in crate::executor) async fn call(&self) -> Option<Call> {
        let free = {
            let mut accounts = self.hand.0.accounts.lock();
            let room = accounts.entry(self.lane).or_insert_with(|| RoomOfAccount {
                free: Arc::new(Semaphore::new(self.hand.0.requests_per_account.into())),
                answered: 0,
            });
            room.free.clone()
        };
        let permit = tokio::time::timeout(CALL_WITHIN, free.acquire_owned()).await;
        Some(Call {
            hand: self.hand.clone(),
            lane: self.lane,
            since: Instant::now(),
            _permit: permit.ok()?.ok()?,
        })
    }

    /// The run sends no further request before it is taken again: another one may call the account.
    pub(in crate::executor) fn calls_no_more(&self) {
        if let Some((turn, lane)) = self.hand.0.runs.lock().get_mut(&self.key)
            && *turn == self.turn
        {
            lane.account = None;
        }
        self.hand.0.room.notify_one();
    }

    /// The run was let go of, and is due again: it is looked for once its place is free.
    pub(in crate::executor) fn look_again(&self) {
        self.is_due.store(true, Ordering::Relaxed);
    }
}

/// The room that a request to an account takes.
pub(in crate::executor) struct Call {
    hand: Hand,
    lane: Lane,
    since: Instant,
    _permit: OwnedSemaphorePermit,
}

impl Call {
    /// The request is over.
    pub(in crate::executor) fn end(self, is_answered: bool) {
        if let Some(room) = self.hand.0.accounts.lock().get_mut(&self.lane)
            && is_answered
            && self.since.elapsed() < QUICK
        {
            room.answered += 1;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut runs = self.hand.0.runs.lock();
        if runs
            .get(&self.key)
            .is_some_and(|(turn, _)| *turn == self.turn)
        {
            runs.remove(&self.key);
        }
        drop(runs);
        self.hand.0.room.notify_one();
        if *self.is_due.get_mut() {
            self.hand.look();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_account_has_room_for_so_many_requests() {
        let hand = Hand::new(10, 2);
        let account = Some(AccountId::generate());
        let workspace = WorkspaceId::generate();
        let place = || {
            let run = RunId::generate();
            let token = 1;
            let turn = Turn {
                workspace,
                run,
                token,
            };
            hand.take(turn, account, None)
        };
        let places = [place(), place(), place()];
        let [first, second] = [places[0].call().await, places[1].call().await];
        let mut third = std::pin::pin!(places[2].call());
        assert!(futures_util::poll!(&mut third).is_pending(), "it waits");
        first.unwrap().end(true);
        let third = third.await.expect("there is room again");
        let mut slow = second.unwrap();
        slow.since -= QUICK;
        slow.end(true);
        third.end(false);
        let lane = Lane { workspace, account };
        let quick = HashMap::from([(lane, 1)]);
        assert_eq!(hand.answered(), quick, "one was quick, and answered");
        assert_eq!(hand.answered(), HashMap::new());
        assert!(hand.0.accounts.lock().is_empty(), "nobody calls it");
    }
}
