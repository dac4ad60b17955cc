//! Dead letters: what can't be processed is published to the dead-letter exchange with its reason,
//! confirmed, and only then acknowledged. The broker's own rejection would lose the reason.
//!
//! A dead letter keeps its body, properties and headers, so moving it back to a queue replays it.

use jiff::Timestamp;
use lapin::{message::Delivery, types::AMQPValue};
use letterbox_common::broker::{Message, PublishError, Publisher, topology};

const REASON_HEADER: &str = "dead_letter_reason";
const TIME_HEADER: &str = "dead_letter_at";
/// Reasons are short; a server's words are cut to this many characters.
const REASON_LENGTH: usize = 500;

/// Publishes one message to the dead-letter exchange. The routing key says which queue it came
/// from.
///
/// # Errors
/// When the broker has not confirmed: then the message may not be acknowledged.
pub async fn publish(
    publisher: &Publisher,
    queue: &str,
    message: &Delivery,
    reason: &str,
) -> Result<(), PublishError> {
    let mut headers = message.properties.headers().clone().unwrap_or_default();
    let reason: String = reason.chars().take(REASON_LENGTH).collect();
    headers.insert(REASON_HEADER.into(), AMQPValue::LongString(reason.into()));
    headers.insert(
        TIME_HEADER.into(),
        AMQPValue::LongString(format!("{:.3}", Timestamp::now()).into()),
    );
    publisher
        .publish(Message {
            exchange: topology::DEAD_EXCHANGE,
            routing_key: queue.to_owned(),
            properties: message
                .properties
                .clone()
                .with_headers(headers)
                .with_delivery_mode(2),
            body: message.data.clone().into(),
        })
        .await
}
