//! Confirmed publishing: a publish has succeeded when, and only when, the broker has acknowledged
//! that very message.
//!
//! Each channel is owned by one task. lapin numbers a message under one lock and queues its frames
//! under another, so two tasks that publish on one channel can take each other's confirms: a
//! refused message would be reported as accepted. Callers hand their messages over through one
//! bounded queue and wait for an answer with a deadline.
//!
//! Only an acknowledgement without a returned message counts. A returned message (the topology
//! makes it impossible) can't be matched to its publish with certainty, so it fails everything that
//! is under way on the connection.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures_util::{StreamExt, future, stream::FuturesUnordered};
use lapin::{BasicProperties, Channel, Confirmation, Connection, PublisherConfirm, options::*};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::{BrokerError, Session, connection::in_time};
use crate::process::readiness::Part;

/// Messages that may wait to be published; one more is refused.
const QUEUE_LENGTH: usize = 8_192;
/// Messages that one channel may have published without having their confirms.
const UNCONFIRMED_MAX: usize = 2_048;
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);

/// One message: where to, how described, what.
#[derive(Debug)]
pub struct Message {
    pub exchange: &'static str,
    pub routing_key: String,
    pub properties: BasicProperties,
    pub body: Bytes,
}

/// Why a message is not known to be safe with the broker. It may be there all the same: see
/// [`PublishError::TimedOut`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    #[error("there is no connection that takes messages")]
    Unavailable,
    #[error("too many messages wait to be published")]
    Overloaded,
    #[error("the broker refused the message")]
    Refused,
    /// The broker may still take it: only the same id again is safe.
    #[error("no confirm in time")]
    TimedOut,
    /// The broker may have taken it: only the same id again is safe.
    #[error("the connection broke before the confirm")]
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
    answer: oneshot::Sender<Result<(), PublishError>>,
}

/// Hands messages to the channels of a [`PublisherSession`]. Cheap to clone.
#[derive(Clone)]
pub struct Publisher {
    jobs: async_channel::Sender<Job>,
    open: Arc<AtomicBool>,
    deadline: Duration,
}

impl Publisher {
    /// Publishes and waits for the confirm, at most for the publisher's deadline.
    ///
    /// # Errors
    /// When the confirm did not come, whatever the reason.
    pub async fn publish(&self, message: Message) -> Result<(), PublishError> {
        if !self.open.load(Ordering::Acquire) {
            return Err(PublishError::Unavailable);
        }
        let (answer, confirmed) = oneshot::channel();
        self.jobs
            .try_send(Job { message, answer })
            .map_err(|error| match error {
                async_channel::TrySendError::Full(_) => PublishError::Overloaded,
                async_channel::TrySendError::Closed(_) => PublishError::Unavailable,
            })?;
        match tokio::time::timeout(self.deadline, confirmed).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(PublishError::Lost),
            Err(_) => Err(PublishError::TimedOut),
        }
    }
}

/// The other end of a [`Publisher`]: `channels` confirm channels on one connection. Run it with
/// [`super::supervise`].
pub struct PublisherSession {
    jobs: async_channel::Receiver<Job>,
    open: Arc<AtomicBool>,
    channels: u16,
}

/// A publisher and the session that does its work. `deadline` bounds one publish from hand-over to
/// confirm.
#[must_use]
pub fn publisher(channels: u16, deadline: Duration) -> (Publisher, PublisherSession) {
    let (sender, receiver) = async_channel::bounded(QUEUE_LENGTH);
    let open = Arc::new(AtomicBool::new(false));
    let publisher = Publisher {
        jobs: sender,
        open: open.clone(),
        deadline,
    };
    (
        publisher,
        PublisherSession {
            jobs: receiver,
            open,
            channels,
        },
    )
}

impl Session for PublisherSession {
    async fn run(
        &self,
        connection: &Connection,
        part: &Part,
        stop: &CancellationToken,
    ) -> Result<(), BrokerError> {
        let mut owners = Vec::new();
        for _ in 0..self.channels {
            let channel = in_time(OPEN_TIMEOUT, connection.create_channel()).await?;
            in_time(
                OPEN_TIMEOUT,
                channel.confirm_select(ConfirmSelectOptions::default()),
            )
            .await?;
            owners.push(own(channel, self.jobs.clone()));
        }
        // Whatever way this ends, also when the supervisor drops it: nothing more is taken, and
        // whoever waits is answered.
        let _closed = CloseOnDrop(self);
        self.open.store(true, Ordering::Release);
        part.ready();

        let closing = async {
            stop.cancelled().await;
            self.jobs.close();
            future::pending::<()>().await;
        };
        tokio::select! {
            outcome = future::try_join_all(owners) => outcome.map(drop),
            () = closing => Ok(()),
        }
    }

    fn blocked(&self, part: &Part, reason: Option<String>) {
        self.open.store(reason.is_none(), Ordering::Release);
        match reason {
            Some(reason) => part.waits_for(format!("the broker blocks publishing: {reason}")),
            None => part.ready(),
        }
    }
}

struct CloseOnDrop<'a>(&'a PublisherSession);

impl Drop for CloseOnDrop<'_> {
    fn drop(&mut self) {
        self.0.open.store(false, Ordering::Release);
        while self.0.jobs.try_recv().is_ok() {}
    }
}

/// Publishes on one channel until the queue is closed and everything is confirmed.
async fn own(channel: Channel, jobs: async_channel::Receiver<Job>) -> Result<(), BrokerError> {
    let mut unconfirmed = FuturesUnordered::new();
    loop {
        tokio::select! {
            biased;
            Some(returned) = unconfirmed.next() => {
                let returned: Result<(), BrokerError> = returned;
                returned?;
            }
            job = jobs.recv(), if unconfirmed.len() < UNCONFIRMED_MAX => match job {
                Ok(job) => if let Some((confirm, answer)) = send(&channel, job).await? {
                    unconfirmed.push(settle(confirm, answer));
                },
                Err(_) => break,
            },
        }
    }
    while let Some(returned) = unconfirmed.next().await {
        returned?;
    }
    Ok(())
}

type Answer = oneshot::Sender<Result<(), PublishError>>;

/// Writes one message to the connection, unless nobody waits for it any more.
async fn send(
    channel: &Channel,
    job: Job,
) -> Result<Option<(PublisherConfirm, Answer)>, BrokerError> {
    if job.answer.is_closed() {
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
    // On an error the answer is dropped, which its caller reads as `Lost`.
    let confirm = channel
        .basic_publish(
            exchange.into(),
            routing_key.into(),
            mandatory,
            &body,
            properties,
        )
        .await?;
    Ok(Some((confirm, job.answer)))
}

/// Waits for one confirm and answers its caller. An error ends the session, and with it everything
/// under way.
async fn settle(confirm: PublisherConfirm, answer: Answer) -> Result<(), BrokerError> {
    let result = match confirm.await? {
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
    // The caller may have given up: then the same id comes again.
    let _ = answer.send(result);
    Ok(())
}
