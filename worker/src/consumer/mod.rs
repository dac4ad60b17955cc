//! The consumer: receive, process, acknowledge, in that order, so that a crash at any point causes
//! a redelivery and never a loss.
//!
//! It consumes every work queue that a gateway has ever used, each on a connection of its own: a
//! queue that can't be consumed costs its connection, and the others must go on. Entries of
//! messages are stored in batches, and so is what was [`spilled`]. While the database is
//! unavailable, messages are held unacknowledged for as long as the broker allows, and the consumer
//! doesn't subscribe until the database answers. When the broker cancels a consumer (its queue was
//! deleted), the session ends and the next one declares the queue again. Each queue is also
//! declared again every few seconds, with what all of them need.

mod batches;
mod in_hand;
mod locked;
mod patience;
mod queue_reader;
mod spilled;
mod store;
mod storing;

use std::{future::pending, mem, slice, time::Duration};

use futures_util::{StreamExt, stream::FuturesUnordered};
use lapin::Connection;
use letterbox_broker::{
    BrokerError, BrokerTarget, Publisher, Session, supervise,
    topology::{self, WorkQueue, work_queues},
};
use letterbox_common::process::readiness::{Component, Readiness};
use letterbox_database::health;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

pub(crate) use self::{in_hand::InHand, store::STATEMENTS};
use self::{
    locked::LockedWorkspaces, queue_reader::QueueReader, spilled::store_spill, storing::Storing,
};
use crate::{outcome, recorder::Recorder};

/// How often to check whether a gateway uses more queues, and to declare again whatever was deleted
/// or unbound.
const DECLARE_EVERY: Duration = Duration::from_secs(5);

/// Consumes the work queues.
pub(crate) struct Consumer {
    pub(crate) recorder: Recorder,
    /// For dead letters; on another connection.
    pub(crate) publisher: Publisher,
    pub(crate) in_hand: InHand,
    /// Maximum number of unacknowledged messages from one queue.
    pub(crate) prefetch: u16,
    pub(crate) max_batch: usize,
    pub(crate) name: String,
}

impl Consumer {
    /// Consumes until `stop`, the queues and what was spilled, and finishes what was fetched. The
    /// component `consumer` is ready while one of the queues is consumed.
    pub(crate) fn run(
        self,
        target: BrokerTarget,
        readiness: Readiness,
        stop: CancellationToken,
    ) -> impl Future<Output = ()> + Send {
        // At once: until then nothing says that the process is not ready.
        let mut new = components(&readiness, work_queues(1));
        let mut known = 1;
        let mut pause = Duration::ZERO;
        async move {
            let locked = LockedWorkspaces::default();
            let set_aside = Notify::new();
            let storing = Storing {
                recorder: &self.recorder,
                publisher: &self.publisher,
                in_hand: &self.in_hand,
                locked: &locked,
                set_aside: &set_aside,
            };
            let consuming_queues = async {
                let mut consuming = FuturesUnordered::new();
                loop {
                    for (queue, component) in mem::take(&mut new) {
                        consuming.push(self.consume(&storing, queue, component, &target, &stop));
                    }
                    tokio::select! {
                        // Polled beside the consumers: a slow database must not stall them.
                        queues = self.count_queues(pause), if !stop.is_cancelled() => {
                            let former = work_queues(known);
                            // The number of queues only grows; subscribe to the new ones.
                            known = queues.max(known);
                            let more = work_queues(known).into_iter();
                            let more = more.filter(|queue| !former.contains(queue));
                            new = components(&readiness, more);
                            pause = DECLARE_EVERY;
                        }
                        // Each ends after the stop.
                        ended = consuming.next() => if ended.is_none() { return },
                    }
                }
            };
            tokio::join!(consuming_queues, store_spill(&storing, &stop));
        }
    }

    /// Consumes one queue until `stop`.
    async fn consume(
        &self,
        storing: &Storing<'_>,
        queue: WorkQueue,
        component: Component,
        target: &BrokerTarget,
        stop: &CancellationToken,
    ) {
        let name = format!("{} ({})", self.name, queue.name);
        let consumer = self;
        let session = QueueSession {
            consumer,
            storing,
            queue,
        };
        supervise(target.clone(), &name, component, session, stop.clone()).await;
    }

    /// Returns the number of queues per family, after a pause.
    async fn count_queues(&self, pause: Duration) -> u16 {
        tokio::time::sleep(pause).await;
        loop {
            // The database crate logs the failure.
            match store::count_work_queues(&self.recorder.database).await {
                Ok((queues,)) => return u16::try_from(queues).unwrap_or(1),
                Err(_) => tokio::time::sleep(DECLARE_EVERY).await,
            }
        }
    }
}

/// The queues with what says of each whether it is consumed.
fn components(
    readiness: &Readiness,
    queues: impl IntoIterator<Item = WorkQueue>,
) -> Vec<(WorkQueue, Component)> {
    let queues = queues.into_iter().map(|queue| {
        let component = readiness.one_of("consumer", &queue.name);
        (queue, component)
    });
    queues.collect()
}

/// Consumes one queue on one connection.
struct QueueSession<'c> {
    consumer: &'c Consumer,
    storing: &'c Storing<'c>,
    queue: WorkQueue,
}

impl Session for QueueSession<'_> {
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
        self.declare(connection).await?;
        let name = self.queue.name.clone();
        let of = self.consumer;
        let reader = QueueReader::open(connection, name, of.prefetch, of.max_batch, &of.name);
        let reader = reader.await?;
        component.ready();
        tokio::select! {
            consumed = batches::consume(self.storing, reader, stop) => consumed,
            error = self.declare_again(connection, stop) => Err(error),
        }
    }

    /// Ignores the notice: this connection publishes nothing, and acknowledgements aren't blocked.
    fn blocked(&self, _: &Component, _: Option<String>) {}
}

impl QueueSession<'_> {
    /// Waits for the database. Returns `false` if stopped before it answers.
    async fn await_database(&self, component: &Component, stop: &CancellationToken) -> bool {
        for pause in outcome::pauses() {
            match health::check(&self.consumer.recorder.database).await {
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

    async fn declare(&self, connection: &Connection) -> Result<(), BrokerError> {
        topology::declare_on(connection, slice::from_ref(&self.queue)).await
    }

    /// Declares the queue again and again until `stop`; returns why it can't be.
    async fn declare_again(
        &self,
        connection: &Connection,
        stop: &CancellationToken,
    ) -> BrokerError {
        while stop
            .run_until_cancelled(tokio::time::sleep(DECLARE_EVERY))
            .await
            .is_some()
        {
            if let Err(error) = self.declare(connection).await {
                return error;
            }
        }
        pending().await
    }
}
