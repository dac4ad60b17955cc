//! What a batch of messages does to the database: one transaction for all of a kind. Where that
//! fails for good, one for each, so that a bad message can't take its neighbors along.

use std::panic::{AssertUnwindSafe, catch_unwind};

use lapin::message::Delivery;
use letterbox_broker::{Envelope, RunWake};
use letterbox_database::{Database, DatabaseError, Fault};

use crate::{
    executor,
    outcome::Outcome,
    runs::{self, NewRun},
    signals::{self, Signal},
};

/// What a message says.
enum MessageContent {
    Signal(Signal),
    Run(NewRun),
    /// The wake of a run that arrived where no executor is, because its queue was deleted.
    Wake(RunWake),
}

/// A message with what it says, or why it can't be decoded.
pub(crate) struct DecodedMessage<'a> {
    pub(crate) delivery: &'a Delivery,
    content: Result<MessageContent, String>,
}

impl<'a> DecodedMessage<'a> {
    pub(crate) fn new(delivery: &'a Delivery) -> Self {
        Self {
            delivery,
            content: decode(delivery),
        }
    }
}

/// Decodes a message. The reason why it can't be decoded is fit for a header: it does not quote the
/// message.
fn decode(delivery: &Delivery) -> Result<MessageContent, String> {
    let envelope = Envelope::decode(&delivery.properties).map_err(|error| error.to_string())?;
    let body = &delivery.data;
    let decoding = || match &envelope {
        Envelope::WebhookDelivery(delivery) => {
            MessageContent::Signal(Signal::of_delivery(delivery, body))
        }
        Envelope::FormSubmission(submission) => {
            MessageContent::Run(NewRun::of_submission(submission, body))
        }
        Envelope::RunWake(wake) => MessageContent::Wake(wake.clone()),
    };
    // A panic in one message is that message's failure.
    catch_unwind(AssertUnwindSafe(decoding))
        .map_err(|_| "decoding the message panicked: this is a bug in Letterbox".to_owned())
}

/// Something that is stored in batches, all or none.
trait StoredInBatches: Sized + Sync {
    fn store(
        database: &Database,
        batch: &[&Self],
    ) -> impl Future<Output = Result<(), DatabaseError>> + Send;
}

impl StoredInBatches for Signal {
    async fn store(database: &Database, batch: &[&Self]) -> Result<(), DatabaseError> {
        signals::store(database, batch).await
    }
}

impl StoredInBatches for NewRun {
    async fn store(database: &Database, batch: &[&Self]) -> Result<(), DatabaseError> {
        runs::store(database, batch).await
    }
}

impl StoredInBatches for RunWake {
    async fn store(database: &Database, batch: &[&Self]) -> Result<(), DatabaseError> {
        let wakes: Vec<_> = batch
            .iter()
            .map(|wake| (wake.workspace, wake.run))
            .collect();
        executor::wake_again(database, &wakes).await
    }
}

/// Stores what the messages say. One outcome for each message, in their order; all `Retry` while
/// the database is away.
pub(crate) async fn apply(database: &Database, messages: &[DecodedMessage<'_>]) -> Vec<Outcome> {
    let mut outcomes = vec![Outcome::Retry; messages.len()];
    let (mut signals, mut runs, mut wakes) = (Vec::new(), Vec::new(), Vec::new());
    for (message, outcome) in messages.iter().zip(&mut outcomes) {
        match &message.content {
            Ok(MessageContent::Signal(signal)) => signals.push((signal, outcome)),
            Ok(MessageContent::Run(run)) => runs.push((run, outcome)),
            Ok(MessageContent::Wake(wake)) => wakes.push((wake, outcome)),
            Err(reason) => *outcome = Outcome::Reject(reason.clone()),
        }
    }
    store_all(database, signals).await;
    store_all(database, runs).await;
    store_all(database, wakes).await;
    outcomes
}

/// Stores the items of one kind and sets their outcomes.
async fn store_all<T: StoredInBatches>(database: &Database, items: Vec<(&T, &mut Outcome)>) {
    let (items, outcomes): (Vec<&T>, Vec<&mut Outcome>) = items.into_iter().unzip();
    if items.is_empty() {
        return;
    }
    match T::store(database, &items).await {
        Ok(()) => outcomes
            .into_iter()
            .for_each(|outcome| *outcome = Outcome::Done),
        Err(error) if error.fault == Fault::Transient => {}
        // One of the items is at fault, not the database: each by itself.
        Err(_) => {
            for (item, outcome) in items.into_iter().zip(outcomes) {
                *outcome = match T::store(database, &[item]).await {
                    Ok(()) => Outcome::Done,
                    Err(error) => Outcome::from(&error),
                };
            }
        }
    }
}
