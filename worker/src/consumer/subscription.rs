//! A queue that is consumed on a channel of its own.

use std::time::Duration;

use lapin::{Channel, Connection, message::Delivery, options::*, types::FieldTable};
use letterbox_common::broker::BrokerError;
use tokio::time::timeout;

/// How long the broker may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

pub struct Subscription {
    pub queue: &'static str,
    pub channel: Channel,
    pub deliveries: lapin::Consumer,
}

impl Subscription {
    /// Begins to consume; at most `prefetch` messages are fetched and not yet acknowledged.
    pub async fn open(
        connection: &Connection,
        queue: &'static str,
        prefetch: u16,
        name: &str,
    ) -> Result<Self, BrokerError> {
        let subscribing = async {
            let channel = connection.create_channel().await?;
            // Before consuming: without a bound the broker sends everything it has.
            channel
                .basic_qos(prefetch, BasicQosOptions::default())
                .await?;
            let options = BasicConsumeOptions::default();
            let deliveries = channel
                .basic_consume(queue.into(), name.into(), options, FieldTable::default())
                .await?;
            Ok::<_, lapin::Error>(Self {
                queue,
                channel,
                deliveries,
            })
        };
        timeout(ANSWER_TIMEOUT, subscribing)
            .await
            .map_err(|_| BrokerError::TimedOut(ANSWER_TIMEOUT))?
            .map_err(Into::into)
    }

    /// Asks the broker to send nothing more. What has been fetched still comes.
    pub async fn cancel(
        channel: &Channel,
        tag: lapin::types::ShortString,
    ) -> Result<(), BrokerError> {
        let cancelling = channel.basic_cancel(tag, BasicCancelOptions::default());
        timeout(ANSWER_TIMEOUT, cancelling)
            .await
            .map_err(|_| BrokerError::TimedOut(ANSWER_TIMEOUT))??;
        Ok(())
    }

    /// Acknowledges a message, or, with `multiple`, everything that was fetched on its channel up
    /// to it.
    pub async fn acknowledge(message: &Delivery, multiple: bool) -> Result<(), BrokerError> {
        match timeout(ANSWER_TIMEOUT, message.ack(BasicAckOptions { multiple })).await {
            Ok(Ok(true)) => Ok(()),
            // `false` is lapin's word for 'not sent'.
            Ok(Ok(false)) => Err(BrokerError::Ended(
                "the channel closed before the acknowledgement".into(),
            )),
            Ok(Err(error)) => Err(error.into()),
            Err(_) => Err(BrokerError::TimedOut(ANSWER_TIMEOUT)),
        }
    }

    /// The broker has ended the consumer.
    pub fn ended(queue: &str) -> BrokerError {
        BrokerError::Ended(format!("the broker cancelled the consumer of {queue}"))
    }
}
