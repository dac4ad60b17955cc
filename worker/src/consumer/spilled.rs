//! Stores the spill, whatever has become of the broker: round after round some messages of each
//! workspace, those first that have waited longest.
//!
//! What can't be stored now is put off. Workspaces that [wait](super::locked) have a loop of their
//! own, in which they are tried one by one and door by door.
//!
//! A message that was taken a few times, and of which nobody has said anything since, is suspect:
//! it may have killed its workers. It is stored by itself, after the others and in random order,
//! and is given up after many such tries.

use std::{
    collections::{BTreeMap, HashSet},
    time::Duration,
};

use letterbox_database::DatabaseError;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::storing::{Attempted, Storing};
use crate::{
    apply::{DecodedEntry, door_of},
    spill::{self, Spilled},
};

/// How many messages are taken at once, of so many workspaces; and how many of a workspace that
/// waits: each of these may take the time of a lock.
const PAGE: i64 = 256;
const WORKSPACES: i64 = 64;
const WAITING_PAGE: i64 = 20;
/// How long other workers leave a message to the one that has taken it, which may have died. Two
/// that have it store it once.
const LEASE: Duration = Duration::from_secs(10);
/// How long a message is left alone that could not be stored.
const PUT_OFF: Duration = Duration::from_secs(3);
/// From so many takes without a word on, a message is stored by itself.
const SUSPECT_FROM: i64 = 3;
/// Pause when there was nothing to take.
const PAUSE: Duration = Duration::from_secs(1);

/// Stores the spill until `stop`, and finishes what was taken.
pub(super) async fn store_spill(storing: &Storing<'_>, stop: &CancellationToken) {
    let rest = async {
        let pause = || timeout(PAUSE, storing.set_aside.notified());
        while stop.run_until_cancelled(pause()).await.is_some() {
            // Failures are logged where they happen, and tried again after the pause.
            while !stop.is_cancelled() && store_round(storing, stop).await.unwrap_or(false) {}
        }
    };
    let waiting = async {
        while stop.run_until_cancelled(sleep(PAUSE)).await.is_some() {
            while !stop.is_cancelled() && store_waiting(storing).await.unwrap_or(false) {}
        }
    };
    tokio::join!(rest, waiting);
}

/// Stores some messages of each workspace but those that wait. Returns `true` if there may be more.
async fn store_round(
    storing: &Storing<'_>,
    stop: &CancellationToken,
) -> Result<bool, DatabaseError> {
    let database = &storing.recorder.database;
    let mut from = Uuid::nil();
    let mut has_more = false;
    while !stop.is_cancelled() {
        let waiting = storing.locked.all();
        let some = spill::spilling_workspaces(database, WORKSPACES, from, &waiting).await?;
        let some: Vec<Uuid> = some.into_iter().map(|(workspace,)| workspace).collect();
        let Some(last) = some.last() else {
            break;
        };
        from = Uuid::from_u128(last.as_u128().saturating_add(1));
        let each = PAGE / some.len() as i64;
        let taken = spill::take_spilled(database, &some, each, LEASE.as_secs_f64()).await?;
        has_more |= !taken.is_empty();
        store_taken(storing, taken, false).await?;
    }
    Ok(has_more)
}

/// Stores some messages of the workspace that waits and has been due for longest. Returns `true` if
/// there was one.
async fn store_waiting(storing: &Storing<'_>) -> Result<bool, DatabaseError> {
    let Some(due) = storing.locked.due() else {
        return Ok(false);
    };
    let database = &storing.recorder.database;
    let lease = LEASE.as_secs_f64();
    let taken = spill::take_spilled(database, &[due.into()], WAITING_PAGE, lease).await?;
    let stored = store_taken(storing, taken, true).await?;
    storing.locked.note(due, stored);
    Ok(true)
}

/// Stores messages, those of a queue together, and if one of their doors may be locked those of a
/// door. Gives back what there is no time for before the lease ends, and what turns out to be of a
/// door or a workspace with a lock. Returns how many entries it has stored.
async fn store_taken(
    storing: &Storing<'_>,
    taken: Vec<Spilled>,
    may_be_locked: bool,
) -> Result<usize, DatabaseError> {
    let began = Instant::now();
    let (fresh, mut returned): (Vec<_>, Vec<_>) = taken
        .into_iter()
        .partition(|one| one.returns < SUSPECT_FROM);
    let mut together: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for one in fresh {
        let door = one.entries.first().and_then(door_of);
        let part = (one.queue.clone(), door.filter(|_| may_be_locked));
        together.entry(part).or_default().push(one);
    }
    fastrand::shuffle(&mut returned);
    let parts = together.into_values();
    let parts = parts.chain(returned.into_iter().map(|one| vec![one]));
    let mut stored = 0;
    let mut untried = Vec::new();
    let mut locked = HashSet::new();
    for part in parts {
        let door = part.first().and_then(|one| door_of(one.entries.first()?));
        let waits = !may_be_locked && part.len() == 1 && storing.locked.has(door);
        if waits || locked.contains(&door) || began.elapsed() > LEASE / 2 {
            untried.extend(part.iter().map(|one| (one.id, one.returns)));
            continue;
        }
        let (done, is_locked) = store(storing, part).await?;
        stored += done;
        if is_locked && may_be_locked {
            locked.insert(door);
        }
    }
    if !untried.is_empty() {
        let (ids, returns): (Vec<_>, Vec<_>) = untried.into_iter().unzip();
        spill::give_back(&storing.recorder.database, &ids, &returns).await?;
    }
    Ok(stored)
}

/// Stores messages of one queue; returns how many entries it has stored, and whether a row of
/// others is locked.
async fn store(storing: &Storing<'_>, taken: Vec<Spilled>) -> Result<(usize, bool), DatabaseError> {
    let Some(first) = taken.first() else {
        return Ok((0, false));
    };
    let queue = &first.queue.clone();
    let returns = first.returns;
    let mut over = BTreeMap::new();
    let mut entries = Vec::new();
    for one in taken {
        over.insert(one.id, one.returns);
        let decoded = |entry| DecodedEntry::new(entry, Some(one.id));
        entries.extend(one.entries.into_iter().map(decoded));
    }
    let Attempted {
        done,
        left,
        locked,
        letters,
    } = match storing.is_deadly(returns).await {
        true => storing.bury(queue, entries, returns).await,
        false => storing.attempt(queue, entries).await,
    };
    let is_locked = !locked.is_empty();
    storing.locked.add(locked);
    // What is to be a dead letter is not tried again; otherwise this worker has lived.
    let takes = if letters.is_empty() { 0 } else { returns };
    let unfinished = left.into_iter().chain(letters);
    let left = unfinished.filter_map(|one| over.remove_entry(&one.spilled?));
    let (left, before): (Vec<_>, Vec<_>) = left.unzip();
    // Those that are stored are deleted already; of the others there are dead letters.
    if over.len() > done || !left.is_empty() {
        let over: Vec<i64> = over.into_keys().collect();
        let database = &storing.recorder.database;
        let pause = PUT_OFF.as_secs_f64();
        spill::settle_spilled(database, &over, &left, &before, pause, takes).await?;
    }
    Ok((done, is_locked))
}
