//! Reads one queue, on a channel of its own, until the process stops.

use std::time::Duration;

use futures_util::{StreamExt, stream::ReadyChunks};
use lapin::{Channel, Connection, message::Delivery, options::*, types::FieldTable};
use letterbox_broker::{BrokerError, close_channel, with_timeout};
use letterbox_common::fail_point::fails;
use tokio_util::sync::CancellationToken;

/// How long the broker may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// A consumer of one queue.
pub(super) struct QueueReader {
    pub(super) queue: String,
    channel: Channel,
    tag: lapin::types::ShortString,
    deliveries: ReadyChunks<lapin::Consumer>,
    cancelled: bool,
}

impl QueueReader {
    /// Starts to consume. At most `prefetch` messages are unacknowledged at a time, and at most
    /// `max_batch` are returned at once.
    pub(super) async fn open(
        connection: &Connection,
        queue: String,
        prefetch: u16,
        max_batch: usize,
        name: &str,
    ) -> Result<Self, BrokerError> {
        let subscribing = async {
            let channel = connection.create_channel().await?;
            // Before consuming: without a limit the broker sends everything it has.
            channel
                .basic_qos(prefetch, BasicQosOptions::default())
                .await?;
            let options = BasicConsumeOptions::default();
            let arguments = FieldTable::default();
            let consumer = channel
                .basic_consume(queue.as_str().into(), name.into(), options, arguments)
                .await?;
            Ok::<_, lapin::Error>((channel, consumer))
        };
        let (channel, consumer) = with_timeout(ANSWER_TIMEOUT, subscribing).await?;
        let tag = consumer.tag();
        let deliveries = consumer.ready_chunks(max_batch);
        Ok(Self {
            queue,
            channel,
            tag,
            deliveries,
            cancelled: false,
        })
    }

    /// Returns the next messages, as many as have arrived. After `stop` nothing more is fetched;
    /// messages already fetched are still returned, then `None`. Cancel-safe: lapin sends the
    /// cancel at its first poll, whether or not the broker's answer is awaited.
    pub(super) async fn next(
        &mut self,
        stop: &CancellationToken,
    ) -> Result<Option<Vec<Delivery>>, BrokerError> {
        loop {
            tokio::select! {
                // The stop first, or a full queue would keep the consumer going.
                biased;
                () = stop.cancelled(), if !self.cancelled => {
                    self.cancelled = true;
                    self.cancel().await?;
                }
                batch = self.deliveries.next() => return match batch {
                    Some(batch) => {
                        if fails(&["receive.after"]).await {
                            return Err(BrokerError::Ended("a fail point".into()));
                        }
                        Ok(Some(batch.into_iter().collect::<lapin::Result<_>>()?))
                    }
                    None if self.cancelled => Ok(None),
                    // The broker cancelled it because the queue was deleted: a new session has
                    // to declare the queue again.
                    None => {
                        let problem = format!("the broker cancelled the consumer of {}",
                            self.queue);
                        Err(BrokerError::Ended(problem))
                    }
                },
            }
        }
    }

    /// Closes the channel, after the last message.
    pub(super) async fn close(self) {
        close_channel(&self.channel).await;
    }

    /// Asks the broker to send nothing more.
    async fn cancel(&self) -> Result<(), BrokerError> {
        let cancelling = self
            .channel
            .basic_cancel(self.tag.clone(), BasicCancelOptions::default());
        with_timeout(ANSWER_TIMEOUT, cancelling).await
    }

    /// Acknowledges every fetched message up to this one.
    pub(super) async fn acknowledge(&self, last: &Delivery) -> Result<(), BrokerError> {
        let ended = || BrokerError::Ended("the channel closed before the acknowledgement".into());
        if fails(&["acknowledge.before"]).await {
            return Err(ended());
        }
        let acknowledging = last.ack(BasicAckOptions { multiple: true });
        // lapin returns `false` if the acknowledgement was not sent: the message will be
        // redelivered, so the session must not go on as if it were done.
        let is_sent = with_timeout(ANSWER_TIMEOUT, acknowledging).await?;
        if !is_sent || fails(&["acknowledge.after"]).await {
            return Err(ended());
        }
        Ok(())
    }
}
