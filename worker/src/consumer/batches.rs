//! Deliveries and submissions: the entries of all fetched messages are stored together, and their
//! messages are acknowledged together. What can't be stored now is [held](super::held) aside.
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
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use super::{held::Held, in_hand::InHand, patience::Patience, queue_reader::QueueReader};
use crate::{
    apply::{self, DecodedEntry},
    dead_letters, metrics,
    outcome::{Cause, EntryOutcome, Rejection},
    recorder::Recorder,
};

/// Number of returns from which the entries of a message are separated.
const SEPARATED_FROM: i64 = 3;
/// Interval at which held messages are looked at again.
const TRY_AGAIN: Duration = Duration::from_millis(100);
/// Pause after a batch of which nothing could be stored, although the database answers.
const IDLE_PAUSE: Duration = Duration::from_millis(250);
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
    /// Messages that the broker hands out unacknowledged.
    pub(super) prefetch: u16,
}

/// The broker's number of a message on its channel.
pub(super) type Tag = u64;

/// An entry that is not done, and its message.
pub(super) struct OpenEntry {
    pub(super) message: Tag,
    pub(super) entry: DecodedEntry,
}

/// What came of trying to store entries.
#[derive(Default)]
pub(super) struct Attempted {
    /// How many are stored.
    pub(super) done: usize,
    /// Those that can't be stored now.
    pub(super) left: Vec<OpenEntry>,
    /// Dead letters that the broker has not confirmed.
    pub(super) letters: Vec<Rejected>,
}

/// Takes the entries out of a message.
fn open(delivery: &mut Delivery) -> Vec<OpenEntry> {
    let body = std::mem::take(&mut delivery.data).into();
    let message = delivery.delivery_tag;
    let entries = decode(&delivery.properties, body).into_iter();
    let open = |entry| OpenEntry {
        message,
        entry: DecodedEntry::new(entry),
    };
    entries.map(open).collect()
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
pub(super) struct Rejected {
    pub(super) message: Tag,
    pub(super) entry: DecodedEntry,
    rejection: Rejection,
}

/// When the oldest of some entries was received.
pub(super) fn oldest<'e>(entries: impl Iterator<Item = &'e DecodedEntry>) -> Option<Timestamp> {
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
        let mut held = Held::new(self, queue);
        // An interval, not a sleep: a sleep would start over with every batch.
        let mut try_again = tokio::time::interval(TRY_AGAIN);
        try_again.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let batch = tokio::select! {
                // The tick first: a busy queue must not starve the held messages.
                biased;
                _ = try_again.tick(), if !held.is_empty() => {
                    held.try_again(stop).await?;
                    // That may have taken longer than the interval: fetch before the next.
                    try_again.reset();
                    continue;
                }
                tried = held.tried() => {
                    tried?;
                    continue;
                }
                batch = reader.next(stop) => batch?,
            };
            let Some(batch) = batch else { return Ok(()) };
            let (fresh, mut returned): (Vec<_>, Vec<_>) = batch
                .into_iter()
                .partition(|delivery| returns(delivery) == 0);
            if !fresh.is_empty() {
                // An acknowledgement of all would also acknowledge returned and held messages.
                let is_all = returned.is_empty() && held.is_empty();
                self.process(&mut held, fresh, is_all, stop).await?;
            }
            // The fresh messages are stored by now: a returned one that kills the worker can't
            // affect them.
            fastrand::shuffle(&mut returned);
            for delivery in returned {
                self.process_returned(&mut held, delivery, stop).await?;
            }
        }
    }

    /// How many messages may be held beside the queue.
    pub(super) fn max_held(&self) -> usize {
        usize::from(self.prefetch / 2)
    }

    /// Stores the entries of all messages together and acknowledges the messages, with a single
    /// acknowledgement if no others are outstanding (`is_all`).
    async fn process(
        &self,
        held: &mut Held<'_>,
        mut batch: Vec<Delivery>,
        is_all: bool,
        stop: &CancellationToken,
    ) -> Result<(), BrokerError> {
        let entries = batch.iter_mut().flat_map(open).collect();
        let (entries, waiting) = held.split(entries);
        let mut stored = self.store(held.queue, entries, stop).await?;
        stored.left.extend(waiting);
        let is_over = stored.left.is_empty() && stored.letters.is_empty();
        if let (true, true, Some(last)) = (is_all, is_over, batch.last()) {
            return QueueReader::acknowledge(last, true).await;
        }
        let is_idle = stored.done == 0 && !stored.left.is_empty();
        let mut letters = by_message(stored.letters, |letter| letter.message);
        let mut left = by_message(stored.left, |one| one.message);
        for delivery in batch {
            let tag = &delivery.delivery_tag;
            let letters = letters.remove(tag).unwrap_or_default();
            let left = left.remove(tag).unwrap_or_default();
            held.settle(delivery, letters, left).await?;
        }
        if is_idle {
            // What is published anew may be all that there is.
            tokio::time::sleep(IDLE_PAUSE).await;
        }
        Ok(())
    }

    /// Processes one returned message.
    async fn process_returned(
        &self,
        held: &mut Held<'_>,
        mut delivery: Delivery,
        stop: &CancellationToken,
    ) -> Result<(), BrokerError> {
        let (returns, mut entries) = (returns(&delivery), open(&mut delivery));
        let is_alone = entries.len() == 1;
        let may_separate = !is_alone && returns >= SEPARATED_FROM;
        let mut letters = Vec::new();
        if may_separate && self.separate(&delivery, &entries).await {
            // Every entry is confirmed as a message of its own. A crash before the acknowledgement
            // below leaves both copies, and storing an entry twice changes nothing.
            return held.settle(delivery, letters, Vec::new()).await;
        }
        if is_alone && returns >= GIVEN_UP_AT && self.database_answers().await {
            let rejection = Rejection {
                cause: Cause::Deadly,
                reason: format!("it was returned {returns} times: its workers died"),
            };
            for OpenEntry { message, entry } in entries {
                let letter = Rejected {
                    message,
                    entry,
                    rejection: rejection.clone(),
                };
                letters.extend(self.dead_letter(held.queue, letter).await);
            }
            return held.settle(delivery, letters, Vec::new()).await;
        }
        if is_alone && returns >= LAST_TRIES_FROM {
            let tried = self.attempt(held.queue, entries).await;
            (entries, letters) = (tried.left, tried.letters);
            // The worker lives: the entry is published anew, as one that has never returned.
            if !entries.is_empty() && self.separate(&delivery, &entries).await {
                entries.clear();
            }
        }
        // In a different order each time, so that an entry that kills its worker doesn't always
        // come before the same others. One transaction each, so that the others are committed.
        fastrand::shuffle(&mut entries);
        let (entries, mut left) = held.split(entries);
        for entry in entries {
            let stored = self.store(held.queue, vec![entry], stop).await?;
            letters.extend(stored.letters);
            left.extend(stored.left);
        }
        held.settle(delivery, letters, left).await
    }

    /// Whether the database takes writes now. While it does not, returns say nothing of an entry.
    async fn database_answers(&self) -> bool {
        health::check(&self.recorder.database).await.is_ok()
    }

    /// Stores or rejects entries, waiting while the database is unavailable. Those that are left
    /// can't be stored although it answers.
    async fn store(
        &self,
        queue: &str,
        entries: Vec<OpenEntry>,
        stop: &CancellationToken,
    ) -> Result<Attempted, BrokerError> {
        if entries.is_empty() {
            return Ok(Attempted::default());
        }
        let _in_hand = self
            .in_hand
            .hold(queue, oldest(entries.iter().map(|one| &one.entry)));
        metrics::CONSUMED_BATCH_SIZE.record([queue.to_owned()], entries.len());
        let mut patience = Patience::new(stop);
        let mut all = Attempted {
            left: entries,
            ..Attempted::default()
        };
        loop {
            let tried = self.attempt(queue, all.left).await;
            all.letters.extend(tried.letters);
            (all.done, all.left) = (all.done + tried.done, tried.left);
            if all.left.is_empty() || self.database_answers().await {
                return Ok(all);
            }
            patience.pause().await?;
        }
    }

    /// Publishes each entry as a message to the queue that it came from. Returns `false` if the
    /// broker doesn't confirm all of them.
    pub(super) async fn separate(&self, delivery: &Delivery, entries: &[OpenEntry]) -> bool {
        let publishing = entries.iter().map(|one| {
            let message = separated(delivery, one.entry.entry.alone());
            self.publisher.publish(message)
        });
        // No retry: a full queue gets room only if its consumers go on.
        try_join_all(publishing).await.is_ok()
    }

    /// Tries to store entries once.
    pub(super) async fn attempt(&self, queue: &str, entries: Vec<OpenEntry>) -> Attempted {
        let (tags, entries): (Vec<_>, Vec<_>) = entries
            .into_iter()
            .map(|one| (one.message, one.entry))
            .unzip();
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
        let mut attempted = Attempted::default();
        for ((message, entry), outcome) in tags.into_iter().zip(entries).zip(outcomes) {
            let label = outcome.label();
            metrics::ENTRIES.add([queue.to_owned(), label.to_owned()], 1);
            match outcome {
                EntryOutcome::Done => {
                    attempted.done += 1;
                    if let Some(received_at) = entry.entry.received_at() {
                        // Two machines' clocks may differ: a negative delay counts as 0.
                        let delay = now.duration_since(received_at).try_into();
                        delays.record(delay.unwrap_or_default());
                    }
                }
                EntryOutcome::Retry => attempted.left.push(OpenEntry { message, entry }),
                EntryOutcome::Reject(rejection) => {
                    let letter = Rejected {
                        message,
                        entry,
                        rejection,
                    };
                    let unpublished = self.dead_letter(queue, letter).await;
                    attempted.letters.extend(unpublished);
                }
            }
        }
        attempted
    }

    /// Publishes a dead letter; returns it if the broker doesn't confirm it.
    pub(super) async fn dead_letter(&self, queue: &str, letter: Rejected) -> Option<Rejected> {
        let alone = letter.entry.entry.alone();
        let published = dead_letters::publish(self.publisher, queue, &alone, &letter.rejection);
        published.await.is_err().then_some(letter)
    }
}

/// Sorts things by their messages.
fn by_message<T>(things: Vec<T>, message: impl Fn(&T) -> Tag) -> HashMap<Tag, Vec<T>> {
    let mut sorted: HashMap<Tag, Vec<T>> = HashMap::new();
    for thing in things {
        sorted.entry(message(&thing)).or_default().push(thing);
    }
    sorted
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
