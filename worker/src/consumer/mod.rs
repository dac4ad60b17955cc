//! The consumer: receive, process, acknowledge, in that order, so that a crash at any point means a
//! redelivery and never a loss.
//!
//! It consumes every work queue that a gateway has ever used, each on a channel of its own:
//! `batches` stores the entries of messages in batches, `wakes` executes runs one by one. While the
//! database is away messages are held, unacknowledged, for as long as the broker allows; the
//! consumer does not subscribe before the database answers. When a consumer is cancelled (its queue
//! was deleted), the session ends, and the next one declares the queue again; everything else is
//! declared again every few seconds.

mod batches;
mod in_hand;
mod patience;
mod store;
mod subscription;
mod wakes;

use std::{pin::pin, time::Duration};

use futures_util::{StreamExt, stream::FuturesUnordered};
use lapin::Connection;
use letterbox_broker::{
    BrokerError, Publisher, Session,
    topology::{self, Consumption, WorkQueue, work_queues},
};
use letterbox_common::process::readiness::Component;
use letterbox_database::health;
use tokio_util::sync::CancellationToken;

use self::{batches::BatchConsumer, subscription::Subscription, wakes::WakeConsumer};
pub(crate) use self::{in_hand::InHand, store::STATEMENTS};
use crate::{executor::Executor, outcome, recorder::Recorder};

/// How long messages are held while the database is away. Well under the time (30 minutes) after
/// which the broker takes every unacknowledged message back.
const MAX_HOLD: Duration = Duration::from_secs(1_500);
/// How often to look whether a gateway uses more queues than before, and to declare again what may
/// have been deleted or unbound.
const DECLARE_EVERY: Duration = Duration::from_secs(5);
/// Why a consumer ended that held messages.
const AWAY_TOO_LONG: &str = "the database was away for too long";
const STOPPED_WHILE_AWAY: &str = "stopped while the database was away";

/// Consumes the work queues on one connection.
pub(crate) struct Consumer {
    pub(crate) recorder: Recorder,
    /// For dead letters; on another connection.
    pub(crate) publisher: Publisher,
    pub(crate) executor: Executor,
    pub(crate) in_hand: InHand,
    /// Messages of one queue that may be fetched and not yet acknowledged.
    pub(crate) prefetch: u16,
    pub(crate) max_batch: usize,
    /// Runs that are executed at once.
    pub(crate) run_concurrency: u16,
    pub(crate) name: String,
}

impl Session for Consumer {
    async fn run(
        &self,
        connection: &Connection,
        component: &Component,
        stop: &CancellationToken,
    ) -> Result<(), BrokerError> {
        if !self.await_database(component, stop).await {
            return Ok(());
        }
        let mut consuming = FuturesUnordered::new();
        // Beside the work: the database may take its time.
        let mut looking = pin!(self.queues(0));
        loop {
            tokio::select! {
                (known, queues) = &mut looking, if !stop.is_cancelled() => {
                    let ready_wakes = topology::declare_on(connection, queues).await?;
                    self.executor.relay.note_backlog(ready_wakes);
                    let former = if known == 0 { Vec::new() } else { work_queues(known) };
                    let new = work_queues(queues)
                        .into_iter()
                        .filter(|queue| !former.contains(queue));
                    for queue in new {
                        let (opened, how) = self.subscribe(connection, queue).await?;
                        consuming.push(self.consume(opened, how, stop));
                    }
                    looking.set(self.queues(queues));
                    component.ready();
                }
                Some(ended) = consuming.next() => {
                    let () = ended?;
                    if consuming.is_empty() {
                        return Ok(());
                    }
                }
                () = stop.cancelled(), if consuming.is_empty() => return Ok(()),
            }
        }
    }

    /// Acknowledgements pass while the broker blocks publishers.
    fn blocked(&self, _: &Component, _: Option<String>) {}
}

impl Consumer {
    /// Waits for the database. False when told to stop before it answers.
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

    /// How many queues there are, after a while if some are `known`; gives both numbers, the second
    /// never less than the first.
    async fn queues(&self, known: u16) -> (u16, u16) {
        if known > 0 {
            tokio::time::sleep(DECLARE_EVERY).await;
        }
        loop {
            // A failure is logged where it happens.
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
    ) -> Result<(Subscription, Consumption), BrokerError> {
        let (prefetch, max_batch) = match queue.consumption {
            Consumption::Batches => (self.prefetch, self.max_batch),
            Consumption::Wakes => (self.run_concurrency, 1),
        };
        let opening = Subscription::open(connection, queue.name, prefetch, max_batch, &self.name);
        Ok((opening.await?, queue.consumption))
    }

    /// Works until `stop`, then fetches nothing more and finishes what has been fetched.
    async fn consume(
        &self,
        mut subscription: Subscription,
        consumption: Consumption,
        stop: &CancellationToken,
    ) -> Result<(), BrokerError> {
        let (recorder, publisher) = (&self.recorder, &self.publisher);
        match consumption {
            Consumption::Batches => {
                BatchConsumer {
                    recorder,
                    publisher,
                    in_hand: &self.in_hand,
                }
                .consume(&mut subscription, stop)
                .await?;
            }
            Consumption::Wakes => {
                WakeConsumer {
                    executor: &self.executor,
                    publisher,
                }
                .consume(&mut subscription, stop)
                .await?;
            }
        }
        subscription.close().await;
        Ok(())
    }
}
