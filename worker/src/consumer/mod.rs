//! The consumer: receive, process, acknowledge, in that order, so that a crash at any point causes
//! a redelivery and never a loss.
//!
//! It consumes every work queue that a gateway has ever used, each on a channel of its own, and
//! stores the entries of messages in batches. While the database is unavailable, messages are held
//! unacknowledged for as long as the broker allows, and the consumer doesn't subscribe until the
//! database answers. When the broker cancels a consumer (its queue was deleted), the session ends
//! and the next one declares the queue again. The topology is also declared again every few
//! seconds.

mod batches;
mod held;
mod in_hand;
mod patience;
mod queue_reader;
mod store;
mod storing;

use std::{pin::pin, time::Duration};

use futures_util::{StreamExt, stream::FuturesUnordered};
use lapin::Connection;
use letterbox_broker::{
    BrokerError, Publisher, Session,
    topology::{self, WorkQueue, work_queues},
};
use letterbox_common::process::readiness::Component;
use letterbox_database::health;
use tokio_util::sync::CancellationToken;

use self::{batches::BatchConsumer, queue_reader::QueueReader, storing::Storing};
pub(crate) use self::{in_hand::InHand, store::STATEMENTS};
use crate::{outcome, recorder::Recorder};

/// How often to check whether a gateway uses more queues, and to declare again whatever was deleted
/// or unbound.
const DECLARE_EVERY: Duration = Duration::from_secs(5);
/// Consumes the work queues on one connection.
pub(crate) struct Consumer {
    pub(crate) recorder: Recorder,
    /// For dead letters and separated entries; on another connection.
    pub(crate) publisher: Publisher,
    pub(crate) in_hand: InHand,
    /// Maximum number of unacknowledged messages from one queue.
    pub(crate) prefetch: u16,
    pub(crate) max_batch: usize,
    pub(crate) name: String,
}

impl Session for Consumer {
    async fn run(
        &self,
        connection: &Connection,
        component: &Component,
        stop: &CancellationToken,
    ) -> Result<(), BrokerError> {
        // Messages fetched while the database is unavailable would only be held.
        if !self.await_database(component, stop).await {
            return Ok(());
        }
        let mut consuming = FuturesUnordered::new();
        // Polled beside the consumers: a slow database must not stall them.
        let mut looking = pin!(self.queues(0));
        loop {
            tokio::select! {
                (known, queues) = &mut looking, if !stop.is_cancelled() => {
                    topology::declare_on(connection, queues).await?;
                    // The number of queues only grows; subscribe to the new ones.
                    let former = if known == 0 { Vec::new() } else { work_queues(known) };
                    let new = work_queues(queues)
                        .into_iter()
                        .filter(|queue| !former.contains(queue));
                    for queue in new {
                        let opened = self.subscribe(connection, queue).await?;
                        consuming.push(self.consume(opened, stop));
                    }
                    looking.set(self.queues(queues));
                    component.ready();
                }
                // After a stop every consumer drains and ends; an error ends the whole session.
                Some(ended) = consuming.next() => {
                    let () = ended?;
                    if consuming.is_empty() {
                        return Ok(());
                    }
                }
                // Stopped before the first reader.
                () = stop.cancelled(), if consuming.is_empty() => return Ok(()),
            }
        }
    }

    /// Ignores the notice: this connection publishes nothing, and acknowledgements aren't blocked.
    fn blocked(&self, _: &Component, _: Option<String>) {}
}

impl Consumer {
    /// Waits for the database. Returns `false` if stopped before it answers.
    async fn await_database(&self, component: &Component, stop: &CancellationToken) -> bool {
        for pause in outcome::pauses() {
            match health::check(&self.recorder.database).await {
                Ok(()) => return true,
                Err(reason) => component.not_ready(format!("waiting for the database: {reason}")),
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = stop.cancelled() => break,
            }
        }
        false
    }

    /// Returns `known` and the current number of queues per family, which is never less. Waits
    /// first unless `known` is 0.
    async fn queues(&self, known: u16) -> (u16, u16) {
        if known > 0 {
            tokio::time::sleep(DECLARE_EVERY).await;
        }
        loop {
            // The database crate logs the failure.
            match store::count_queues(&self.recorder.database).await {
                Ok(queues) => return (known, queues.max(known)),
                Err(_) => tokio::time::sleep(DECLARE_EVERY).await,
            }
        }
    }

    async fn subscribe(
        &self,
        connection: &Connection,
        queue: WorkQueue,
    ) -> Result<QueueReader, BrokerError> {
        let (prefetch, max_batch) = (self.prefetch, self.max_batch);
        QueueReader::open(connection, queue.name, prefetch, max_batch, &self.name).await
    }

    /// Consumes until `stop`, then fetches nothing more and finishes the fetched messages.
    async fn consume(
        &self,
        mut reader: QueueReader,
        stop: &CancellationToken,
    ) -> Result<(), BrokerError> {
        let consumer = BatchConsumer(Storing {
            recorder: &self.recorder,
            publisher: &self.publisher,
            in_hand: &self.in_hand,
            prefetch: self.prefetch,
        });
        consumer.consume(&mut reader, stop).await?;
        reader.close().await;
        Ok(())
    }
}
