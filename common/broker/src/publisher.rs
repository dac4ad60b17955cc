//! Confirmed publishing: a publish succeeds if, and only if, the broker has acknowledged that very
//! message.
//!
//! Each channel is owned by one task. lapin numbers a message under one lock and queues its frames
//! under another, so two tasks that publish on one channel can take each other's confirms: a
//! refused message would be reported as accepted. Callers hand over their messages through one
//! bounded queue and wait for the result, up to a deadline.
//!
//! A broker that blocks publishing, or whose connection ends, may confirm much later or never: then
//! every waiting caller gets an error at once. A channel on which nothing comes back is replaced,
//! because a node that was frozen may leave it hanging; if nothing comes back on any channel, the
//! session ends, and the next one goes to the next node. Where that does not help, as when a single
//! queue is silent and nothing is sent to another, sessions end ever more seldom.
//!
//! Only an acknowledgement without a returned message counts. A returned message (the topology
//! makes it impossible) can't be matched to its publish with certainty, so it fails everything in
//! flight on the connection.

use std::{
    pin::pin,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::{StreamExt, future, stream::FuturesUnordered};
use lapin::{Channel, Confirmation, Connection, PublisherConfirm, options::*};
use letterbox_common::{fail_point::fails, process::readiness::Component};
use tokio::{
    sync::{oneshot, watch},
    time::{Instant, MissedTickBehavior},
};
use tokio_util::sync::CancellationToken;

use crate::{
    BrokerError, Message, Session,
    connection::publishing_blocked,
    error::{close_channel, with_timeout},
    metrics,
};

/// Maximum number of messages that wait to be published; more are refused. Each caller has few
/// messages, of bounded size.
const QUEUE_LENGTH: usize = 1_024;
/// Maximum number of unconfirmed messages on one channel.
const UNCONFIRMED_MAX: usize = 2_048;
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);
/// The age from which a channel is replaced when the broker refuses a message on it.
const REFUSING_FOR: Duration = Duration::from_secs(5);
/// How long a message may be unconfirmed while nothing else is confirmed on its channel.
pub(crate) const SILENT_FOR: Duration = Duration::from_secs(10);
/// How often that is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// After how many sessions that ended so a session's patience no longer doubles: it is 40 s.
const MAX_DOUBLINGS: u32 = 2;

/// Why a message is not known to be safe with the broker. After [`PublishError::TimedOut`] and
/// [`PublishError::Lost`] it may be there nevertheless.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    /// There is no connection, or the broker blocks publishing. The message was not sent.
    #[error("no broker connection takes messages now")]
    Unavailable,
    /// Too many messages wait to be published. The message was not sent.
    #[error("too many messages wait to be published")]
    Overloaded,
    /// The broker answered with a negative acknowledgement.
    #[error("the broker refused the message")]
    Refused,
    /// The broker may still take it: republish under the same id only.
    #[error("no confirm in time")]
    TimedOut,
    /// The broker may have taken it: republish under the same id only.
    #[error("the connection broke, or the broker blocked it, before the confirm")]
    Lost,
}

impl PublishError {
    /// The value of the metrics' label.
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
            metrics::PUBLISH_DURATION.record::<&str, 0>([], began.elapsed());
        }
        result
    }
}

/// The other end of a [`Publisher`]: confirm channels on one connection. Run it with
/// [`super::supervise`].
pub struct PublisherSession {
    jobs: async_channel::Receiver<Job>,
    open: watch::Sender<bool>,
    channels: u16,
    deadline: Duration,
    answers: Mutex<Answers>,
}

/// What the broker has answered on all channels.
struct Answers {
    last: Instant,
    /// How many sessions have ended since, because nothing came back.
    silent_sessions: u32,
}

/// Creates a publisher and the session that does its work, on `channels` channels. `deadline`
/// bounds one publish from hand-over to confirm.
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
        deadline,
        answers: Mutex::new(Answers {
            last: Instant::now(),
            silent_sessions: 0,
        }),
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
            channels.push(self.run_channels(connection, channel));
        }
        // However this ends, even if the supervisor drops it, no more messages are taken and every
        // waiting caller gets an answer.
        let _closed = CloseOnDrop(self);
        self.open.send_replace(true);
        component.ready();

        let closing = async {
            stop.cancelled().await;
            self.jobs.close();
            // The channels see the closed queue, publish the rest of it, and end by themselves.
            // Later no caller waits any more.
            tokio::time::sleep(self.deadline).await;
        };
        tokio::select! {
            outcome = future::try_join_all(channels) => outcome.map(drop),
            () = closing => Ok(()),
        }
    }

    fn blocked(&self, component: &Component, reason: Option<String>) {
        self.open.send_replace(reason.is_none());
        publishing_blocked(component, reason);
    }
}

struct CloseOnDrop<'a>(&'a PublisherSession);

impl Drop for CloseOnDrop<'_> {
    fn drop(&mut self) {
        // Closed first: a job that is queued during the drain is answered by this change.
        self.0.open.send_replace(false);
        // A dropped job drops its `confirm`, which its caller reads as `Lost`.
        while self.0.jobs.try_recv().is_ok() {}
    }
}

async fn open_channel(connection: &Connection) -> Result<Channel, BrokerError> {
    let channel = with_timeout(OPEN_TIMEOUT, connection.create_channel()).await?;
    let confirming = channel.confirm_select(ConfirmSelectOptions::default());
    with_timeout(OPEN_TIMEOUT, confirming).await?;
    Ok(channel)
}

impl PublisherSession {
    /// Publishes on one channel after the other until the queue is closed and everything is
    /// confirmed. A channel on which the broker has refused a message is replaced after a while,
    /// because the broker keeps refusing on it even when the queue is below its limit again.
    async fn run_channels(
        &self,
        connection: &Connection,
        mut channel: Channel,
    ) -> Result<(), BrokerError> {
        let _open = metrics::CHANNELS.hold();
        // Waited for beside its successor: a silent queue must not hold up the others.
        let mut former = FuturesUnordered::new();
        loop {
            let ended = beside(&mut former, self.run_channel(&channel)).await?;
            let (is_over, unconfirmed) = match ended {
                Ended::Closed(unconfirmed) => (true, unconfirmed),
                Ended::Refusing(unconfirmed) => (false, unconfirmed),
                Ended::Silent(unconfirmed) => {
                    self.expect_answers()?;
                    (false, unconfirmed)
                }
            };
            let used = channel.clone();
            former.push(self.close_when_answered(used, unconfirmed));
            if is_over {
                while let Some(closed) = former.next().await {
                    let (): () = closed?;
                }
                return Ok(());
            }
            channel = beside(&mut former, open_channel(connection)).await?;
        }
    }

    /// Closes a channel when no caller waits for a confirm on it: at the latest after the deadline.
    async fn close_when_answered(
        &self,
        channel: Channel,
        mut unconfirmed: FuturesUnordered<impl Future<Output = Answered>>,
    ) -> Result<(), BrokerError> {
        let answering = async {
            while let Some(answered) = unconfirmed.next().await {
                let _: Result<(), PublishError> = answered?;
                self.note_answer(Instant::now());
            }
            Ok::<_, BrokerError>(())
        };
        let answered = tokio::time::timeout(self.deadline, answering).await;
        answered.unwrap_or(Ok(()))?;
        close_channel(&channel).await;
        Ok(())
    }

    fn note_answer(&self, now: Instant) {
        *self.answers() = Answers {
            last: now,
            silent_sessions: 0,
        };
    }

    /// Fails if nothing has come back on any channel for [`SILENT_FOR`], or for longer if former
    /// sessions ended so.
    fn expect_answers(&self) -> Result<(), BrokerError> {
        let mut answers = self.answers();
        let longer = 1 << answers.silent_sessions.min(MAX_DOUBLINGS);
        if answers.last.elapsed() < SILENT_FOR * longer {
            return Ok(());
        }
        answers.last = Instant::now();
        answers.silent_sessions += 1;
        Err(BrokerError::Ended("the broker confirms nothing".into()))
    }

    fn answers(&self) -> MutexGuard<'_, Answers> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Publishes on one channel.
    async fn run_channel(
        &self,
        channel: &Channel,
    ) -> Result<Ended<impl Future<Output = Answered> + use<>>, BrokerError> {
        let (opened, mut unconfirmed) = (Instant::now(), FuturesUnordered::new());
        // Since when the broker owes an answer on this channel.
        let mut since = Instant::now();
        let mut look = tokio::time::interval(LOOK_EVERY);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                // Confirms first: callers wait for them, and they make room for new messages.
                biased;
                Some(returned) = unconfirmed.next() => {
                    let result: Result<(), PublishError> = returned?;
                    since = Instant::now();
                    self.note_answer(since);
                    // A full queue refuses everything: one new channel for each refusal would not
                    // help.
                    if result.is_err() && opened.elapsed() > REFUSING_FOR {
                        return Ok(Ended::Refusing(unconfirmed));
                    }
                }
                _ = look.tick() => {
                    // A broker that blocks publishing says so, and confirms nothing meanwhile.
                    if unconfirmed.is_empty() || !*self.open.borrow() {
                        since = Instant::now();
                    } else if since.elapsed() >= SILENT_FOR {
                        return Ok(Ended::Silent(unconfirmed));
                    }
                }
                // At the limit, jobs stay in the queue: there other channels can take them.
                job = self.jobs.recv(), if unconfirmed.len() < UNCONFIRMED_MAX => match job {
                    Ok(job) => if let Some((pending, confirm)) = send(channel, job).await? {
                        unconfirmed.push(forward(pending, confirm));
                    },
                    Err(_) => return Ok(Ended::Closed(unconfirmed)),
                },
            }
        }
    }
}

/// Waits for `main`, and meanwhile for what former channels still owe.
async fn beside<T>(
    former: &mut FuturesUnordered<impl Future<Output = Result<(), BrokerError>>>,
    main: impl Future<Output = Result<T, BrokerError>>,
) -> Result<T, BrokerError> {
    let mut main = pin!(main);
    loop {
        tokio::select! {
            done = &mut main => return done,
            Some(closed) = former.next() => { let (): () = closed?; }
        }
    }
}

/// What the broker answered to one publish; an error ends the session.
type Answered = Result<Result<(), PublishError>, BrokerError>;

/// Why a channel is no longer used, and what is not confirmed on it yet.
enum Ended<F> {
    /// There is nothing more to publish.
    Closed(FuturesUnordered<F>),
    /// The broker has refused a message on it.
    Refusing(FuturesUnordered<F>),
    /// Nothing has come back on it for [`SILENT_FOR`].
    Silent(FuturesUnordered<F>),
}

/// Carries the result of one publish to its caller.
type ConfirmSender = oneshot::Sender<Result<(), PublishError>>;

/// Writes one message to the connection, unless its caller has given up.
async fn send(
    channel: &Channel,
    job: Job,
) -> Result<Option<(PublisherConfirm, ConfirmSender)>, BrokerError> {
    // Its caller has been given an error and has spilled the message or will try again.
    if job.confirm.is_closed() {
        return Ok(None);
    }
    let Message {
        exchange,
        routing_key,
        properties,
        body,
    } = job.message;
    // Otherwise the broker would acknowledge a message that it has no queue for.
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
async fn forward(pending: PublisherConfirm, confirm: ConfirmSender) -> Answered {
    let result = match pending.await? {
        Confirmation::Ack(None) => Ok(()),
        Confirmation::Nack(None) => Err(PublishError::Refused),
        // Whose message was returned is uncertain, so all that are in flight count as lost.
        Confirmation::Ack(Some(_)) | Confirmation::Nack(Some(_)) => {
            return Err(BrokerError::Ended(
                "a message was returned: there is no queue for it".into(),
            ));
        }
        Confirmation::NotRequested => {
            return Err(BrokerError::Ended("the channel does not confirm".into()));
        }
    };
    // The caller may have given up; the message keeps its id, so a second publish is harmless.
    let _ = confirm.send(result);
    Ok(result)
}
