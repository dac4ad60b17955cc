//! Dead letters: an entry that can't be processed is published to the dead-letter exchange with its
//! reason, confirmed, and only then acknowledged. Rejecting it to the broker would lose the reason
//! and dead-letter the other entries of its message, too.
//!
//! A dead letter holds one entry in its original form, so moving it back to a queue replays it.

use jiff::Timestamp;
use lapin::types::AMQPValue;
use letterbox_broker::{
    Alone, Message, PublishError, Publisher, REASON_HEADER, TIME_HEADER, topology,
};

use crate::{metrics, outcome::Rejection};

/// Maximum characters of a reason, which may contain a long server message.
const MAX_REASON: usize = 500;

/// Publishes one entry to the dead-letter exchange, with the queue that it came from as the routing
/// key. Logs success and failure.
///
/// # Errors
/// When the broker has not confirmed: the entry's message must not be acknowledged then.
pub(crate) async fn publish(
    publisher: &Publisher,
    queue: &str,
    entry: &Alone,
    rejection: &Rejection,
) -> Result<(), PublishError> {
    let Alone { properties, body } = entry.clone();
    let mut headers = properties.headers().clone().unwrap_or_default();
    let reason: String = rejection.reason.chars().take(MAX_REASON).collect();
    let time = format!("{:.3}", Timestamp::now());
    headers.insert(
        REASON_HEADER.into(),
        AMQPValue::LongString(reason.clone().into()),
    );
    headers.insert(TIME_HEADER.into(), AMQPValue::LongString(time.into()));
    let message_id = properties.message_id().as_ref().map(ToString::to_string);
    let dead_letter = Message {
        exchange: topology::DEAD_EXCHANGE,
        routing_key: queue.to_owned(),
        properties: properties.with_headers(headers).with_delivery_mode(2),
        body,
    };
    match publisher.publish(dead_letter).await {
        Ok(()) => {
            metrics::DEAD_LETTERS.add([queue.to_owned(), rejection.cause.to_string()], 1);
            tracing::error!(queue, message_id, reason, "dead-lettered");
            Ok(())
        }
        Err(error) => {
            tracing::warn!(queue, %error, "a dead letter could not be published");
            Err(error)
        }
    }
}
