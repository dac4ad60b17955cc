//! The spill: messages that gateways could not publish wait in the database. When the broker is
//! back, they are published under the same ids, oldest first. Workers do this, because a gateway
//! that was taken over must not be able to remove what was accepted.
//!
//! A few messages are taken at a time, to leave the broker to live traffic. A queue that does not
//! take them is suspect: others go first, and it gets one message now and then. Suspects are probed
//! one by one, and seldom: RabbitMQ may hold a whole channel whose message a queue does not answer.

mod store;

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use letterbox_broker::{PublishError, Publisher};
use letterbox_database::{Database, DatabaseError};
use tokio_util::sync::CancellationToken;

pub(crate) use self::store::STATEMENTS;
use self::store::Spilled;

/// Messages published at once.
const PAGE: i64 = 16;
const PAUSE: Duration = Duration::from_secs(1);
/// How long a publish may take.
const PUBLISH_FOR: Duration = Duration::from_secs(2);
/// How long other workers leave a message to the one that has taken it. If one takes it too soon
/// nevertheless, it is published twice under one id, which changes nothing.
const LEASE: Duration = Duration::from_secs(3);
/// How long a message that could not be published is put off.
const PUT_OFF: Duration = Duration::from_secs(3);
/// How long no suspect is probed after one did not answer: longer than a silent channel is kept.
const SILENT_FOR: Duration = Duration::from_secs(12);
/// How long a suspect is left alone.
const PROBE_EVERY: Duration = Duration::from_secs(3);

/// Queues that did not take the last message, by routing key.
#[derive(Default)]
struct Suspects {
    /// When each is due for a message.
    due: HashMap<String, Instant>,
    /// When a message was last not answered.
    silence: Option<Instant>,
}

impl Suspects {
    /// The one that has waited longest for a message, if it is time for one.
    fn probed(&self) -> Option<String> {
        if self
            .silence
            .is_some_and(|since| since.elapsed() < SILENT_FOR)
        {
            return None;
        }
        let first = self.due.iter().min_by_key(|(_, due)| **due);
        let first = first.filter(|(_, due)| **due <= Instant::now());
        first.map(|(key, _)| key.clone())
    }

    fn note(&mut self, key: &str, outcome: Result<(), PublishError>) {
        match outcome {
            Ok(()) => drop(self.due.remove(key)),
            Err(error @ (PublishError::TimedOut | PublishError::Refused)) => {
                self.due
                    .insert(key.to_owned(), Instant::now() + PROBE_EVERY);
                if error == PublishError::TimedOut {
                    self.silence = Some(Instant::now());
                }
            }
            // About the connection: it says nothing of the queue.
            Err(_) => {}
        }
    }
}

/// Publishes spilled messages.
pub(crate) struct SpillRelay {
    pub(crate) database: Database,
    pub(crate) publisher: Publisher,
    /// The name of this process.
    pub(crate) name: String,
}

impl SpillRelay {
    /// Runs until `stop`, then finishes the messages that it has taken.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let pause = || tokio::time::sleep(PAUSE);
        let mut suspects = Suspects::default();
        while stop.run_until_cancelled(pause()).await.is_some() {
            // Failures are logged where they happen, and tried again after the pause.
            while self.publisher.is_open() && !stop.is_cancelled() {
                match self.relay(&mut suspects).await {
                    Ok(true) => {}
                    _ => break,
                }
            }
        }
    }

    /// Publishes a few messages. Returns `true` if there may be more that can be published now.
    async fn relay(&self, suspects: &mut Suspects) -> Result<bool, DatabaseError> {
        let probed = suspects.probed();
        let lease = LEASE.as_secs_f64();
        let taken = match &probed {
            Some(key) => store::take_spilled(&self.database, 1, lease, &[key], true).await?,
            None => {
                let suspects: Vec<&str> = suspects.due.keys().map(String::as_str).collect();
                store::take_spilled(&self.database, PAGE, lease, &suspects, false).await?
            }
        };
        if let (Some(key), true) = (&probed, taken.is_empty()) {
            // Nothing is left for it.
            suspects.due.remove(key);
        }
        let published = join_all(taken.iter().map(|one| self.publish(one))).await;
        let (mut confirmed, mut failed) = (Vec::new(), Vec::new());
        for (message, outcome) in taken.iter().zip(published) {
            suspects.note(&message.routing_key, outcome);
            match outcome {
                Ok(()) => confirmed.push(message.batch),
                Err(_) => failed.push(message.batch),
            }
        }
        if !confirmed.is_empty() {
            store::close_spilled(&self.database, &confirmed).await?;
        }
        if !failed.is_empty() {
            store::put_off_spilled(&self.database, &failed, PUT_OFF.as_secs_f64()).await?;
        }
        Ok(!taken.is_empty() || probed.is_some())
    }

    async fn publish(&self, spilled: &Spilled) -> Result<(), PublishError> {
        let (key, id) = (spilled.routing_key.clone(), spilled.batch.to_string());
        let message = spilled.body.clone().into_message(key, id, &self.name);
        let publishing = self.publisher.publish(message);
        let published = tokio::time::timeout(PUBLISH_FOR, publishing).await;
        published.unwrap_or(Err(PublishError::TimedOut))
    }
}
