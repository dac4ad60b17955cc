//! A message as it is published: where it goes, the properties that people read in the dashboard,
//! and its body.

use std::collections::BTreeMap;

use bytes::Bytes;
use jiff::Timestamp;
use lapin::{
    BasicProperties,
    options::BasicPublishOptions,
    types::{AMQPValue, FieldTable},
};
use letterbox_common::text_enum;

const PERSISTENT: u8 = 2;
/// The number of entries in a message: the only header that Letterbox writes.
pub(crate) const COUNT_HEADER: &str = "count";

text_enum! {
    /// The kind of entries in a message: its AMQP property `type`.
    pub enum MessageType {
        /// They become signals, see [`crate::WebhookDelivery`]
        WebhookDeliveries = "webhook.deliveries",
        /// They become runs, see [`crate::FormSubmission`]
        FormSubmissions = "form.submissions",
    }
}

/// A message to publish.
#[derive(Debug, Clone)]
pub struct Message {
    /// The exchange to publish it to.
    pub exchange: &'static str,
    /// Selects the queue; for a dead letter, the queue that it came from.
    pub routing_key: String,
    /// Type, id, headers.
    pub properties: BasicProperties,
    /// Entries with their lines.
    pub body: Bytes,
}

/// A message that Letterbox did not write, or that was damaged on the way.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MalformedMessage {
    /// The property `type` is missing or unknown.
    #[error("unknown message type")]
    Type,
    /// There is no line with a length where the line of an entry should be.
    #[error("malformed entry list: a line with the entry's length is missing")]
    Framing,
    /// The line gives a length, but does not describe an entry.
    #[error("the entry's line is malformed: {0}")]
    Line(String),
}

/// Publishes what would be returned if there were no queue for it: otherwise the broker would
/// acknowledge a message that it drops.
pub(crate) const MANDATORY: BasicPublishOptions = BasicPublishOptions {
    mandatory: true,
    immediate: false,
};

/// The properties common to all messages.
pub(crate) fn properties(kind: &str, message_id: String, app_id: &str) -> BasicProperties {
    BasicProperties::default()
        .with_type(kind.into())
        .with_message_id(message_id.into())
        .with_timestamp(u64::try_from(Timestamp::now().as_second()).unwrap_or(0))
        .with_app_id(app_id.into())
        .with_delivery_mode(PERSISTENT)
}

/// The properties of a message that is published again: those that Letterbox writes, and nothing
/// else that the publisher or a broker may have added. A broker closes the channel on another
/// user's id, closes the connection on headers that fill a frame, and sends copies to any queue
/// that certain headers name.
pub fn republished(of: &BasicProperties) -> BasicProperties {
    let given = of.headers().as_ref().map(FieldTable::inner);
    let ours = given.into_iter().flatten().filter(|(name, value)| {
        name.as_str() == COUNT_HEADER && matches!(value, AMQPValue::LongUInt(_))
    });
    let ours = ours.map(|(name, value)| (name.clone(), value.clone()));
    let mut properties = BasicProperties::default()
        .with_delivery_mode(PERSISTENT)
        .with_headers(ours.collect::<BTreeMap<_, _>>().into());
    if let Some(kind) = of.kind() {
        properties = properties.with_type(kind.clone());
    }
    if let Some(id) = of.message_id() {
        properties = properties.with_message_id(id.clone());
    }
    if let Some(content) = of.content_type() {
        properties = properties.with_content_type(content.clone());
    }
    if let Some(app) = of.app_id() {
        properties = properties.with_app_id(app.clone());
    }
    match of.timestamp() {
        Some(time) => properties.with_timestamp(*time),
        None => properties,
    }
}

pub(crate) fn message_type(properties: &BasicProperties) -> Option<&str> {
    properties.kind().as_ref().map(|kind| kind.as_str())
}

#[cfg(test)]
mod tests {
    use lapin::types::ShortString;

    use super::*;

    #[test]
    fn only_our_headers_are_published_again() {
        let text = |length| AMQPValue::LongString("x".repeat(length).into());
        let given = [
            (COUNT_HEADER, AMQPValue::LongUInt(3)),
            ("CC", text(5)),
            ("x-death", text(5)),
        ];
        let given = given.map(|(name, value)| (ShortString::from(name), value));
        let mut given = BTreeMap::from(given);
        let of = |headers: &BTreeMap<ShortString, AMQPValue>| {
            BasicProperties::default()
                .with_type("form.submissions".into())
                .with_user_id("someone".into())
                .with_expiration("0".into())
                .with_headers(headers.clone().into())
        };
        let names = |of: &BasicProperties| {
            let headers = of.headers().as_ref().unwrap().inner();
            Vec::from_iter(headers.keys().map(ToString::to_string))
        };
        let again = republished(&of(&given));
        assert_eq!(names(&again), [COUNT_HEADER]);
        assert_eq!(message_type(&again), Some("form.submissions"));
        assert_eq!((again.user_id(), again.expiration()), (&None, &None));
        // Values that Letterbox would not write are dropped, whatever their names.
        given.insert(
            COUNT_HEADER.into(),
            AMQPValue::FieldArray(Default::default()),
        );
        assert_eq!(names(&republished(&of(&given))), [""; 0]);
    }
}
