//! Deliveries and submissions: one batch at a time, stored and then acknowledged as a whole.

use lapin::message::Delivery;
use letterbox_broker::{BrokerError, Publisher};
use letterbox_database::Database;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{AWAY_TOO_LONG, MAX_HOLD, STOPPED_WHILE_AWAY, subscription::Subscription};
use crate::{
    apply::{self, DecodedMessage},
    dead_letters, metrics,
    outcome::{self, Outcome},
};

/// Consumes one queue in batches.
pub(super) struct BatchConsumer<'c> {
    pub(super) database: &'c Database,
    pub(super) publisher: &'c Publisher,
}

impl BatchConsumer<'_> {
    pub(super) async fn consume(
        &self,
        mut subscription: Subscription,
        stop: &CancellationToken,
    ) -> Result<(), BrokerError> {
        while let Some(batch) = subscription.next(stop).await? {
            self.process(subscription.queue, &batch, stop).await?;
        }
        Ok(())
    }

    /// Brings every message of a batch to its end and acknowledges them all.
    async fn process(
        &self,
        queue: &'static str,
        batch: &[Delivery],
        stop: &CancellationToken,
    ) -> Result<(), BrokerError> {
        metrics::CONSUMED_BATCH_SIZE.record([queue], batch.len());
        let began = Instant::now();
        let mut open: Vec<_> = batch.iter().map(DecodedMessage::new).collect();
        let mut pauses = outcome::pauses();
        loop {
            open = self.attempt(queue, open).await;
            if open.is_empty() {
                // The last one stands for all: the batch is everything fetched on its channel.
                let Some(last) = batch.last() else {
                    return Ok(());
                };
                return Subscription::acknowledge(last, true).await;
            }
            if began.elapsed() > MAX_HOLD {
                return Err(BrokerError::Ended(AWAY_TOO_LONG.into()));
            }
            let pause = pauses.next().unwrap_or(MAX_HOLD);
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                // What is not stored returns to the queue.
                () = stop.cancelled() => {
                    return Err(BrokerError::Ended(STOPPED_WHILE_AWAY.into()));
                }
            }
        }
    }

    /// One try. Gives the messages that must be tried again.
    async fn attempt<'a>(
        &self,
        queue: &'static str,
        open: Vec<DecodedMessage<'a>>,
    ) -> Vec<DecodedMessage<'a>> {
        let outcomes = apply::apply(self.database, &open).await;
        let mut again = Vec::new();
        for (message, outcome) in open.into_iter().zip(outcomes) {
            let outcome = match outcome {
                Outcome::Reject(reason) => self.dead_letter(queue, message.delivery, reason).await,
                other => other,
            };
            metrics::MESSAGES.add([queue, outcome.label()], 1);
            if outcome == Outcome::Retry {
                again.push(message);
            }
        }
        again
    }

    async fn dead_letter(&self, queue: &str, message: &Delivery, reason: String) -> Outcome {
        match dead_letters::publish(self.publisher, queue, message, &reason).await {
            Ok(()) => Outcome::Reject(reason),
            Err(_) => Outcome::Retry,
        }
    }
}
