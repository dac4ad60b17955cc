//! The channels of a session: what is published on one, and when it gives way to the next.
//!
//! A channel on which the broker refuses, or answers nothing, is replaced: a node that was frozen
//! may leave one hanging. What it still owes is waited for beside its successor.
//!
//! Only an acknowledgement without a returned message counts. A returned message (the topology
//! makes it impossible) can't be matched to its publish with certainty, so it fails everything in
//! flight on the connection.

use std::{pin::pin, time::Duration};

use futures_util::{StreamExt, stream::FuturesUnordered};
use lapin::{Channel, Confirmation, Connection, PublisherConfirm};
use tokio::{
    sync::watch,
    time::{Instant, MissedTickBehavior},
};

use super::{
    answers::{BrokerAnswers, SILENT_FOR},
    job::{ConfirmSender, Job, PublishError},
};
use crate::{
    BrokerError, Message, connection::open_channel, error::close_channel, message::MANDATORY,
    metrics,
};

/// Maximum number of unconfirmed messages on one channel.
const UNCONFIRMED_MAX: usize = 2_048;
/// The age from which a channel is replaced when the broker refuses a message on it.
const REFUSING_FOR: Duration = Duration::from_secs(5);
/// How often it is looked at whether anything comes back.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What the channels of a publisher share.
pub(super) struct Channels {
    pub(super) jobs: async_channel::Receiver<Job>,
    /// Whether messages are taken.
    pub(super) open: watch::Sender<bool>,
    /// How long one publish may take.
    pub(super) deadline: Duration,
    pub(super) answers: BrokerAnswers,
}

impl Channels {
    /// Publishes on one channel after the other until the queue is closed and everything is
    /// confirmed. A channel on which the broker has refused a message is replaced after a while,
    /// because the broker keeps refusing on it even when the queue is below its limit again.
    pub(super) async fn run(
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
                ChannelEnd::Closed(unconfirmed) => (true, unconfirmed),
                ChannelEnd::Refusing(unconfirmed) => (false, unconfirmed),
                ChannelEnd::Silent(unconfirmed) => {
                    self.answers.expect()?;
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

    /// Closes a channel when nobody waits for a confirm on it: soon after the deadline at the
    /// latest.
    async fn close_when_answered(
        &self,
        channel: Channel,
        unconfirmed: FuturesUnordered<impl Future<Output = PublishAnswer>>,
    ) -> Result<(), BrokerError> {
        let answering = self.note_answers(unconfirmed);
        // Callers say themselves that their time is over, before their confirms are dropped.
        let answered = tokio::time::timeout(self.deadline + LOOK_EVERY, answering).await;
        answered.unwrap_or(Ok(()))?;
        close_channel(&channel).await;
        Ok(())
    }

    async fn note_answers(
        &self,
        mut unconfirmed: FuturesUnordered<impl Future<Output = PublishAnswer>>,
    ) -> Result<(), BrokerError> {
        while let Some(answered) = unconfirmed.next().await {
            let _: Result<(), PublishError> = answered?;
            self.answers.note(Instant::now());
        }
        Ok(())
    }

    /// Publishes on one channel.
    async fn run_channel(
        &self,
        channel: &Channel,
    ) -> Result<ChannelEnd<impl Future<Output = PublishAnswer> + use<>>, BrokerError> {
        let opened = Instant::now();
        let mut unconfirmed = FuturesUnordered::new();
        // How many looks in a row have found that the broker owes an answer on this channel.
        // Counted, because a process that was held up has not read what came meanwhile.
        let mut silent_looks = 0;
        let mut look = tokio::time::interval(LOOK_EVERY);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                // Confirms first: callers wait for them, and they make room for new messages.
                biased;
                Some(returned) = unconfirmed.next() => {
                    let result: Result<(), PublishError> = returned?;
                    silent_looks = 0;
                    self.answers.note(Instant::now());
                    // A full queue refuses everything: one new channel for each refusal would not
                    // help.
                    if result.is_err() && opened.elapsed() > REFUSING_FOR {
                        return Ok(ChannelEnd::Refusing(unconfirmed));
                    }
                }
                _ = look.tick() => {
                    // A broker that blocks publishing says so, and confirms nothing meanwhile.
                    if unconfirmed.is_empty() || !*self.open.borrow() {
                        silent_looks = 0;
                        continue;
                    }
                    silent_looks += 1;
                    if LOOK_EVERY * silent_looks > SILENT_FOR {
                        return Ok(ChannelEnd::Silent(unconfirmed));
                    }
                }
                // At the limit, jobs stay in the queue: there other channels can take them.
                job = self.jobs.recv(), if unconfirmed.len() < UNCONFIRMED_MAX => match job {
                    Ok(job) => if let Some((pending, confirm)) = send(channel, job).await? {
                        unconfirmed.push(forward(pending, confirm));
                    },
                    Err(_) => return Ok(ChannelEnd::Closed(unconfirmed)),
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
type PublishAnswer = Result<Result<(), PublishError>, BrokerError>;

/// Why a channel is no longer used, and what is not confirmed on it yet.
enum ChannelEnd<F> {
    /// There is nothing more to publish.
    Closed(FuturesUnordered<F>),
    /// The broker has refused a message on it.
    Refusing(FuturesUnordered<F>),
    /// Nothing has come back on it for [`SILENT_FOR`].
    Silent(FuturesUnordered<F>),
}

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
    let exchange = exchange.into();
    let key = routing_key.into();
    let publishing = channel.basic_publish(exchange, key, MANDATORY, &body, properties);
    // On an error the sender is dropped, which its caller reads as `Lost`.
    Ok(Some((publishing.await?, job.confirm)))
}

/// Waits for one confirm and forwards it to its caller. An error ends the session, and everything
/// in flight with it.
async fn forward(pending: PublisherConfirm, confirm: ConfirmSender) -> PublishAnswer {
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

#[cfg(test)]
mod tests {
    use std::future::ready;

    use super::*;
    use crate::publisher;

    /// Beside a silent queue, nothing else may come back.
    #[tokio::test(start_paused = true)]
    async fn a_confirm_on_a_former_channel_is_an_answer() {
        let (_publisher, session) = publisher(1, SILENT_FOR);
        tokio::time::advance(SILENT_FOR).await;
        let owed = FuturesUnordered::from_iter([ready(Ok(Ok(())))]);
        session.channels.note_answers(owed).await.unwrap();
        assert!(session.channels.answers.expect().is_ok());
    }
}
