//! What entries do to the database, if they were claimed: one transaction for all of a kind. Where
//! that fails for good, one for each half, and so on, so that a bad entry can't take its companions
//! along.

use std::{
    collections::HashSet,
    panic::{AssertUnwindSafe, catch_unwind},
};

use letterbox_broker::{Content, ReceivedEntry, RunWake};
use letterbox_database::{Database, DatabaseError, Fault};
use tokio_postgres::error::SqlState;

use crate::{
    claims, executor,
    outcome::{Cause, Outcome, Rejection},
    recorder::Recorder,
    runs::{self, NewRun},
    signals::{self, Signal},
};

/// What an entry asks for.
enum Wish {
    Signal(Signal),
    Run(NewRun),
    /// The wake of a run that arrived where no executor is, because its queue was deleted.
    Wake(RunWake),
}

/// An entry with what it asks for, or why that can't be told.
pub(crate) struct DecodedEntry {
    pub(crate) entry: ReceivedEntry,
    wish: Result<Wish, String>,
}

impl DecodedEntry {
    pub(crate) fn new(entry: ReceivedEntry) -> Self {
        let wish = decode(&entry);
        Self { entry, wish }
    }
}

/// Decodes an entry. The reason why it can't be decoded is fit for a header: it does not quote the
/// entry.
fn decode(entry: &ReceivedEntry) -> Result<Wish, String> {
    let content = entry.content.as_ref().map_err(ToString::to_string)?;
    let body = &entry.body;
    let decoding = || match content {
        Content::Delivery(delivery) => Wish::Signal(Signal::of_delivery(delivery, body)),
        Content::Submission(submission) => Wish::Run(NewRun::of_submission(submission, body)),
        Content::Wake(wake) => Wish::Wake(wake.clone()),
    };
    // A panic in one entry is that entry's failure.
    catch_unwind(AssertUnwindSafe(decoding))
        .map_err(|_| "decoding the entry panicked: this is a bug in Letterbox".to_owned())
}

/// Something that is stored in batches, all or none.
trait StoredInBatches: Sized + Sync {
    /// The places of items that nobody has claimed.
    fn unclaimed(
        database: &Database,
        batch: &[&Self],
    ) -> impl Future<Output = Result<HashSet<usize>, DatabaseError>> + Send;

    fn store(
        recorder: &Recorder,
        batch: &[&Self],
    ) -> impl Future<Output = Result<(), DatabaseError>> + Send;
}

impl StoredInBatches for Signal {
    async fn unclaimed(
        database: &Database,
        batch: &[&Self],
    ) -> Result<HashSet<usize>, DatabaseError> {
        claims::unclaimed_deliveries(database, batch).await
    }

    async fn store(recorder: &Recorder, batch: &[&Self]) -> Result<(), DatabaseError> {
        signals::store(recorder, batch).await
    }
}

impl StoredInBatches for NewRun {
    async fn unclaimed(
        database: &Database,
        batch: &[&Self],
    ) -> Result<HashSet<usize>, DatabaseError> {
        claims::unclaimed_submissions(database, batch).await
    }

    async fn store(recorder: &Recorder, batch: &[&Self]) -> Result<(), DatabaseError> {
        runs::store(recorder, batch).await
    }
}

impl StoredInBatches for RunWake {
    /// A wake needs no claim: it does nothing but make a worker look at a run.
    async fn unclaimed(_: &Database, _: &[&Self]) -> Result<HashSet<usize>, DatabaseError> {
        Ok(HashSet::new())
    }

    async fn store(recorder: &Recorder, batch: &[&Self]) -> Result<(), DatabaseError> {
        let wakes: Vec<_> = batch
            .iter()
            .map(|wake| (wake.workspace, wake.run))
            .collect();
        executor::wake_again(&recorder.database, &wakes).await
    }
}

/// Stores what the entries ask for. One outcome for each entry, in their order; all `Retry` while
/// the database is away.
pub(crate) async fn apply(recorder: &Recorder, entries: &[DecodedEntry]) -> Vec<Outcome> {
    let mut outcomes = vec![Outcome::Retry; entries.len()];
    let (mut signals, mut runs, mut wakes) = (Vec::new(), Vec::new(), Vec::new());
    for (entry, outcome) in entries.iter().zip(&mut outcomes) {
        match &entry.wish {
            Ok(Wish::Signal(signal)) => signals.push((signal, outcome)),
            Ok(Wish::Run(run)) => runs.push((run, outcome)),
            Ok(Wish::Wake(wake)) => wakes.push((wake, outcome)),
            Err(reason) => {
                *outcome = Outcome::Reject(Rejection {
                    cause: Cause::Malformed,
                    reason: reason.clone(),
                });
            }
        }
    }
    store_all(recorder, signals).await;
    store_all(recorder, runs).await;
    store_all(recorder, wakes).await;
    outcomes
}

/// Stores the items of one kind that were claimed, and sets the outcomes of all.
async fn store_all<T: StoredInBatches>(recorder: &Recorder, items: Vec<(&T, &mut Outcome)>) {
    // What is left to do, the first part last.
    let mut parts = vec![items];
    while let Some(mut part) = parts.pop().filter(|part| !part.is_empty()) {
        let stored = store_claimed(recorder, &mut part).await;
        match stored {
            Ok(()) => part
                .into_iter()
                .for_each(|(_, outcome)| *outcome = Outcome::Done),
            // Perhaps it was too much at once.
            Err(error) if is_too_slow(&error) && part.len() > 1 => {
                let second = part.split_off(part.len() / 2);
                parts.extend([second, part]);
            }
            // All that is left waits.
            Err(error) if error.fault == Fault::Transient => return,
            // One of the items is at fault, not the database.
            Err(error) if part.len() == 1 => {
                part.into_iter()
                    .for_each(|(_, outcome)| *outcome = Outcome::from(&error));
            }
            Err(_) => {
                let second = part.split_off(part.len() / 2);
                parts.extend([second, part]);
            }
        }
    }
}

/// Stores what was claimed, all or none; takes away what was not, and sets its outcome.
async fn store_claimed<T: StoredInBatches>(
    recorder: &Recorder,
    part: &mut Vec<(&T, &mut Outcome)>,
) -> Result<(), DatabaseError> {
    let batch: Vec<&T> = part.iter().map(|(item, _)| *item).collect();
    let unclaimed = T::unclaimed(&recorder.database, &batch).await?;
    let mut place = 0..;
    part.retain_mut(|(_, outcome)| {
        let is_claimed = place.next().is_none_or(|place| !unclaimed.contains(&place));
        if !is_claimed {
            **outcome = Outcome::Reject(claims::rejection());
        }
        is_claimed
    });
    let batch: Vec<&T> = part.iter().map(|(item, _)| *item).collect();
    match batch.is_empty() {
        true => Ok(()),
        false => T::store(recorder, &batch).await,
    }
}

/// The server's own time limit was reached.
fn is_too_slow(error: &DatabaseError) -> bool {
    error.code.as_ref() == Some(&SqlState::QUERY_CANCELED)
}
