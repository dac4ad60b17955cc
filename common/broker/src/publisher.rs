//! Confirmed publishing: a publish has succeeded when, and only when, the broker has acknowledged
//! that very message.
//!
//! Each channel is owned by one task. lapin numbers a message under one lock and queues its frames
//! under another, so two tasks that publish on one channel can take each other's confirms: a
//! refused message would be reported as accepted. Callers hand their messages over through one
//! bounded queue and wait for an answer with a deadline.
//!
//! A broker that blocks publishing, or whose connection ends, may confirm much later or never: then
//! everybody who waits is told so at once.
//!
//! Only an acknowledgement without a returned message counts. A returned message (the topology
//! makes it impossible) can't be matched to its publish with certainty, so it fails everything in
//! flight on the connection.

use std::time::{Duration, Instant};

use futures_util::{StreamExt, future, stream::FuturesUnordered};
use lapin::{Channel, Confirmation, Connection, PublisherConfirm, options::*};
use letterbox_common::process::readiness::Component;
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::{
    BrokerError, Message, Session,
    error::{close_channel, with_timeout},
    metrics,
};

/// Messages that may wait to be published. One more is refused. Callers have few messages each, of
/// bounded size.
const QUEUE_LENGTH: usize = 1_024;
/// Messages that may be unconfirmed on one channel.
const UNCONFIRMED_MAX: usize = 2_048;
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a channel is used on which the broker refuses.
const REFUSING_FOR: Duration = Duration::from_secs(5);

/// Why a message is not known to be safe with the broker. It may be there all the same: see
/// [`PublishError::TimedOut`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    /// There is no connection, or the broker blocks publishing. It was not sent.
    #[error("no broker connection takes messages now")]
    Unavailable,
    /// Too many messages wait to be published. It was not sent.
    #[error("too many messages wait to be published")]
    Overloaded,
    /// The broker answered with a negative acknowledgement.
    #[error("the broker refused the message")]
    Refused,
    /// The broker may still take it: only the same id again is safe.
    #[error("no confirm in time")]
    TimedOut,
    /// The broker may have taken it: only the same id again is safe.
    #[error("the connection broke, or the broker blocked it, before the confirm")]
    Lost,
}

impl PublishError {
    /// One word for metrics.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Unavailable => "unavailable",
            Self::Overloaded => "overloaded",
            Self::Refused => "refused",
            Self::TimedOut => "timed_out",
            Self::Lost => "lost",
        }
    }
}

struct Job {
    message: Message,
    confirm: ConfirmSender,
}

/// Hands messages to the channels of a [`PublisherSession`]. Cheap to clone.
#[derive(Clone)]
pub struct Publisher {
    jobs: async_channel::Sender<Job>,
    open: watch::Receiver<bool>,
    deadline: Duration,
}

impl Publisher {
    /// Whether there is a connection that takes messages.
    #[must_use]
    pub fn is_open(&self) -> bool {
        *self.open.borrow()
    }

    /// Waits until there is a connection that takes messages; without end when the session is over.
    pub async fn opened(&self) {
        if self.open.clone().wait_for(|open| *open).await.is_err() {
            future::pending::<()>().await;
        }
    }

    /// Publishes and waits for the confirm, at most for the publisher's deadline.
    ///
    /// # Errors
    /// When the confirm did not come, whatever the reason.
    pub async fn publish(&self, message: Message) -> Result<(), PublishError> {
        if !self.is_open() {
            return Err(PublishError::Unavailable);
        }
        let began = Instant::now();
        let (confirm, confirmed) = oneshot::channel();
        self.jobs
            .try_send(Job { message, confirm })
            .map_err(|error| match error {
                async_channel::TrySendError::Full(_) => PublishError::Overloaded,
                async_channel::TrySendError::Closed(_) => PublishError::Unavailable,
            })?;
        let mut open = self.open.clone();
        let result = tokio::select! {
            biased;
            result = confirmed => result.unwrap_or(Err(PublishError::Lost)),
            _ = open.wait_for(|open| !open) => Err(PublishError::Lost),
            () = tokio::time::sleep(self.deadline) => Err(PublishError::TimedOut),
        };
        if result.is_ok() {
            metrics::PUBLISH_DURATION.record::<&str, 0>([], began.elapsed());
        }
        result
    }
}

/// The other end of a [`Publisher`]: `channels` confirm channels on one connection. Run it with
/// [`super::supervise`].
pub struct PublisherSession {
    jobs: async_channel::Receiver<Job>,
    open: watch::Sender<bool>,
    channels: u16,
}

/// A publisher and the session that does its work. `deadline` bounds one publish from hand-over to
/// confirm.
#[must_use]
pub fn publisher(channels: u16, deadline: Duration) -> (Publisher, PublisherSession) {
    let (sender, receiver) = async_channel::bounded(QUEUE_LENGTH);
    let (open, opened) = watch::channel(false);
    let publisher = Publisher {
        jobs: sender,
        open: opened,
        deadline,
    };
    let session = PublisherSession {
        jobs: receiver,
        open,
        channels,
    };
    (publisher, session)
}

impl Session for PublisherSession {
    async fn run(
        &self,
        connection: &Connection,
        component: &Component,
        stop: &CancellationToken,
    ) -> Result<(), BrokerError> {
        let mut channels = Vec::new();
        for _ in 0..self.channels {
            let channel = open_channel(connection).await?;
            channels.push(run_channels(connection, channel, self.jobs.clone()));
        }
        // However this ends, also when the supervisor drops it: nothing more is taken, and every
        // waiting caller is answered.
        let _closed = CloseOnDrop(self);
        self.open.send_replace(true);
        component.ready();

        let closing = async {
            stop.cancelled().await;
            self.jobs.close();
            future::pending::<()>().await;
        };
        tokio::select! {
            outcome = future::try_join_all(channels) => outcome.map(drop),
            () = closing => Ok(()),
        }
    }

    fn blocked(&self, component: &Component, reason: Option<String>) {
        self.open.send_replace(reason.is_none());
        match reason {
            Some(reason) => component.not_ready(format!("the broker blocks publishing: {reason}")),
            None => component.ready(),
        }
    }
}

struct CloseOnDrop<'a>(&'a PublisherSession);

impl Drop for CloseOnDrop<'_> {
    fn drop(&mut self) {
        self.0.open.send_replace(false);
        while self.0.jobs.try_recv().is_ok() {}
    }
}

async fn open_channel(connection: &Connection) -> Result<Channel, BrokerError> {
    let channel = with_timeout(OPEN_TIMEOUT, connection.create_channel()).await?;
    let confirming = channel.confirm_select(ConfirmSelectOptions::default());
    with_timeout(OPEN_TIMEOUT, confirming).await?;
    Ok(channel)
}

/// Publishes on one channel after the other until the queue is closed and everything is confirmed.
/// A channel that was refused something is replaced after a while: the broker goes on refusing on
/// it although the queue's limit is gone.
async fn run_channels(
    connection: &Connection,
    mut channel: Channel,
    jobs: async_channel::Receiver<Job>,
) -> Result<(), BrokerError> {
    let _open = metrics::CHANNELS.hold();
    while run_channel(&channel, &jobs).await? == Ended::Refusing {
        close_channel(&channel).await;
        channel = open_channel(connection).await?;
    }
    close_channel(&channel).await;
    Ok(())
}

/// Why nothing more is published on a channel. Everything on it is confirmed or refused.
#[derive(Debug, PartialEq, Eq)]
enum Ended {
    /// There is nothing more to publish.
    Closed,
    /// The broker has refused something on it.
    Refusing,
}

/// Publishes on one channel.
async fn run_channel(
    channel: &Channel,
    jobs: &async_channel::Receiver<Job>,
) -> Result<Ended, BrokerError> {
    let (opened, mut unconfirmed) = (Instant::now(), FuturesUnordered::new());
    let mut ended = Ended::Closed;
    loop {
        tokio::select! {
            biased;
            Some(returned) = unconfirmed.next() => {
                let result: Result<(), PublishError> = returned?;
                if result.is_err() && opened.elapsed() > REFUSING_FOR {
                    ended = Ended::Refusing;
                    break;
                }
            }
            job = jobs.recv(), if unconfirmed.len() < UNCONFIRMED_MAX => match job {
                Ok(job) => if let Some((pending, confirm)) = send(channel, job).await? {
                    unconfirmed.push(forward(pending, confirm));
                },
                Err(_) => break,
            },
        }
    }
    while let Some(returned) = unconfirmed.next().await {
        let _: Result<(), PublishError> = returned?;
    }
    Ok(ended)
}

/// Takes the result of one publish to its caller.
type ConfirmSender = oneshot::Sender<Result<(), PublishError>>;

/// Writes one message to the connection, unless its caller has given up.
async fn send(
    channel: &Channel,
    job: Job,
) -> Result<Option<(PublisherConfirm, ConfirmSender)>, BrokerError> {
    if job.confirm.is_closed() {
        return Ok(None);
    }
    let Message {
        exchange,
        routing_key,
        properties,
        body,
    } = job.message;
    let mandatory = BasicPublishOptions {
        mandatory: true,
        ..Default::default()
    };
    // On an error the sender is dropped, which its caller reads as `Lost`.
    let pending = channel
        .basic_publish(
            exchange.into(),
            routing_key.into(),
            mandatory,
            &body,
            properties,
        )
        .await?;
    Ok(Some((pending, job.confirm)))
}

/// Waits for one confirm and forwards it to its caller. An error ends the session, and everything
/// in flight with it.
async fn forward(
    pending: PublisherConfirm,
    confirm: ConfirmSender,
) -> Result<Result<(), PublishError>, BrokerError> {
    let result = match pending.await? {
        Confirmation::Ack(None) => Ok(()),
        Confirmation::Nack(None) => Err(PublishError::Refused),
        Confirmation::Ack(Some(_)) | Confirmation::Nack(Some(_)) => {
            return Err(BrokerError::Ended(
                "a message was returned: there is no queue for it".into(),
            ));
        }
        Confirmation::NotRequested => {
            return Err(BrokerError::Ended("the channel does not confirm".into()));
        }
    };
    // The caller may have given up: then it publishes the same id again.
    let _ = confirm.send(result);
    Ok(result)
}
