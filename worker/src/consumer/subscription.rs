//! A queue that is consumed on a channel of its own, until the process stops.

use std::time::Duration;

use futures_util::{StreamExt, stream::ReadyChunks};
use lapin::{Channel, Connection, message::Delivery, options::*, types::FieldTable};
use letterbox_broker::{BrokerError, close_channel, with_timeout};
use tokio_util::sync::CancellationToken;

/// How long the broker may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// A consumer of one queue.
pub(super) struct Subscription {
    pub(super) queue: String,
    channel: Channel,
    tag: lapin::types::ShortString,
    deliveries: ReadyChunks<lapin::Consumer>,
    cancelled: bool,
}

impl Subscription {
    /// Starts to consume. At most `prefetch` messages are fetched and not yet acknowledged, and at
    /// most `max_batch` are given at once.
    pub(super) async fn open(
        connection: &Connection,
        queue: String,
        prefetch: u16,
        max_batch: usize,
        name: &str,
    ) -> Result<Self, BrokerError> {
        let subscribing = async {
            let channel = connection.create_channel().await?;
            // Before consuming: without a bound the broker sends everything it has.
            channel
                .basic_qos(prefetch, BasicQosOptions::default())
                .await?;
            let (options, arguments) = (BasicConsumeOptions::default(), FieldTable::default());
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

    /// The next messages, as many as are there. After `stop` nothing more is fetched, what has been
    /// fetched is still given, and then `None`. May be dropped and called again: lapin sends the
    /// cancel at its first poll, whether or not somebody waits for the broker's answer.
    pub(super) async fn next(
        &mut self,
        stop: &CancellationToken,
    ) -> Result<Option<Vec<Delivery>>, BrokerError> {
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled(), if !self.cancelled => {
                    self.cancelled = true;
                    self.cancel().await?;
                }
                batch = self.deliveries.next() => return match batch {
                    Some(batch) => Ok(Some(batch.into_iter().collect::<lapin::Result<_>>()?)),
                    None if self.cancelled => Ok(None),
                    None => {
                        let problem = format!("the broker cancelled the consumer of {}",
                            self.queue);
                        Err(BrokerError::Ended(problem))
                    }
                },
            }
        }
    }

    /// Ends it after the last message.
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

    /// Acknowledges a message, or, with `multiple`, everything that was fetched on its channel up
    /// to it.
    pub(super) async fn acknowledge(message: &Delivery, multiple: bool) -> Result<(), BrokerError> {
        let acknowledging = message.ack(BasicAckOptions { multiple });
        match with_timeout(ANSWER_TIMEOUT, acknowledging).await? {
            true => Ok(()),
            // lapin gives `false` where the acknowledgement was not sent.
            false => Err(BrokerError::Ended(
                "the channel closed before the acknowledgement".into(),
            )),
        }
    }
}
