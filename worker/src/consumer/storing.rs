//! Storing entries, and what comes of it: done, left for later, or a dead letter.

use std::{collections::BTreeSet, time::Duration};

use jiff::Timestamp;
use letterbox_broker::{BrokerError, Publisher, spans};
use letterbox_common::ids::WorkspaceId;
use letterbox_database::health;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{in_hand::InHand, locked::LockedWorkspaces, patience::Patience, store};
use crate::{
    apply::{self, DecodedEntry},
    dead_letters, metrics,
    outcome::{Cause, EntryOutcome, Rejection},
    recorder::Recorder,
    spill,
};

/// Number of returns at which an entry is given up, if its workers have died.
const GIVEN_UP_AT: i64 = 23;
/// So many workers must have died since: otherwise connections broke, or a worker ended before it
/// came to the entry, and nothing is wrong with it.
const DEAD_WORKERS: i64 = 3;

/// What storing needs.
pub(super) struct Storing<'c> {
    pub(super) recorder: &'c Recorder,
    pub(super) publisher: &'c Publisher,
    pub(super) in_hand: &'c InHand,
    pub(super) locked: &'c LockedWorkspaces,
    /// Told when something was set aside.
    pub(super) set_aside: &'c Notify,
}

/// The outcome of trying to store entries.
#[derive(Default)]
pub(super) struct Attempted {
    /// How many are stored.
    pub(super) done: usize,
    /// Those that can't be stored now.
    pub(super) left: Vec<DecodedEntry>,
    /// Workspaces of these of which a row is locked.
    pub(super) locked: BTreeSet<WorkspaceId>,
    /// Those that can never be stored, and whose dead letters the broker has not confirmed.
    pub(super) letters: Vec<DecodedEntry>,
}

impl Storing<'_> {
    /// Whether the database takes writes now. While it does not, returns say nothing of an entry.
    async fn database_answers(&self) -> bool {
        health::check(&self.recorder.database).await.is_ok()
    }

    /// Stores or rejects entries, waiting while the database is unavailable. Those that are left
    /// can't be stored although it answers.
    pub(super) async fn store(
        &self,
        queue: &str,
        entries: Vec<DecodedEntry>,
        stop: &CancellationToken,
    ) -> Result<Attempted, BrokerError> {
        if entries.is_empty() {
            return Ok(Attempted::default());
        }
        let received = entries.iter().filter_map(|one| one.entry.received_at());
        let _in_hand = self.in_hand.hold(queue, received.min());
        metrics::CONSUMED_BATCH_SIZE.record([queue.to_owned()], entries.len() as f64);
        let mut patience = Patience::new(stop);
        let mut all = Attempted {
            left: entries,
            ..Attempted::default()
        };
        loop {
            let tried = self.attempt(queue, all.left).await;
            all.letters.extend(tried.letters);
            // What is not left met no lock in the end.
            all.locked = tried.locked;
            all.done += tried.done;
            all.left = tried.left;
            if all.left.is_empty() || self.database_answers().await {
                return Ok(all);
            }
            patience.pause().await?;
        }
    }

    /// Puts entries of a queue into the spill, each with the number of its returns, waiting while
    /// the database is unavailable.
    pub(super) async fn set_aside(
        &self,
        queue: &str,
        entries: &[(DecodedEntry, i64)],
        stop: &CancellationToken,
    ) -> Result<(), BrokerError> {
        if entries.is_empty() {
            return Ok(());
        }
        let aside = entries.iter().map(|(one, returns)| spill::Aside {
            workspace: one.door().map_or(Uuid::nil(), |door| door.0.into()),
            batch: one.entry.message_id().and_then(|id| id.parse().ok()),
            alone: one.entry.alone(),
            returns: *returns,
        });
        let aside: Vec<_> = aside.collect();
        let mut patience = Patience::new(stop);
        // The database crate logs the failure.
        let database = &self.recorder.database;
        let mut rest = &aside[..];
        while !rest.is_empty() {
            let (part, others) = rest.split_at(spill::that_fit(rest));
            while spill::put(database, queue, part).await.is_err() {
                patience.pause().await?;
            }
            rest = others;
        }
        self.set_aside.notify_one();
        Ok(())
    }

    /// Tries to store entries once.
    pub(super) async fn attempt(&self, queue: &str, entries: Vec<DecodedEntry>) -> Attempted {
        let mut span = spans::processing(queue, entries.iter().map(|one| &one.entry));
        let outcomes = apply::apply(self.recorder, &entries).await;
        let is_retried =
            |one: &EntryOutcome| matches!(one, EntryOutcome::Retry | EntryOutcome::Locked);
        if let (Some(span), true) = (&mut span, outcomes.iter().any(is_retried)) {
            span.fail("tried again");
        }
        drop(span);
        let delays = metrics::PROCESSING_DELAY.under([queue.to_owned()]);
        let now = Timestamp::now();
        let mut attempted = Attempted::default();
        for (entry, outcome) in entries.into_iter().zip(outcomes) {
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
                EntryOutcome::Retry => attempted.left.push(entry),
                EntryOutcome::Locked => {
                    let door = entry.door();
                    attempted
                        .locked
                        .extend(door.map(|(workspace, _)| workspace));
                    attempted.left.push(entry);
                }
                EntryOutcome::Reject(rejection) => {
                    self.dead_letter(queue, entry, &rejection, &mut attempted)
                        .await;
                }
            }
        }
        attempted
    }

    /// Whether an entry that was returned so often must have killed its workers. While the database
    /// takes no writes, returns say nothing.
    pub(super) async fn is_deadly(&self, returns: i64) -> bool {
        if returns < GIVEN_UP_AT {
            return false;
        }
        let dead = store::count_dead_workers(&self.recorder.database).await;
        dead.is_ok_and(|(dead,)| dead >= DEAD_WORKERS) && self.database_answers().await
    }

    /// Dead-letters entries whose workers died.
    pub(super) async fn bury(
        &self,
        queue: &str,
        entries: Vec<DecodedEntry>,
        returns: i64,
    ) -> Attempted {
        let rejection = Rejection {
            cause: Cause::Deadly,
            reason: format!("it was returned {returns} times: its workers died"),
        };
        let mut attempted = Attempted::default();
        for entry in entries {
            self.dead_letter(queue, entry, &rejection, &mut attempted)
                .await;
        }
        attempted
    }

    /// Publishes a dead letter; its entry stays one of the `letters` if the broker doesn't confirm.
    async fn dead_letter(
        &self,
        queue: &str,
        entry: DecodedEntry,
        rejection: &Rejection,
        attempted: &mut Attempted,
    ) {
        // After one that was not taken, no other is waited for.
        let is_published = attempted.letters.is_empty() && {
            let alone = entry.entry.alone();
            let publishing = dead_letters::publish(self.publisher, queue, &alone, rejection);
            publishing.await.is_ok()
        };
        attempted.letters.extend((!is_published).then_some(entry));
    }
}
