//! Storing the entries of messages, and what comes of it: done, left for later, or a dead letter.

use std::time::Duration;

use futures_util::future::try_join_all;
use jiff::Timestamp;
use lapin::message::Delivery;
use letterbox_broker::{Alone, BrokerError, Message, Publisher, spans, topology};
use letterbox_database::health;
use tokio_util::sync::CancellationToken;

use super::{in_hand::InHand, patience::Patience};
use crate::{
    apply::{self, DecodedEntry},
    dead_letters, metrics,
    outcome::{EntryOutcome, Rejection},
    recorder::Recorder,
};

/// What storing takes.
pub(super) struct Storing<'c> {
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

/// A rejected entry that the dead-letter exchange has not accepted yet.
pub(super) struct Rejected {
    pub(super) message: Tag,
    pub(super) entry: DecodedEntry,
    pub(super) rejection: Rejection,
}

/// When the oldest of some entries was received.
pub(super) fn oldest<'e>(entries: impl Iterator<Item = &'e DecodedEntry>) -> Option<Timestamp> {
    entries.filter_map(|one| one.entry.received_at()).min()
}

impl Storing<'_> {
    /// How many messages may be held beside the queue.
    pub(super) fn max_held(&self) -> usize {
        usize::from(self.prefetch / 2)
    }

    /// Whether the database takes writes now. While it does not, returns say nothing of an entry.
    pub(super) async fn database_answers(&self) -> bool {
        health::check(&self.recorder.database).await.is_ok()
    }

    /// Stores or rejects entries, waiting while the database is unavailable. Those that are left
    /// can't be stored although it answers.
    pub(super) async fn store(
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
        metrics::CONSUMED_BATCH_SIZE.record([queue.to_owned()], entries.len() as f64);
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
                        delays.record(delay.unwrap_or(Duration::ZERO));
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

/// One entry as a message to the queue that it came from.
fn separated(delivery: &Delivery, alone: Alone) -> Message {
    Message {
        exchange: topology::EXCHANGE,
        routing_key: delivery.routing_key.to_string(),
        properties: alone.properties,
        body: alone.body,
    }
}
