//! Dead letters: what can't be processed is published to the dead-letter exchange with its reason,
//! confirmed, and only then acknowledged. The broker's own rejection would lose the reason.
//!
//! A dead letter keeps its body, properties and headers, so moving it back to a queue replays it.

use jiff::Timestamp;
use lapin::{message::Delivery, types::AMQPValue};
use letterbox_broker::{Message, PublishError, Publisher, topology};

const REASON_HEADER: &str = "dead_letter_reason";
const TIME_HEADER: &str = "dead_letter_at";
/// Maximum characters of a reason: what a server says may be long.
const MAX_REASON: usize = 500;

/// Publishes one message to the dead-letter exchange. The routing key names the queue that it came
/// from. Logged either way.
///
/// # Errors
/// When the broker has not confirmed: then the message must not be acknowledged.
pub(crate) async fn publish(
    publisher: &Publisher,
    queue: &str,
    message: &Delivery,
    reason: &str,
) -> Result<(), PublishError> {
    let mut headers = message.properties.headers().clone().unwrap_or_default();
    let reason: String = reason.chars().take(MAX_REASON).collect();
    let time = format!("{:.3}", Timestamp::now());
    headers.insert(
        REASON_HEADER.into(),
        AMQPValue::LongString(reason.clone().into()),
    );
    headers.insert(TIME_HEADER.into(), AMQPValue::LongString(time.into()));
    let dead_letter = Message {
        exchange: topology::DEAD_EXCHANGE,
        routing_key: queue.to_owned(),
        properties: message
            .properties
            .clone()
            .with_headers(headers)
            .with_delivery_mode(2),
        body: message.data.clone().into(),
    };
    match publisher.publish(dead_letter).await {
        Ok(()) => {
            let message_id = message
                .properties
                .message_id()
                .as_ref()
                .map(ToString::to_string);
            tracing::error!(queue, message_id, reason, "dead-lettered");
            Ok(())
        }
        Err(error) => {
            tracing::warn!(queue, %error, "a dead letter could not be published");
            Err(error)
        }
    }
}
