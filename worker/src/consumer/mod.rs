//! The consumer: receive, batch, apply, acknowledge — in that order, so that a crash at any point
//! means a redelivery and never a loss.
//!
//! `runs` consumes the wakes of runs, one by one; this file everything else, in batches.
//!
//! One channel a queue, one batch at a time: when a batch is through, one acknowledgement covers
//! it. While the database is away the batch is held, unacknowledged, for as long as the broker
//! bears it; the consumer does not subscribe before the database answers. When a consumer is
//! cancelled (its queue was deleted), the session ends, and the next one declares the queue anew.

mod runs;
mod subscription;

use std::time::Duration;

use deadpool_postgres::Pool;
use futures_util::{StreamExt, future};
use lapin::{Connection, message::Delivery};
use letterbox_common::{
    broker::{BrokerError, Publisher, Session, topology},
    database::health,
    process::readiness::Part,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::subscription::Subscription;
use crate::{
    apply::{self, Read},
    dead_letters,
    outcome::{self, Outcome},
};

pub use self::runs::Runs;

const QUEUES: [&str; 3] = [
    topology::WEBHOOKS_QUEUE,
    topology::FORMS_QUEUE,
    topology::UNROUTED_QUEUE,
];
/// How long messages are held while the database is away. Well under the broker's own patience (30
/// minutes), which ends in a return of every message.
const HOLD_AT_MOST: Duration = Duration::from_secs(600);

/// Consumes the work queues on one connection.
pub struct Consumer {
    pub pool: Pool,
    /// For dead letters; on another connection.
    pub publisher: Publisher,
    pub prefetch: u16,
    pub batch_size: usize,
    pub name: String,
    pub runs: Runs,
}

impl Session for Consumer {
    async fn run(
        &self,
        connection: &Connection,
        part: &Part,
        stop: &CancellationToken,
    ) -> Result<(), BrokerError> {
        if !self.database_answers(part, stop).await {
            return Ok(());
        }
        let subscribing =
            QUEUES.map(|queue| Subscription::open(connection, queue, self.prefetch, &self.name));
        let subscriptions = future::try_join_all(subscribing).await?;
        let wakes = Subscription::open(
            connection,
            topology::RUNS_QUEUE,
            self.runs.concurrency,
            &self.name,
        )
        .await?;
        part.ready();
        let batches = subscriptions
            .into_iter()
            .map(|subscription| self.consume(subscription, stop));
        future::try_join(
            future::try_join_all(batches),
            self.runs.consume(wakes, stop),
        )
        .await
        .map(drop)
    }

    /// Acknowledgements pass while the broker blocks publishers.
    fn blocked(&self, _: &Part, _: Option<String>) {}
}

impl Consumer {
    /// Waits for the database. False when told to stop before.
    async fn database_answers(&self, part: &Part, stop: &CancellationToken) -> bool {
        for pause in outcome::pauses() {
            match health::check(&self.pool).await {
                Ok(()) => return true,
                Err(reason) => part.waits_for(format!("waiting for the database: {reason}")),
            }
            tokio::select! { () = tokio::time::sleep(pause) => {}, () = stop.cancelled() => break }
        }
        false
    }

    /// Works until `stop`; then takes nothing more, and finishes what has been fetched.
    async fn consume(
        &self,
        subscription: Subscription,
        stop: &CancellationToken,
    ) -> Result<(), BrokerError> {
        let Subscription {
            queue,
            channel,
            deliveries,
        } = subscription;
        let tag = deliveries.tag();
        let mut batches = deliveries.ready_chunks(self.batch_size);
        let mut stopping = std::pin::pin!(stop.cancelled());
        let mut cancelled = false;
        loop {
            tokio::select! {
                biased;
                () = stopping.as_mut(), if !cancelled => {
                    cancelled = true;
                    Subscription::cancel(&channel, tag.clone()).await?;
                }
                batch = batches.next() => match batch {
                    Some(batch) => {
                        let batch = batch.into_iter().collect::<lapin::Result<Vec<_>>>()?;
                        self.process(queue, &batch, stop).await?;
                    }
                    None if cancelled => return Ok(()),
                    None => return Err(Subscription::ended(queue)),
                },
            }
        }
    }

    /// Brings every message of a batch to its end and acknowledges them all.
    async fn process(
        &self,
        queue: &str,
        batch: &[Delivery],
        stop: &CancellationToken,
    ) -> Result<(), BrokerError> {
        metrics::histogram!("letterbox_consumed_batch_size", "queue" => queue.to_owned())
            .record(batch.len() as f64);
        let began = Instant::now();
        let mut open: Vec<Read<'_>> = batch.iter().map(Read::new).collect();
        let mut pauses = outcome::pauses();
        loop {
            open = self.advance(queue, open).await;
            if open.is_empty() {
                // The last one stands for all: they are everything that was fetched on its channel.
                let Some(last) = batch.last() else {
                    return Ok(());
                };
                return Subscription::acknowledge(last, true).await;
            }
            if began.elapsed() > HOLD_AT_MOST {
                return Err(BrokerError::Ended(
                    "the database has been away for too long to hold messages".into(),
                ));
            }
            let pause = pauses.next().unwrap_or(HOLD_AT_MOST);
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                // What is not through returns to the queue.
                () = stop.cancelled() => return Err(BrokerError::Ended("stopped while the database is away".into())),
            }
        }
    }

    /// One try; returns what has to be tried again.
    async fn advance<'a>(&self, queue: &str, open: Vec<Read<'a>>) -> Vec<Read<'a>> {
        let outcomes = apply::apply(&self.pool, &open).await;
        let mut again = Vec::new();
        for (read, outcome) in open.into_iter().zip(outcomes) {
            let outcome = match outcome {
                Outcome::Reject(reason) => self.dead_letter(queue, read.message, reason).await,
                other => other,
            };
            metrics::counter!("letterbox_messages_total", "queue" => queue.to_owned(), "outcome" => outcome.label())
                .increment(1);
            if outcome == Outcome::Retry {
                again.push(read);
            }
        }
        again
    }

    async fn dead_letter(&self, queue: &str, message: &Delivery, reason: String) -> Outcome {
        match dead_letters::publish(&self.publisher, queue, message, &reason).await {
            Ok(()) => {
                let message_id = message
                    .properties
                    .message_id()
                    .as_ref()
                    .map(ToString::to_string);
                tracing::error!(queue, message_id, reason, "dead-lettered");
                Outcome::Reject(reason)
            }
            Err(error) => {
                tracing::warn!(queue, %error, "a dead letter could not be published");
                Outcome::Retry
            }
        }
    }
}
