//! The outlet to the broker. After a publish to a queue has timed out, further messages do not try
//! it, because each would wait as long. One message probes it now and then. Each queue is judged by
//! itself.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use letterbox_broker::{PublishError, Publisher};
use letterbox_common::process::readiness::Component;
use parking_lot::Mutex;

use super::Spillable;
use crate::metrics;

/// How long messages do not try a silent queue.
const QUIET: Duration = Duration::from_secs(5);

/// Publishes messages of batches.
pub(crate) struct Outlet {
    publisher: Publisher,
    app_id: String,
    queues: Mutex<Troubled>,
    /// Reports queues that do not answer or refuse.
    component: Component,
}

/// Queues with problems, by routing key.
#[derive(Default)]
struct Troubled {
    /// Queues that did not answer in time, and when they may be tried again.
    silent: BTreeMap<String, Instant>,
    /// Queues that have refused a message since the last report.
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

    /// Whether a message would be tried, as far as this gateway knows: there
    /// is a connection, and the queue has not just refused or been silent.
    pub(crate) fn may_take(&self, routing_key: &str) -> bool {
        let queues = self.queues.lock();
        let silent = queues.silent.get(routing_key);
        let is_silent = silent.is_some_and(|again| *again > Instant::now());
        self.is_open() && !is_silent && !queues.refusing.contains(routing_key)
    }

    /// Publishes a message.
    ///
    /// # Errors
    /// When there is no confirm, whatever the reason.
    pub(crate) async fn publish(&self, message: &Spillable) -> Result<(), PublishError> {
        let Spillable {
            batch,
            routing_key,
            body,
            ..
        } = message;
        // Not sent, so no publish failure is counted: the message is spilled.
        if !self.may_ask(routing_key) {
            return Err(PublishError::Unavailable);
        }
        let key = routing_key.clone();
        let id = batch.to_string();
        let message = body.clone().into_message(key, id, &self.app_id);
        let published = self.publisher.publish(message).await;
        self.note(routing_key, published);
        if let Err(error) = &published {
            tracing::debug!(message_id = %batch, %error, "not published");
            metrics::PUBLISH_FAILURES.add([error.label()], 1);
        }
        published
    }

    /// Whether a queue may be tried: it is not known to be silent, or its pause is over. Then the
    /// caller is the one that probes it, and a new pause begins for the others.
    fn may_ask(&self, routing_key: &str) -> bool {
        match self.queues.lock().silent.get_mut(routing_key) {
            None => true,
            Some(again) if *again <= Instant::now() => {
                *again = Instant::now() + QUIET;
                true
            }
            Some(_) => false,
        }
    }

    fn note(&self, routing_key: &str, published: Result<(), PublishError>) {
        let mut queues = self.queues.lock();
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
            // These are about the connection and say nothing about the queue.
            Err(_) => {}
        }
    }

    /// Reports the queues with problems. Called periodically instead of at each result, because a
    /// queue at its limit takes one message and refuses the next.
    pub(super) fn report(&self) {
        let mut queues = self.queues.lock();
        // What nobody has asked again when it was time is not known to be silent any more.
        let now = Instant::now();
        queues.silent.retain(|_, again| *again + QUIET > now);
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
}
