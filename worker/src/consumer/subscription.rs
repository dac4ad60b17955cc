//! A queue that is consumed on a channel of its own, until the process stops.

use std::time::Duration;

use futures_util::{StreamExt, stream::ReadyChunks};
use lapin::{Channel, Connection, message::Delivery, options::*, types::FieldTable};
use letterbox_broker::BrokerError;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// How long the broker may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long where nothing depends on the answer.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

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
        let (channel, consumer) = timeout(ANSWER_TIMEOUT, subscribing)
            .await
            .map_err(|_| BrokerError::TimedOut(ANSWER_TIMEOUT))??;
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

    /// Closes the channel after the last message, before the connection is closed: lapin would
    /// do it when the channel is dropped, and call an error what comes in between.
    pub(super) async fn close(self) {
        let closing = self.channel.close(200, "done".into());
        // The connection is closed next, and with it everything.
        let _ = timeout(CLOSE_TIMEOUT, closing).await;
    }

    /// Asks the broker to send nothing more.
    async fn cancel(&self) -> Result<(), BrokerError> {
        let cancelling = self
            .channel
            .basic_cancel(self.tag.clone(), BasicCancelOptions::default());
        timeout(ANSWER_TIMEOUT, cancelling)
            .await
            .map_err(|_| BrokerError::TimedOut(ANSWER_TIMEOUT))??;
        Ok(())
    }

    /// Acknowledges a message, or, with `multiple`, everything that was fetched on its channel up
    /// to it.
    pub(super) async fn acknowledge(message: &Delivery, multiple: bool) -> Result<(), BrokerError> {
        match timeout(ANSWER_TIMEOUT, message.ack(BasicAckOptions { multiple })).await {
            Ok(Ok(true)) => Ok(()),
            // lapin gives `false` where the acknowledgement was not sent.
            Ok(Ok(false)) => Err(BrokerError::Ended(
                "the channel closed before the acknowledgement".into(),
            )),
            Ok(Err(error)) => Err(error.into()),
            Err(_) => Err(BrokerError::TimedOut(ANSWER_TIMEOUT)),
        }
    }
}
