//! Deliveries and submissions: the entries of all fetched messages are stored together, and their
//! messages are acknowledged together.
//!
//! A returned message is suspect: something in it may have killed its worker. It is processed by
//! itself, entry by entry, so that entries already stored stay stored whatever comes next. If it
//! keeps returning, its entries are separated into messages of their own, and an entry that has
//! returned alone too often is tried a last time: if its worker outlives that, something else has
//! returned it, and it begins anew; if not, it is dead-lettered. Returned messages are processed in
//! random order, so that one that kills its worker each time doesn't hold up the same others each
//! time.

use std::{collections::HashMap, time::Duration};

use futures_util::future::try_join_all;
use jiff::Timestamp;
use lapin::{message::Delivery, types::AMQPValue};
use letterbox_broker::{
    Alone, BrokerError, Message, Publisher, RETURNS_HEADER, decode, spans, topology,
};
use letterbox_database::health;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use super::{
    in_hand::{Hold, InHand},
    patience::{MAX_HOLD, Patience},
    queue_reader::QueueReader,
};
use crate::{
    apply::{self, DecodedEntry},
    dead_letters, metrics,
    outcome::{Cause, EntryOutcome, Rejection},
    recorder::Recorder,
};

/// Number of returns from which the entries of a message are separated.
const SEPARATED_FROM: i64 = 3;
/// Interval at which refused dead letters are published again.
const TRY_AGAIN: Duration = Duration::from_secs(1);
/// Why a consumer that held dead letters ended.
const DEAD_LETTERS_AWAY: &str = "dead letters could not be published for too long";
/// Number of returns from which a single entry is tried a last time. A worker may end before it has
/// come to that, hence a few times.
const LAST_TRIES_FROM: i64 = 20;
/// Number of returns at which a single entry is dead-lettered. Below the broker's own limit, which
/// would dead-letter it without a reason.
const GIVEN_UP_AT: i64 = 23;

/// Consumes one queue in batches.
pub(super) struct BatchConsumer<'c> {
    pub(super) recorder: &'c Recorder,
    pub(super) publisher: &'c Publisher,
    pub(super) in_hand: &'c InHand,
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

/// How often a message has been returned to its queue.
fn returns(delivery: &Delivery) -> i64 {
    // On a first delivery only the publisher can have set the header: it doesn't count.
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

/// A rejected entry that the dead-letter exchange has not accepted yet.
struct Rejected {
    /// The position of its message in the batch.
    message: usize,
    entry: DecodedEntry,
    rejection: Rejection,
}

/// A message held until its dead letters are published; its other entries are stored.
struct HeldMessage {
    delivery: Delivery,
    letters: Vec<Rejected>,
    since: Instant,
    _in_hand: Option<Hold>,
}

impl HeldMessage {
    fn new(in_hand: &InHand, queue: &str, delivery: Delivery, letters: Vec<Rejected>) -> Self {
        Self {
            _in_hand: in_hand.hold(queue, oldest(letters.iter().map(|letter| &letter.entry))),
            delivery,
            letters,
            since: Instant::now(),
        }
    }
}

/// When the oldest of some entries was received.
fn oldest<'e>(entries: impl Iterator<Item = &'e DecodedEntry>) -> Option<Timestamp> {
    entries.filter_map(|one| one.entry.received_at()).min()
}

impl BatchConsumer<'_> {
    pub(super) async fn consume(
        &self,
        reader: &mut QueueReader,
        stop: &CancellationToken,
    ) -> Result<(), BrokerError> {
        let queue = reader.queue.clone();
        let queue = queue.as_str();
        let mut held: Vec<HeldMessage> = Vec::new();
        // An interval, not a sleep: a sleep would start over with every batch.
        let mut try_again = tokio::time::interval(TRY_AGAIN);
        try_again.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let batch = tokio::select! {
                // The tick first: a busy queue must not starve the held messages.
                biased;
                _ = try_again.tick(), if !held.is_empty() => {
                    held = self.publish_held(queue, held, stop).await?;
                    // Publishing may have taken longer than the interval: fetch before the next.
                    try_again.reset();
                    continue;
                }
                batch = reader.next(stop) => batch?,
            };
            let Some(batch) = batch else { return Ok(()) };
            let (fresh, mut returned): (Vec<_>, Vec<_>) = batch
                .into_iter()
                .partition(|delivery| returns(delivery) == 0);
            // An acknowledgement of all would also acknowledge returned and held messages.
            let is_all = returned.is_empty() && held.is_empty();
            if !fresh.is_empty() {
                held.extend(self.process(queue, fresh, is_all, stop).await?);
            }
            // The fresh messages are stored by now: a returned one that kills the worker can't
            // affect them.
            fastrand::shuffle(&mut returned);
            for delivery in returned {
                held.extend(self.process_returned(queue, delivery, stop).await?);
            }
        }
    }

    /// Stores the entries of all messages together and acknowledges the messages, with a single
    /// acknowledgement if no others are outstanding (`is_all`). Returns the messages to hold.
    async fn process(
        &self,
        queue: &str,
        batch: Vec<Delivery>,
        is_all: bool,
        stop: &CancellationToken,
    ) -> Result<Vec<HeldMessage>, BrokerError> {
        let (mut deliveries, mut entries) = (Vec::new(), Vec::new());
        for (message, received) in batch.into_iter().map(Received::new).enumerate() {
            deliveries.push(received.delivery);
            entries.extend(received.entries.into_iter().map(|entry| (message, entry)));
        }
        let letters = self.store(queue, entries, stop).await?;
        if let (true, true, Some(last)) = (is_all, letters.is_empty(), deliveries.last()) {
            QueueReader::acknowledge(last, true).await?;
            return Ok(Vec::new());
        }
        // A message with unpublished dead letters is the only copy of those entries: hold it.
        let mut of_message: HashMap<usize, Vec<Rejected>> = HashMap::new();
        for letter in letters {
            of_message.entry(letter.message).or_default().push(letter);
        }
        let mut held = Vec::new();
        for (message, delivery) in deliveries.into_iter().enumerate() {
            match of_message.remove(&message) {
                None => QueueReader::acknowledge(&delivery, false).await?,
                Some(letters) => {
                    held.push(HeldMessage::new(self.in_hand, queue, delivery, letters));
                }
            }
        }
        Ok(held)
    }

    /// Processes one returned message. Returns it if it must be held.
    async fn process_returned(
        &self,
        queue: &str,
        delivery: Delivery,
        stop: &CancellationToken,
    ) -> Result<Option<HeldMessage>, BrokerError> {
        let Received {
            delivery,
            mut entries,
            returns,
        } = Received::new(delivery);
        let is_alone = entries.len() == 1;
        let may_separate = !is_alone && returns >= SEPARATED_FROM;
        let mut letters = Vec::new();
        if may_separate && self.separate(&delivery, &entries).await {
            // Every entry is confirmed as a message of its own. A crash before the acknowledgement
            // below leaves both copies, and storing an entry twice changes nothing.
        } else if is_alone && returns >= GIVEN_UP_AT && self.database_answers().await {
            let rejection = Rejection {
                cause: Cause::Deadly,
                reason: format!("it was returned {returns} times: its workers died"),
            };
            for entry in entries {
                letters.extend(self.dead_letter(queue, 0, entry, rejection.clone()).await);
            }
        } else if is_alone && returns >= LAST_TRIES_FROM {
            let open = entries.into_iter().map(|entry| (0, entry)).collect();
            let open = self.attempt(queue, open, &mut letters).await;
            let (_, entries): (Vec<_>, Vec<_>) = open.into_iter().unzip();
            // The worker lives: the entry is published anew, as one that has never returned.
            if !entries.is_empty() && !self.separate(&delivery, &entries).await {
                for entry in entries {
                    letters.extend(self.store(queue, vec![(0, entry)], stop).await?);
                }
            }
        } else {
            // In a different order each time, so that an entry that kills its worker doesn't always
            // come before the same others. One transaction each, so that the others are committed.
            fastrand::shuffle(&mut entries);
            for entry in entries {
                letters.extend(self.store(queue, vec![(0, entry)], stop).await?);
            }
        }
        if letters.is_empty() {
            QueueReader::acknowledge(&delivery, false).await?;
            return Ok(None);
        }
        let held = HeldMessage::new(self.in_hand, queue, delivery, letters);
        Ok(Some(held))
    }

    /// Whether the database takes writes now. While it does not, returns say nothing of an entry.
    async fn database_answers(&self) -> bool {
        health::check(&self.recorder.database).await.is_ok()
    }

    /// Tries once more to publish the dead letters of held messages; returns the messages still
    /// held.
    ///
    /// # Errors
    /// When a message was held for [`MAX_HOLD`]: ending the consumer returns it to its queue.
    async fn publish_held(
        &self,
        queue: &str,
        held: Vec<HeldMessage>,
        stop: &CancellationToken,
    ) -> Result<Vec<HeldMessage>, BrokerError> {
        let mut left = Vec::new();
        for mut message in held {
            // The rest returns to its queue when the channel closes; shutdown must not wait.
            if stop.is_cancelled() {
                left.push(message);
                continue;
            }
            let mut letters = Vec::new();
            for letter in message.letters {
                let Rejected {
                    entry, rejection, ..
                } = letter;
                letters.extend(self.dead_letter(queue, 0, entry, rejection).await);
            }
            message.letters = letters;
            if message.letters.is_empty() {
                QueueReader::acknowledge(&message.delivery, false).await?;
            } else if message.since.elapsed() > MAX_HOLD {
                return Err(BrokerError::Ended(DEAD_LETTERS_AWAY.into()));
            } else {
                left.push(message);
            }
        }
        Ok(left)
    }

    /// Stores or rejects every entry, waiting while the database is unavailable; returns the dead
    /// letters that could not be published. `open` holds entries with the positions of their
    /// messages.
    async fn store(
        &self,
        queue: &str,
        mut open: Vec<(usize, DecodedEntry)>,
        stop: &CancellationToken,
    ) -> Result<Vec<Rejected>, BrokerError> {
        let _in_hand = self
            .in_hand
            .hold(queue, oldest(open.iter().map(|(_, entry)| entry)));
        metrics::CONSUMED_BATCH_SIZE.record([queue.to_owned()], open.len());
        let (mut letters, mut patience) = (Vec::new(), Patience::new(stop));
        loop {
            open = self.attempt(queue, open, &mut letters).await;
            if open.is_empty() {
                return Ok(letters);
            }
            patience.pause().await?;
        }
    }

    /// Publishes each entry as a message to the queue that it came from. Returns `false` if the
    /// broker doesn't confirm all of them.
    async fn separate(&self, delivery: &Delivery, entries: &[DecodedEntry]) -> bool {
        let publishing = entries.iter().map(|entry| {
            let message = separated(delivery, entry.entry.alone());
            self.publisher.publish(message)
        });
        // No retry: a full queue gets room only if its consumers go on.
        try_join_all(publishing).await.is_ok()
    }

    /// Tries to store entries once; returns those that must be tried again.
    async fn attempt(
        &self,
        queue: &str,
        open: Vec<(usize, DecodedEntry)>,
        letters: &mut Vec<Rejected>,
    ) -> Vec<(usize, DecodedEntry)> {
        let (places, entries): (Vec<_>, Vec<_>) = open.into_iter().unzip();
        let mut span = spans::processing(queue, entries.iter().map(|one| &one.entry));
        let outcomes = apply::apply(self.recorder, &entries).await;
        if let (Some(span), true) = (&mut span, outcomes.contains(&EntryOutcome::Retry)) {
            span.fail("tried again");
        }
        drop(span);
        let (delays, now) = (
            metrics::PROCESSING_DELAY.under([queue.to_owned()]),
            Timestamp::now(),
        );
        let mut again = Vec::new();
        for ((message, entry), outcome) in places.into_iter().zip(entries).zip(outcomes) {
            let label = outcome.label();
            metrics::ENTRIES.add([queue.to_owned(), label.to_owned()], 1);
            match outcome {
                EntryOutcome::Done => {
                    if let Some(received_at) = entry.entry.received_at() {
                        // Two machines' clocks may differ: a negative delay counts as 0.
                        let delay = now.duration_since(received_at).try_into();
                        delays.record(delay.unwrap_or_default());
                    }
                }
                EntryOutcome::Retry => again.push((message, entry)),
                EntryOutcome::Reject(rejection) => {
                    letters.extend(self.dead_letter(queue, message, entry, rejection).await);
                }
            }
        }
        again
    }

    /// Publishes a dead letter; returns it if the broker doesn't confirm it.
    async fn dead_letter(
        &self,
        queue: &str,
        message: usize,
        entry: DecodedEntry,
        rejection: Rejection,
    ) -> Option<Rejected> {
        let alone = entry.entry.alone();
        let published = dead_letters::publish(self.publisher, queue, &alone, &rejection).await;
        published.is_err().then_some(Rejected {
            message,
            entry,
            rejection,
        })
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
