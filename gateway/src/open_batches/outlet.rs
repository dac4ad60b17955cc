//! The way out to the broker. A broker that has let a publish time out is not asked again by those
//! who can do without: each would wait as long. Somebody who can wait finds out when it answers.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use letterbox_broker::{PublishError, Publisher};

use super::Spillable;
use crate::metrics;

/// Publishes messages of batches.
pub(crate) struct Outlet {
    publisher: Publisher,
    app_id: String,
    /// The last publish timed out, and none has succeeded since.
    suspect: AtomicBool,
}

impl Outlet {
    pub(crate) fn new(publisher: Publisher, app_id: String) -> Self {
        Self {
            publisher,
            app_id,
            suspect: AtomicBool::new(false),
        }
    }

    /// Whether there is a connection that takes messages.
    pub(crate) fn is_open(&self) -> bool {
        self.publisher.is_open()
    }

    pub(crate) fn is_suspect(&self) -> bool {
        self.suspect.load(Relaxed)
    }

    /// Publishes, unless it is known that the broker does not answer.
    ///
    /// # Errors
    /// When the confirm did not come, whatever the reason.
    pub(crate) async fn publish(&self, message: &Spillable) -> Result<(), PublishError> {
        if self.is_suspect() {
            return Err(PublishError::Unavailable);
        }
        self.probe(message).await
    }

    /// Publishes in any case.
    ///
    /// # Errors
    /// When the confirm did not come, whatever the reason.
    pub(crate) async fn probe(&self, message: &Spillable) -> Result<(), PublishError> {
        let Spillable {
            batch,
            routing_key,
            body,
        } = message.clone();
        let message = body.into_message(routing_key, batch.to_string(), &self.app_id);
        let published = self.publisher.publish(message).await;
        match published {
            Ok(()) => self.suspect.store(false, Relaxed),
            Err(error) => {
                if error == PublishError::TimedOut {
                    self.suspect.store(true, Relaxed);
                }
                tracing::debug!(message_id = %batch, %error, "not published");
                metrics::PUBLISH_FAILURES.add([error.label()], 1);
            }
        }
        published
    }
}
