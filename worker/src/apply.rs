//! What a batch of messages does to the database: one transaction for all of them, and where that fails for good, one for
//! each, so that a bad message can't take its neighbours along.

use std::panic::{AssertUnwindSafe, catch_unwind};

use deadpool_postgres::Pool;
use lapin::message::Delivery;
use letterbox_common::{
    broker::Envelope,
    database::{DatabaseError, Fault},
};

use crate::{
    outcome::Outcome,
    signals::{self, Signal},
};

/// Reads a message. The reason why it can't be read is fit for a header: it does not quote the message.
fn read(message: &Delivery) -> Result<Signal, String> {
    let Envelope::WebhookDelivery(envelope) = Envelope::read(&message.properties).map_err(|error| error.to_string())?;
    catch_unwind(AssertUnwindSafe(|| signals::read(&envelope, &message.data)))
        .map_err(|_| "the mapping panicked: a bug in Letterbox".to_owned())
}

/// A message that has been read, or why it can't be.
pub struct Read<'a> {
    pub message: &'a Delivery,
    signal: Result<Signal, String>,
}

impl<'a> Read<'a> {
    pub fn new(message: &'a Delivery) -> Self {
        Self { message, signal: read(message) }
    }
}

/// Stores what the messages say. One outcome a message, in their order; all `Retry` when the database is away.
pub async fn apply(pool: &Pool, messages: &[Read<'_>]) -> Vec<Outcome> {
    let signals: Vec<&Signal> = messages.iter().filter_map(|read| read.signal.as_ref().ok()).collect();
    let together = signals::store(pool, &signals).await;
    let mut outcomes = Vec::with_capacity(messages.len());
    for read in messages {
        outcomes.push(match (&read.signal, &together) {
            (Err(reason), _) => Outcome::Reject(reason.clone()),
            (Ok(_), Ok(())) => Outcome::Done,
            (Ok(signal), Err(error)) => alone(pool, signal, error).await,
        });
    }
    outcomes
}

/// Tries one message for itself, when it was not the database that failed but something in the batch.
async fn alone(pool: &Pool, signal: &Signal, together: &DatabaseError) -> Outcome {
    if together.fault == Fault::Transient {
        return Outcome::Retry;
    }
    match signals::store(pool, &[signal]).await {
        Ok(()) => Outcome::Done,
        Err(error) => Outcome::from(&error),
    }
}
