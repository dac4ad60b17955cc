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

use lapin::{message::Delivery, types::AMQPValue};
use letterbox_broker::{BrokerError, RETURNS_HEADER, decode};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use super::{
    held::Held,
    queue_reader::QueueReader,
    store,
    storing::{OpenEntry, Rejected, Storing, Tag},
};
use crate::{
    apply::DecodedEntry,
    outcome::{Cause, Rejection},
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

/// Consumes one queue in batches.
pub(super) struct BatchConsumer<'c>(pub(super) Storing<'c>);

impl BatchConsumer<'_> {
    pub(super) async fn consume(
        &self,
        reader: &mut QueueReader,
        stop: &CancellationToken,
    ) -> Result<(), BrokerError> {
        let queue = reader.queue.clone();
        let queue = queue.as_str();
        let mut held = Held::new(&self.0, queue);
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
                    held.note(tried).await?;
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
        let storing = self.0.store(held.queue, entries, stop);
        let mut stored = held.beside(storing).await?;
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
            held.beside(tokio::time::sleep(IDLE_PAUSE)).await;
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
        if may_separate && held.beside(self.0.separate(&delivery, &entries)).await {
            // Every entry is confirmed as a message of its own. A crash before the acknowledgement
            // below leaves both copies, and storing an entry twice changes nothing.
            return held.settle(delivery, letters, Vec::new()).await;
        }
        if is_alone && returns >= GIVEN_UP_AT && self.workers_died().await {
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
                let publishing = self.0.dead_letter(held.queue, letter);
                letters.extend(held.beside(publishing).await);
            }
            return held.settle(delivery, letters, Vec::new()).await;
        }
        if is_alone && returns >= LAST_TRIES_FROM {
            let trying = self.0.attempt(held.queue, entries);
            let tried = held.beside(trying).await;
            (entries, letters) = (tried.left, tried.letters);
            // The worker lives: the entry is published anew, as one that has never returned.
            if !entries.is_empty() && held.beside(self.0.separate(&delivery, &entries)).await {
                entries.clear();
            }
        }
        // In a different order each time, so that an entry that kills its worker doesn't always
        // come before the same others. One transaction each, so that the others are committed.
        fastrand::shuffle(&mut entries);
        let (entries, mut left) = held.split(entries);
        for entry in entries {
            let storing = self.0.store(held.queue, vec![entry], stop);
            let stored = held.beside(storing).await?;
            letters.extend(stored.letters);
            left.extend(stored.left);
        }
        held.settle(delivery, letters, left).await
    }

    /// Whether as many workers have died as an entry has had last tries. Otherwise connections
    /// broke while their workers lived, and nothing is wrong with the entry. While the database
    /// takes no writes, returns say nothing either.
    async fn workers_died(&self) -> bool {
        let dead = store::count_dead_workers(&self.0.recorder.database).await;
        dead.map_or(0, |(dead,)| dead) >= GIVEN_UP_AT - LAST_TRIES_FROM
            && self.0.database_answers().await
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
