//! Confirmed publishing: a publish succeeds if, and only if, the broker has acknowledged that very
//! message.
//!
//! Each channel is owned by one task. lapin numbers a message under one lock and queues its frames
//! under another, so two tasks that publish on one channel can take each other's confirms: a
//! refused message would be reported as accepted. Callers hand over their messages through one
//! bounded queue and wait for the result, up to a deadline.
//!
//! A broker that blocks publishing, or whose connection ends, may confirm much later or never: then
//! every waiting caller gets an error at once.

mod answers;
mod channels;
mod job;

use std::time::Duration;

use futures_util::future;
use lapin::Connection;
use letterbox_common::{fail_point::fails, process::readiness::Component};
use tokio::{
    sync::{oneshot, watch},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

pub use self::job::PublishError;
use self::{answers::BrokerAnswers, channels::Channels, job::Job};
use crate::{
    BrokerError, Message, Session,
    connection::{open_channel, publishing_blocked},
    metrics,
};

/// Maximum number of messages that wait to be published; more are refused. Each caller has few
/// messages, of bounded size.
const QUEUE_LENGTH: usize = 1_024;

/// Hands messages to the channels of a [`PublisherSession`]. Cheap to clone.
#[derive(Clone)]
pub struct Publisher {
    jobs: async_channel::Sender<Job>,
    open: watch::Receiver<bool>,
    deadline: Duration,
}

impl Publisher {
    /// Whether there is a connection that takes messages.
    pub fn is_open(&self) -> bool {
        *self.open.borrow()
    }

    /// Waits until there is a connection that takes messages; forever when the session is over.
    pub async fn opened(&self) {
        if self.open.clone().wait_for(|open| *open).await.is_err() {
            // The session is gone and can't open again; returning would say that it has.
            future::pending::<()>().await;
        }
    }

    /// Publishes and waits for the confirm, at most for the publisher's deadline.
    ///
    /// # Errors
    /// When there is no confirm, whatever the reason.
    pub async fn publish(&self, message: Message) -> Result<(), PublishError> {
        // In the queue it would wait for a connection; the caller can spill it now instead.
        if !self.is_open() {
            return Err(PublishError::Unavailable);
        }
        let began = Instant::now();
        let key = message.routing_key.clone();
        if fails(&["publish", &key, "before"]).await {
            return Err(PublishError::Lost);
        }
        let (confirm, confirmed) = oneshot::channel();
        // Never waits for room: a full queue means that the broker is slower than its callers.
        self.jobs
            .try_send(Job { message, confirm })
            .map_err(|error| match error {
                async_channel::TrySendError::Full(_) => PublishError::Overloaded,
                async_channel::TrySendError::Closed(_) => PublishError::Unavailable,
            })?;
        let mut open = self.open.clone();
        let result = tokio::select! {
            // A confirm that is there counts, even if the connection has ended since.
            biased;
            // A dropped sender means that the session ended with this job in flight or queued.
            result = confirmed => result.unwrap_or(Err(PublishError::Lost)),
            _ = open.wait_for(|open| !open) => Err(PublishError::Lost),
            () = tokio::time::sleep(self.deadline) => Err(PublishError::TimedOut),
        };
        if result.is_ok() {
            if fails(&["publish", &key, "after"]).await {
                return Err(PublishError::TimedOut);
            }
            metrics::PUBLISH_DURATION.record::<&str>([], began.elapsed());
        }
        result
    }
}

/// The other end of a [`Publisher`]: confirm channels on one connection. Run it with
/// [`super::supervise`].
pub struct PublisherSession {
    channels: Channels,
    /// How many of them.
    count: u16,
}

/// Creates a publisher and the session that does its work, on `count` channels. `deadline`
/// bounds one publish from hand-over to confirm.
pub fn publisher(count: u16, deadline: Duration) -> (Publisher, PublisherSession) {
    let (sender, receiver) = async_channel::bounded(QUEUE_LENGTH);
    let (open, opened) = watch::channel(false);
    let publisher = Publisher {
        jobs: sender,
        open: opened,
        deadline,
    };
    let channels = Channels {
        jobs: receiver,
        open,
        deadline,
        answers: BrokerAnswers::default(),
    };
    let session = PublisherSession { channels, count };
    (publisher, session)
}

impl Session for PublisherSession {
    async fn run(
        &self,
        connection: &Connection,
        component: &Component,
        stop: &CancellationToken,
    ) -> Result<(), BrokerError> {
        let own = &self.channels;
        let mut channels = Vec::new();
        for _ in 0..self.count {
            let channel = open_channel(connection).await?;
            channels.push(own.run(connection, channel));
        }
        // However this ends, even if the supervisor drops it, no more messages are taken and every
        // waiting caller gets an answer.
        let _closed = CloseOnDrop(own);
        own.open.send_replace(true);
        component.ready();

        let closing = async {
            stop.cancelled().await;
            own.jobs.close();
            // The channels see the closed queue, publish the rest of it, and end by themselves.
            // Later no caller waits any more.
            tokio::time::sleep(own.deadline).await;
        };
        tokio::select! {
            outcome = future::try_join_all(channels) => outcome.map(drop),
            () = closing => Ok(()),
        }
    }

    fn blocked(&self, component: &Component, reason: Option<String>) {
        self.channels.open.send_replace(reason.is_none());
        publishing_blocked(component, reason);
    }
}

struct CloseOnDrop<'a>(&'a Channels);

impl Drop for CloseOnDrop<'_> {
    fn drop(&mut self) {
        // Closed first: a job that is queued during the drain is answered by this change.
        self.0.open.send_replace(false);
        // A dropped job drops its `confirm`, which its caller reads as `Lost`.
        while self.0.jobs.try_recv().is_ok() {}
    }
}
