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

/// Takes every message out of a queue, and gives its body, and whether it may have been given
/// before. Does not end: what ends a connection is answered by the next one.
pub async fn read_queue(
    target: &BrokerTarget,
    name: &str,
    queue: &str,
    mut take: impl FnMut(&[u8], bool),
) -> Infallible {
    loop {
        let _ = read_on(target, name, queue, &mut take).await;
        tokio::time::sleep(PAUSE).await;
    }
}

async fn read_on(
    target: &BrokerTarget,
    name: &str,
    queue: &str,
    take: &mut impl FnMut(&[u8], bool),
) -> Result<(), BrokerError> {
    let connection = connect_any(target, name).await?;
    let opening = async {
        let channel = connection.create_channel().await?;
        channel
            .basic_qos(PREFETCH, BasicQosOptions::default())
            .await?;
        let (options, arguments) = (BasicConsumeOptions::default(), FieldTable::default());
        channel
            .basic_consume(queue.into(), name.into(), options, arguments)
            .await
    };
    let mut deliveries = with_timeout(topology::ANSWER_TIMEOUT, opening).await?;
    while let Some(delivery) = deliveries.next().await {
        let delivery: Delivery = delivery?;
        take(&delivery.data, delivery.redelivered);
        let acknowledging = delivery.ack(BasicAckOptions::default());
        with_timeout(topology::ANSWER_TIMEOUT, acknowledging).await?;
    }
    Ok(())
}
