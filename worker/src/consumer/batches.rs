//! Deliveries and submissions: the entries of all messages that are there are stored together, and
//! their messages acknowledged as a whole.
//!
//! A message that comes back is not trusted: something in it may have killed its worker. It is done
//! by itself, entry by entry, so that what is stored stays stored whatever comes next. If it keeps
//! coming back, its entries are separated into messages of their own; and an entry that has come
//! back alone too often is given up. Messages that come back are done in random order: one that
//! kills its worker each time can't keep the same others waiting, and so has no company at the end.

use std::time::Duration;

use futures_util::future::try_join_all;
use lapin::{message::Delivery, types::AMQPValue};
use letterbox_broker::{Alone, BrokerError, Message, Publisher, RETURNS_HEADER, decode, topology};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{AWAY_TOO_LONG, MAX_HOLD, STOPPED_WHILE_AWAY, subscription::Subscription};
use crate::{
    apply::{self, DecodedEntry},
    dead_letters, metrics,
    outcome::{self, Outcome},
    recorder::Recorder,
};

/// From this return on, the entries of a message are separated.
const SEPARATED_FROM: i64 = 3;
/// At this return, a single entry is given up. Less than the broker's own limit, which would give
/// no reason.
const GIVEN_UP_AT: i64 = 20;

/// Consumes one queue in batches.
pub(super) struct BatchConsumer<'c> {
    pub(super) recorder: &'c Recorder,
    pub(super) publisher: &'c Publisher,
}

/// A message with its entries.
struct Received {
    delivery: Delivery,
    entries: Vec<DecodedEntry>,
    returns: i64,
}

impl Received {
    fn new(mut delivery: Delivery) -> Self {
        let body = std::mem::take(&mut delivery.data).into();
        let entries = decode(&delivery.properties, body);
        Self {
            returns: returns(&delivery),
            entries: entries.into_iter().map(DecodedEntry::new).collect(),
            delivery,
        }
    }
}

/// How often a message has come back. On its first delivery only its publisher can have said so.
fn returns(delivery: &Delivery) -> i64 {
    if !delivery.redelivered {
        return 0;
    }
    let headers = delivery.properties.headers().as_ref();
    match headers.and_then(|headers| headers.inner().get(RETURNS_HEADER)) {
        Some(AMQPValue::LongLongInt(count)) => *count,
        Some(AMQPValue::LongInt(count)) => i64::from(*count),
        Some(AMQPValue::LongUInt(count)) => i64::from(*count),
        Some(AMQPValue::ShortInt(count)) => i64::from(*count),
        Some(AMQPValue::ShortShortInt(count)) => i64::from(*count),
        _ => 0,
    }
}

impl BatchConsumer<'_> {
    pub(super) async fn consume(
        &self,
        mut subscription: Subscription,
        stop: &CancellationToken,
    ) -> Result<(), BrokerError> {
        while let Some(batch) = subscription.next(stop).await? {
            let (fresh, mut returned): (Vec<_>, Vec<_>) = batch
                .into_iter()
                .partition(|delivery| returns(delivery) == 0);
            let queue = subscription.queue.as_str();
            let is_all = returned.is_empty();
            if !fresh.is_empty() {
                self.process(queue, fresh, is_all, stop).await?;
            }
            fastrand::shuffle(&mut returned);
            for delivery in returned {
                self.process_returned(queue, delivery, stop).await?;
            }
        }
        Ok(())
    }

    /// Stores the entries of all messages together and acknowledges the messages; at once, where
    /// they are all that was fetched.
    async fn process(
        &self,
        queue: &str,
        batch: Vec<Delivery>,
        is_all: bool,
        stop: &CancellationToken,
    ) -> Result<(), BrokerError> {
        let (mut deliveries, mut entries) = (Vec::new(), Vec::new());
        for received in batch.into_iter().map(Received::new) {
            deliveries.push(received.delivery);
            entries.extend(received.entries);
        }
        self.store(queue, entries, stop).await?;
        if let (true, Some(last)) = (is_all, deliveries.last()) {
            return Subscription::acknowledge(last, true).await;
        }
        for delivery in &deliveries {
            Subscription::acknowledge(delivery, false).await?;
        }
        Ok(())
    }

    /// Does one message that has come back.
    async fn process_returned(
        &self,
        queue: &str,
        delivery: Delivery,
        stop: &CancellationToken,
    ) -> Result<(), BrokerError> {
        let Received {
            delivery,
            mut entries,
            returns,
        } = Received::new(delivery);
        let may_separate = entries.len() > 1 && returns >= SEPARATED_FROM;
        if may_separate && self.separate(&delivery, &entries).await {
            // Each comes back by itself.
        } else if returns >= GIVEN_UP_AT && entries.len() == 1 {
            let reason = format!("it has come back {returns} times: its workers died");
            for entry in entries {
                let alone = entry.entry.alone();
                let mut patience = Patience::new(stop);
                while dead_letters::publish(self.publisher, queue, &alone, &reason)
                    .await
                    .is_err()
                {
                    patience.pause().await?;
                }
            }
        } else {
            // In another order each time: one that kills its worker comes before others only now
            // and then.
            fastrand::shuffle(&mut entries);
            for entry in entries {
                self.store(queue, vec![entry], stop).await?;
            }
        }
        Subscription::acknowledge(&delivery, false).await
    }

    /// Brings every entry to its end.
    async fn store(
        &self,
        queue: &str,
        mut open: Vec<DecodedEntry>,
        stop: &CancellationToken,
    ) -> Result<(), BrokerError> {
        metrics::CONSUMED_BATCH_SIZE.record([queue.to_owned()], open.len());
        let mut patience = Patience::new(stop);
        loop {
            open = self.attempt(queue, open).await;
            if open.is_empty() {
                return Ok(());
            }
            patience.pause().await?;
        }
    }

    /// Publishes each entry to the queue that it came from. False if the broker does not take all
    /// of them now: it is not waited for, because a full queue has room only when somebody goes on.
    async fn separate(&self, delivery: &Delivery, entries: &[DecodedEntry]) -> bool {
        let publishing = entries.iter().map(|entry| {
            let message = separated(delivery, entry.entry.alone());
            self.publisher.publish(message)
        });
        try_join_all(publishing).await.is_ok()
    }

    /// One try. Gives the entries that must be tried again.
    async fn attempt(&self, queue: &str, open: Vec<DecodedEntry>) -> Vec<DecodedEntry> {
        let outcomes = apply::apply(self.recorder, &open).await;
        let mut again = Vec::new();
        for (entry, outcome) in open.into_iter().zip(outcomes) {
            let outcome = match outcome {
                Outcome::Reject(reason) => self.dead_letter(queue, &entry, reason).await,
                other => other,
            };
            metrics::ENTRIES.add([queue.to_owned(), outcome.label().to_owned()], 1);
            if outcome == Outcome::Retry {
                again.push(entry);
            }
        }
        again
    }

    async fn dead_letter(&self, queue: &str, entry: &DecodedEntry, reason: String) -> Outcome {
        match dead_letters::publish(self.publisher, queue, &entry.entry.alone(), &reason).await {
            Ok(()) => Outcome::Reject(reason),
            Err(_) => Outcome::Retry,
        }
    }
}

/// One entry as a message to the queue that it came from.
fn separated(delivery: &Delivery, alone: Alone) -> Message {
    Message {
        exchange: topology::EXCHANGE,
        routing_key: delivery.routing_key.to_string(),
        properties: alone.properties,
        body: alone.body,
    }
}

/// Waits for a server that is away, as long as a message may be held. What is not done by then
/// returns to the queue.
struct Patience<'s> {
    began: Instant,
    pauses: Box<dyn Iterator<Item = Duration> + Send>,
    stop: &'s CancellationToken,
}

impl<'s> Patience<'s> {
    fn new(stop: &'s CancellationToken) -> Self {
        Self {
            began: Instant::now(),
            pauses: Box::new(outcome::pauses()),
            stop,
        }
    }

    /// Waits before the next try.
    async fn pause(&mut self) -> Result<(), BrokerError> {
        if self.began.elapsed() > MAX_HOLD {
            return Err(BrokerError::Ended(AWAY_TOO_LONG.into()));
        }
        let pause = self.pauses.next().unwrap_or(MAX_HOLD);
        tokio::select! {
            () = tokio::time::sleep(pause) => Ok(()),
            () = self.stop.cancelled() => Err(BrokerError::Ended(STOPPED_WHILE_AWAY.into())),
        }
    }
}
