//! Reading a queue for as long as somebody looks, across connections that end.

use std::{convert::Infallible, time::Duration};

use futures_util::StreamExt;
use lapin::{
    message::Delivery,
    options::{BasicAckOptions, BasicConsumeOptions, BasicQosOptions},
    types::FieldTable,
};

use crate::{BrokerError, BrokerTarget, connection::connect_any, error::with_timeout, topology};

/// Messages that are sent ahead.
const PREFETCH: u16 = 200;
const PAUSE: Duration = Duration::from_millis(500);

/// A message that was read.
#[derive(Debug, Clone, Copy)]
pub struct ReadMessage<'m> {
    /// Its id, if it has one.
    pub id: Option<&'m [u8]>,
    /// Its body.
    pub body: &'m [u8],
    /// Whether the broker may have given it before.
    pub is_again: bool,
}

/// Takes every message out of a queue. Does not end: what ends a connection is answered by the next
/// one.
pub async fn read_queue(
    target: &BrokerTarget,
    name: &str,
    queue: &str,
    mut take: impl FnMut(ReadMessage<'_>),
) -> Infallible {
    loop {
        if let Err(error) = read_on(target, name, queue, &mut take).await {
            tracing::warn!(queue, %error, "a queue is not read");
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn read_on(
    target: &BrokerTarget,
    name: &str,
    queue: &str,
    take: &mut impl FnMut(ReadMessage<'_>),
) -> Result<(), BrokerError> {
    let connection = connect_any(target, name).await?;
    let opening = async {
        let channel = connection.create_channel().await?;
        let options = BasicQosOptions::default();
        channel.basic_qos(PREFETCH, options).await?;
        let options = BasicConsumeOptions::default();
        let arguments = FieldTable::default();
        let consuming = channel.basic_consume(queue.into(), name.into(), options, arguments);
        consuming.await
    };
    let mut deliveries = with_timeout(topology::ANSWER_TIMEOUT, opening).await?;
    while let Some(delivery) = deliveries.next().await {
        let delivery: Delivery = delivery?;
        let id = delivery.properties.message_id().as_ref();
        take(ReadMessage {
            id: id.map(|id| id.as_str().as_bytes()),
            body: &delivery.data,
            is_again: delivery.redelivered,
        });
        let acknowledging = delivery.ack(BasicAckOptions::default());
        with_timeout(topology::ANSWER_TIMEOUT, acknowledging).await?;
    }
    Ok(())
}
