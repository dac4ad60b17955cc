//! Stores the spill, whatever has become of the broker: some messages at a time, those first that
//! have waited longest.
//!
//! What can't be stored now is put off. Workspaces that [wait](super::locked) have a loop of their
//! own, in which they are tried one by one and door by door.
//!
//! A message that nobody has said anything of since it was taken is suspect: it may have killed its
//! worker. It is stored by itself, after the others and in random order, and is given up after many
//! such tries.

use std::{collections::BTreeMap, time::Duration};

use letterbox_database::DatabaseError;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::storing::{Attempted, Storing};
use crate::{
    apply::{DecodedEntry, door_of},
    spill::{self, Spilled},
};

/// How many messages are taken at once, and how many of a workspace that waits: each of these may
/// take the time of a lock.
const PAGE: i64 = 256;
const WAITING_PAGE: i64 = 20;
/// How long other workers leave a message to the one that has taken it, which may have died. Two
/// that have it store it once.
const LEASE: Duration = Duration::from_secs(10);
/// How long a message is left alone that could not be stored.
const PUT_OFF: Duration = Duration::from_secs(3);
/// Pause when there was nothing to take.
const PAUSE: Duration = Duration::from_secs(1);

/// Stores the spill until `stop`, and finishes what was taken.
pub(super) async fn store_spill(storing: &Storing<'_>, stop: &CancellationToken) {
    let rest = async {
        let pause = || timeout(PAUSE, storing.set_aside.notified());
        while stop.run_until_cancelled(pause()).await.is_some() {
            // Failures are logged where they happen, and tried again after the pause.
            while !stop.is_cancelled() && store_rest(storing).await.unwrap_or(false) {}
        }
    };
    let waiting = async {
        while stop.run_until_cancelled(sleep(PAUSE)).await.is_some() {
            while !stop.is_cancelled() && store_waiting(storing).await.unwrap_or(false) {}
        }
    };
    tokio::join!(rest, waiting);
}

/// Stores some messages of all workspaces but those that wait. Returns `true` if there may be more.
async fn store_rest(storing: &Storing<'_>) -> Result<bool, DatabaseError> {
    let waiting = storing.locked.all();
    let database = &storing.recorder.database;
    let taken = spill::take_spilled(database, PAGE, LEASE.as_secs_f64(), &waiting, false).await?;
    let has_more = !taken.is_empty();
    store_taken(storing, taken, false).await?;
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
    let taken = spill::take_spilled(database, WAITING_PAGE, lease, &[due], true).await?;
    let stored = store_taken(storing, taken, true).await?;
    storing.locked.note(due, stored);
    Ok(true)
}

/// Stores messages, those of a queue together, and if one of their doors may be locked those of a
/// door. Returns how many entries it has stored.
async fn store_taken(
    storing: &Storing<'_>,
    taken: Vec<Spilled>,
    may_be_locked: bool,
) -> Result<usize, DatabaseError> {
    let (fresh, mut returned): (Vec<_>, Vec<_>) =
        taken.into_iter().partition(|one| one.returns == 0);
    let mut together: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for one in fresh {
        let door = one.entries.first().and_then(door_of);
        let part = (one.queue.clone(), door.filter(|_| may_be_locked));
        together.entry(part).or_default().push(one);
    }
    let mut stored = 0;
    for ((queue, _), part) in together {
        stored += store(storing, &queue, part, 0).await?;
    }
    fastrand::shuffle(&mut returned);
    for one in returned {
        let queue = one.queue.clone();
        let returns = one.returns;
        stored += store(storing, &queue, vec![one], returns).await?;
    }
    Ok(stored)
}

/// Stores messages of one queue that were returned so often; returns how many entries it has
/// stored.
async fn store(
    storing: &Storing<'_>,
    queue: &str,
    taken: Vec<Spilled>,
    returns: i64,
) -> Result<usize, DatabaseError> {
    let mut over = BTreeMap::new();
    let mut entries = Vec::new();
    for one in taken {
        over.insert(one.id, one.workspace);
        let decoded = |entry| DecodedEntry::new(entry, Some(one.id));
        entries.extend(one.entries.into_iter().map(decoded));
    }
    let Attempted {
        done,
        left,
        letters,
    } = match storing.is_deadly(returns).await {
        true => storing.bury(queue, entries, returns).await,
        false => storing.attempt(queue, entries).await,
    };
    let mut take = |entry: DecodedEntry| over.remove_entry(&entry.spilled?);
    let locked: Vec<_> = left.into_iter().filter_map(&mut take).collect();
    let letters: Vec<_> = letters.into_iter().filter_map(&mut take).collect();
    // Those that are stored are deleted already; of the others there are dead letters.
    if over.len() > done || !locked.is_empty() || !letters.is_empty() {
        // This worker has lived. What is to be a dead letter is not tried again.
        let takes = if letters.is_empty() { 0 } else { returns };
        let left: Vec<i64> = locked.iter().chain(&letters).map(|(id, _)| *id).collect();
        let over: Vec<i64> = over.into_keys().collect();
        let database = &storing.recorder.database;
        spill::settle_spilled(database, &over, &left, PUT_OFF.as_secs_f64(), takes).await?;
    }
    // The database answers: a row of these is locked.
    storing
        .locked
        .add(locked.into_iter().map(|(_, workspace)| workspace));
    Ok(done)
}
