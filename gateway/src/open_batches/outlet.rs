//! The way out to the broker. A queue that has let a publish time out is not asked by everybody
//! again: each would wait as long. One message asks now and then, a spilled one first, because
//! nobody waits for it. What is known of one queue says nothing about the others.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use letterbox_broker::{PublishError, Publisher};
use letterbox_common::process::readiness::Component;

use super::Spillable;
use crate::metrics;

/// How long a queue that did not answer is left alone, by spilled messages.
const QUIET: Duration = Duration::from_secs(3);
/// How much longer by those that somebody waits for.
const QUIET_FOR_SENDERS: Duration = Duration::from_secs(6);

/// Publishes messages of batches.
pub(crate) struct Outlet {
    publisher: Publisher,
    app_id: String,
    queues: Mutex<Troubled>,
    /// Tells of queues that do not answer or refuse.
    component: Component,
}

/// Queues, by routing key, that do not take everything.
#[derive(Default)]
struct Troubled {
    /// Did not answer in time, and are asked again at this time.
    silent: BTreeMap<String, Instant>,
    /// Have refused something since the last report.
    refusing: BTreeSet<String>,
}

impl Outlet {
    pub(crate) fn new(publisher: Publisher, app_id: String, component: Component) -> Self {
        component.ready();
        Self {
            publisher,
            app_id,
            queues: Mutex::default(),
            component,
        }
    }

    /// Whether there is a connection that takes messages.
    pub(super) fn is_open(&self) -> bool {
        self.publisher.is_open()
    }

    /// Whether a message that somebody waits for would be tried, as far as is known here: there is
    /// a connection, and its queue has not just refused or been silent.
    pub(crate) fn may_take(&self, routing_key: &str) -> bool {
        let queues = self.lock();
        let silent = queues.silent.get(routing_key);
        let is_silent = silent.is_some_and(|again| *again + QUIET_FOR_SENDERS > Instant::now());
        self.is_open() && !is_silent && !queues.refusing.contains(routing_key)
    }

    /// Publishes a message that somebody waits for.
    ///
    /// # Errors
    /// When the confirm did not come, whatever the reason.
    pub(crate) async fn publish(&self, message: &Spillable) -> Result<(), PublishError> {
        self.publish_unless_silent(message, QUIET_FOR_SENDERS).await
    }

    /// Publishes a message that nobody waits for.
    ///
    /// # Errors
    /// When the confirm did not come, whatever the reason.
    pub(super) async fn relay(&self, message: &Spillable) -> Result<(), PublishError> {
        self.publish_unless_silent(message, Duration::ZERO).await
    }

    async fn publish_unless_silent(
        &self,
        message: &Spillable,
        longer: Duration,
    ) -> Result<(), PublishError> {
        let Spillable {
            batch,
            routing_key,
            body,
        } = message;
        if !self.may_ask(routing_key, longer) {
            return Err(PublishError::Unavailable);
        }
        let (key, id) = (routing_key.clone(), batch.to_string());
        let message = body.clone().into_message(key, id, &self.app_id);
        let published = self.publisher.publish(message).await;
        self.note(routing_key, published);
        if let Err(error) = &published {
            tracing::debug!(message_id = %batch, %error, "not published");
            metrics::PUBLISH_FAILURES.add([error.label()], 1);
        }
        published
    }

    /// Whether a queue may be asked: it answers, as far as is known, or has been left alone for
    /// long enough. Then others leave it alone again.
    fn may_ask(&self, routing_key: &str, longer: Duration) -> bool {
        match self.lock().silent.get_mut(routing_key) {
            None => true,
            Some(again) if *again + longer <= Instant::now() => {
                *again = Instant::now() + QUIET;
                true
            }
            Some(_) => false,
        }
    }

    fn note(&self, routing_key: &str, published: Result<(), PublishError>) {
        let mut queues = self.lock();
        match published {
            Ok(()) => {
                queues.silent.remove(routing_key);
            }
            Err(PublishError::TimedOut) => {
                let again = Instant::now() + QUIET;
                queues.silent.insert(routing_key.to_owned(), again);
            }
            Err(PublishError::Refused) => {
                queues.refusing.insert(routing_key.to_owned());
            }
            // The connection, not the queue.
            Err(_) => {}
        }
    }

    /// Says which queues do not take everything. Called now and then, because a queue at its limit
    /// takes one message and refuses the next.
    pub(super) fn report(&self) {
        let mut queues = self.lock();
        let refusing = std::mem::take(&mut queues.refusing);
        let silent = queues
            .silent
            .keys()
            .map(|key| format!("{key} does not answer"));
        let refusing = refusing.iter().map(|key| format!("{key} refuses"));
        let troubles: Vec<String> = silent.chain(refusing).collect();
        if troubles.is_empty() {
            self.component.ready();
        } else {
            self.component.not_ready(troubles.join(", "));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Troubled> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
