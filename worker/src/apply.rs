//! Applies claimed entries to the database: one transaction for all entries of a kind. If that
//! fails, one for each half, and so on, so that a bad entry fails alone; or one for each workspace
//! where a row may be locked, so that no tenant waits for another's lock.

use std::{
    collections::BTreeSet,
    panic::{AssertUnwindSafe, catch_unwind},
};

use letterbox_broker::{Content, ReceivedEntry};
use letterbox_common::ids::WorkspaceId;
use letterbox_database::{DatabaseError, Fault, divide, health};
use uuid::Uuid;

use crate::{
    claims::{self, Claimed},
    outcome::{Cause, EntryOutcome, Rejection},
    recorder::{Recorded, Recorder},
    runs::NewRun,
    signals::Signal,
};

/// The effect that an entry asks for.
enum Wish {
    Signal(Signal),
    Run(NewRun),
}

/// An entry with the effect it asks for, or why it can't be decoded.
pub(crate) struct DecodedEntry {
    pub(crate) entry: ReceivedEntry,
    /// The message in the spill that it was in, if it has come from there.
    pub(crate) spilled: Option<i64>,
    wish: Result<Wish, String>,
}

/// Where an entry came in: its workspace, and the webhook or workflow there.
pub(crate) type EntryDoor = (WorkspaceId, Uuid);

impl DecodedEntry {
    pub(crate) fn new(entry: ReceivedEntry, spilled: Option<i64>) -> Self {
        let wish = decode(&entry);
        Self {
            entry,
            spilled,
            wish,
        }
    }

    /// `None` if it can't be decoded.
    pub(crate) fn door(&self) -> Option<EntryDoor> {
        door_of(&self.entry)
    }
}

/// `None` if it can't be decoded.
pub(crate) fn door_of(entry: &ReceivedEntry) -> Option<EntryDoor> {
    match entry.content.as_ref().ok()? {
        Content::Delivery(delivery) => Some((delivery.workspace, delivery.webhook.into())),
        Content::Submission(submission) => Some((submission.workspace, submission.workflow.into())),
    }
}

/// Decodes an entry. The error is stored in a header, so it doesn't quote the entry.
fn decode(entry: &ReceivedEntry) -> Result<Wish, String> {
    let content = entry.content.as_ref().map_err(ToString::to_string)?;
    let body = &entry.body;
    let decoding = || match content {
        Content::Delivery(delivery) => Wish::Signal(Signal::of_delivery(delivery, body)),
        Content::Submission(submission) => Wish::Run(NewRun::of_submission(submission, body)),
    };
    // A panic rejects this entry alone instead of killing the worker.
    catch_unwind(AssertUnwindSafe(decoding))
        .map_err(|_| "decoding the entry panicked: this is a bug in Letterbox".to_owned())
}

/// An item, the message in the spill that it was in, and what becomes of it.
type Item<'e, T> = (&'e T, Option<i64>, &'e mut EntryOutcome);

/// Applies entries. Returns one outcome per entry, in their order: `Retry` for those that can't be
/// stored now, which are all while the database is unavailable.
pub(crate) async fn apply(recorder: &Recorder, entries: &[DecodedEntry]) -> Vec<EntryOutcome> {
    let mut outcomes = vec![EntryOutcome::Retry; entries.len()];
    let mut signals = Vec::new();
    let mut runs = Vec::new();
    for (entry, outcome) in entries.iter().zip(&mut outcomes) {
        let spilled = entry.spilled;
        match &entry.wish {
            Ok(Wish::Signal(wish)) => signals.push((wish, spilled, outcome)),
            Ok(Wish::Run(wish)) => runs.push((wish, spilled, outcome)),
            Err(reason) => {
                *outcome = EntryOutcome::Reject(Rejection {
                    cause: Cause::Malformed,
                    reason: reason.clone(),
                });
            }
        }
    }
    store_all(recorder, signals).await;
    store_all(recorder, runs).await;
    outcomes
}

/// Stores the claimed items of one kind and sets the outcome of every item.
async fn store_all<T: Recorded + Claimed + Sync>(recorder: &Recorder, items: Vec<Item<'_, T>>) {
    // A stack of the parts left to store, the next one on top.
    let mut parts = vec![items];
    while let Some(mut part) = parts.pop().filter(|part| !part.is_empty()) {
        let stored = store_claimed(recorder, &mut part).await;
        match stored {
            Ok(()) => part
                .into_iter()
                .for_each(|(_, _, outcome)| *outcome = EntryOutcome::Done),
            Err(error) => match divide(part, &error, |(item, ..)| item.workspace()) {
                Ok(smaller) => parts.extend(smaller),
                // This part keeps its `Retry`; so do the others if the database is unavailable,
                // which one error does not say.
                Err(part) if error.fault == Fault::Transient => {
                    if error.is_of_lock() {
                        part.into_iter()
                            .for_each(|(_, _, outcome)| *outcome = EntryOutcome::Locked);
                    }
                    if !parts.is_empty() && health::check(&recorder.database).await.is_err() {
                        return;
                    }
                }
                // A permanent failure of one item: the item is at fault.
                Err(part) => part
                    .into_iter()
                    .for_each(|(_, _, outcome)| *outcome = EntryOutcome::from(&error)),
            },
        }
    }
}

/// Stores the claimed items of a part, all or none. Removes the unclaimed ones and rejects them.
async fn store_claimed<T: Recorded + Claimed + Sync>(
    recorder: &Recorder,
    part: &mut Vec<Item<'_, T>>,
) -> Result<(), DatabaseError> {
    let batch: Vec<&T> = part.iter().map(|(item, ..)| *item).collect();
    let unclaimed = T::unclaimed(&recorder.database, &batch).await?;
    let mut place = 0..;
    part.retain_mut(|(_, _, outcome)| {
        let is_claimed = place.next().is_none_or(|place| !unclaimed.contains(&place));
        if !is_claimed {
            **outcome = EntryOutcome::Reject(claims::rejection());
        }
        is_claimed
    });
    let claimed: Vec<&T> = part.iter().map(|(item, ..)| *item).collect();
    if claimed.is_empty() {
        return Ok(());
    }
    let spilled: BTreeSet<i64> = part.iter().filter_map(|(_, spilled, _)| *spilled).collect();
    T::store(recorder, &claimed, &Vec::from_iter(spilled)).await
}
