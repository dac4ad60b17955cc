//! What a batch of messages does to the database: one transaction for all of a kind, and where that
//! fails for good, one for each, so that a bad message can't take its neighbours along.

use std::panic::{AssertUnwindSafe, catch_unwind};

use deadpool_postgres::Pool;
use lapin::message::Delivery;
use letterbox_common::{
    broker::{Envelope, RunWake},
    database::{DatabaseError, Fault},
};

use crate::{
    executor,
    outcome::Outcome,
    runs::{self, Submission},
    signals::{self, Signal},
};

/// What a message says.
enum Content {
    Signal(Signal),
    Submission(Submission),
    /// Of a run, come where no executor is: its queue was deleted.
    Wake(RunWake),
}

/// A message that has been read, or why it can't be.
pub struct Read<'a> {
    pub message: &'a Delivery,
    content: Result<Content, String>,
}

impl<'a> Read<'a> {
    pub fn new(message: &'a Delivery) -> Self {
        Self {
            message,
            content: read(message),
        }
    }
}

/// Reads a message. The reason why it can't be read is fit for a header: it does not quote the
/// message.
fn read(message: &Delivery) -> Result<Content, String> {
    let envelope = Envelope::read(&message.properties).map_err(|error| error.to_string())?;
    let reading = || match &envelope {
        Envelope::WebhookDelivery(delivery) => {
            Content::Signal(signals::read(delivery, &message.data))
        }
        Envelope::FormSubmission(submission) => {
            Content::Submission(runs::read(submission, &message.data))
        }
        Envelope::RunWake(wake) => Content::Wake(wake.clone()),
    };
    catch_unwind(AssertUnwindSafe(reading))
        .map_err(|_| "reading the message panicked: a bug in Letterbox".to_owned())
}

/// Something that is stored in batches, all or none.
trait Stored: Sized + Sync {
    fn store(
        pool: &Pool,
        batch: &[&Self],
    ) -> impl Future<Output = Result<(), DatabaseError>> + Send;
}

impl Stored for Signal {
    fn store(
        pool: &Pool,
        batch: &[&Self],
    ) -> impl Future<Output = Result<(), DatabaseError>> + Send {
        signals::store(pool, batch)
    }
}

impl Stored for Submission {
    fn store(
        pool: &Pool,
        batch: &[&Self],
    ) -> impl Future<Output = Result<(), DatabaseError>> + Send {
        runs::store(pool, batch)
    }
}

impl Stored for RunWake {
    async fn store(pool: &Pool, batch: &[&Self]) -> Result<(), DatabaseError> {
        let wakes: Vec<_> = batch
            .iter()
            .map(|wake| (wake.workspace, wake.run))
            .collect();
        executor::wake_again(pool, &wakes).await
    }
}

/// Stores what the messages say. One outcome a message, in their order; all `Retry` when the
/// database is away.
pub async fn apply(pool: &Pool, messages: &[Read<'_>]) -> Vec<Outcome> {
    let (mut signals, mut submissions, mut wakes) = (Vec::new(), Vec::new(), Vec::new());
    for read in messages {
        match &read.content {
            Ok(Content::Signal(signal)) => signals.push(signal),
            Ok(Content::Submission(submission)) => submissions.push(submission),
            Ok(Content::Wake(wake)) => wakes.push(wake),
            Err(_) => {}
        }
    }
    let mut signals = store(pool, &signals).await.into_iter();
    let mut submissions = store(pool, &submissions).await.into_iter();
    let mut wakes = store(pool, &wakes).await.into_iter();
    let outcomes = messages.iter().map(|read| match &read.content {
        Ok(Content::Signal(_)) => signals.next(),
        Ok(Content::Submission(_)) => submissions.next(),
        Ok(Content::Wake(_)) => wakes.next(),
        Err(reason) => Some(Outcome::Reject(reason.clone())),
    });
    outcomes
        .map(|outcome| outcome.unwrap_or(Outcome::Retry))
        .collect()
}

async fn store<T: Stored>(pool: &Pool, items: &[&T]) -> Vec<Outcome> {
    if items.is_empty() {
        return Vec::new();
    }
    let Err(error) = T::store(pool, items).await else {
        return vec![Outcome::Done; items.len()];
    };
    if error.fault == Fault::Transient {
        return vec![Outcome::Retry; items.len()];
    }
    // Not the database failed but something in the batch.
    let mut outcomes = Vec::with_capacity(items.len());
    for item in items {
        outcomes.push(match T::store(pool, &[item]).await {
            Ok(()) => Outcome::Done,
            Err(error) => Outcome::from(&error),
        });
    }
    outcomes
}
