//! A message as it is published: where it goes, the properties that people read in the dashboard,
//! and its body.

use std::collections::BTreeMap;

use bytes::Bytes;
use jiff::Timestamp;
use lapin::{
    BasicProperties,
    types::{AMQPValue, FieldTable, LongString},
};
use letterbox_common::{
    ids::{RunId, WorkspaceId},
    text_enum,
};

use crate::topology::{EXCHANGE, RUNS};

const PERSISTENT: u8 = 2;
/// The workspace of a wake.
const WORKSPACE_HEADER: &str = "workspace_id";
/// The number of entries in a batch.
pub(crate) const COUNT_HEADER: &str = "count";
/// Every header that Letterbox writes.
const HEADERS: [&str; 2] = [WORKSPACE_HEADER, COUNT_HEADER];
/// Maximum bytes of a text header that is republished. The only one Letterbox writes is an id.
const MAX_HEADER: usize = 100;

text_enum! {
    /// The kind of entries in a message: its AMQP property `type`.
    pub enum MessageType {
        /// They become signals, see [`crate::WebhookDelivery`]
        WebhookDeliveries = "webhook.deliveries",
        /// They become runs, see [`crate::FormSubmission`]
        FormSubmissions = "form.submissions",
    }
}

/// The AMQP property `type` of a [`RunWake`].
pub(crate) const RUN_WAKE: &str = "run.wake";

/// A message to publish.
#[derive(Debug, Clone)]
pub struct Message {
    /// The exchange to publish it to.
    pub exchange: &'static str,
    /// Selects the queue; for a dead letter, the queue that it came from.
    pub routing_key: String,
    /// Type, id, headers.
    pub properties: BasicProperties,
    /// Entries with their lines, or `{}` for a wake.
    pub body: Bytes,
}

/// The notice that a worker must look at a run. Everything else about the run is in the database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunWake {
    /// The workspace of the run.
    pub workspace: WorkspaceId,
    /// The run; the `message_id` of the message.
    pub run: RunId,
}

impl RunWake {
    /// The message to publish. `app_id` names the publishing process.
    #[must_use]
    pub fn message(&self, app_id: &str) -> Message {
        Message {
            exchange: EXCHANGE,
            routing_key: RUNS.to_owned(),
            properties: properties(RUN_WAKE, self.run.to_string(), app_id)
                .with_content_type("application/json".into())
                .with_headers(headers([(WORKSPACE_HEADER, self.workspace.to_string())])),
            body: Bytes::from_static(b"{}"),
        }
    }

    /// Decodes the properties that [`Self::message`] has written.
    ///
    /// # Errors
    /// Names the property that is missing or malformed, without quoting it.
    pub fn decode(properties: &BasicProperties) -> Result<Self, MalformedMessage> {
        if message_type(properties) != Some(RUN_WAKE) {
            return Err(MalformedMessage::Type);
        }
        Ok(Self {
            run: message_id(properties)?,
            workspace: header(properties, WORKSPACE_HEADER)?,
        })
    }
}

/// A message that Letterbox did not write, or that was damaged on the way.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MalformedMessage {
    /// The property `type` is missing or unknown.
    #[error("unknown message type")]
    Type,
    /// Holds the name of the property or header.
    #[error("property or header '{0}' is missing or malformed")]
    Field(&'static str),
    /// There is no line with a length where the line of an entry should be.
    #[error("malformed entry list: a line with the entry's length is missing")]
    Framing,
    /// The line gives a length, but does not describe an entry.
    #[error("the entry's line is malformed: {0}")]
    Line(String),
}

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
#[must_use]
pub fn republished(of: &BasicProperties) -> BasicProperties {
    let given = of.headers().as_ref().map(FieldTable::inner);
    let ours = given.into_iter().flatten().filter(|(name, value)| {
        let is_small = match value {
            AMQPValue::LongString(text) => text.as_bytes().len() <= MAX_HEADER,
            AMQPValue::LongUInt(_) => true,
            _ => false,
        };
        is_small && HEADERS.contains(&name.as_str())
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

pub(crate) fn headers<const N: usize>(entries: [(&'static str, String); N]) -> FieldTable {
    let mut headers = FieldTable::default();
    for (name, value) in entries {
        headers.insert(name.into(), AMQPValue::LongString(LongString::from(value)));
    }
    headers
}

pub(crate) fn message_type(properties: &BasicProperties) -> Option<&str> {
    properties.kind().as_ref().map(|kind| kind.as_str())
}

pub(crate) fn message_id<T: std::str::FromStr>(
    properties: &BasicProperties,
) -> Result<T, MalformedMessage> {
    let id = properties.message_id().as_ref().map(|id| id.as_str());
    id.and_then(|id| id.parse().ok())
        .ok_or(MalformedMessage::Field("message_id"))
}

pub(crate) fn header<T: std::str::FromStr>(
    properties: &BasicProperties,
    name: &'static str,
) -> Result<T, MalformedMessage> {
    let value = properties
        .headers()
        .as_ref()
        .and_then(|headers| headers.inner().get(name));
    let text = match value {
        Some(AMQPValue::LongString(text)) => std::str::from_utf8(text.as_bytes()).ok(),
        _ => None,
    };
    text.and_then(|text| text.parse().ok())
        .ok_or(MalformedMessage::Field(name))
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
            (WORKSPACE_HEADER, text(MAX_HEADER)),
            ("CC", text(5)),
            ("x-death", text(5)),
        ];
        let given = given.map(|(name, value)| (ShortString::from(name), value));
        let mut given = BTreeMap::from(given);
        let of = |headers: &BTreeMap<ShortString, AMQPValue>| {
            BasicProperties::default()
                .with_type(RUN_WAKE.into())
                .with_user_id("someone".into())
                .with_expiration("0".into())
                .with_headers(headers.clone().into())
        };
        let names = |of: &BasicProperties| {
            let headers = of.headers().as_ref().unwrap().inner();
            Vec::from_iter(headers.keys().map(ToString::to_string))
        };
        let again = republished(&of(&given));
        assert_eq!(names(&again), [COUNT_HEADER, WORKSPACE_HEADER]);
        assert_eq!(message_type(&again), Some(RUN_WAKE));
        assert_eq!((again.user_id(), again.expiration()), (&None, &None));
        // Values that Letterbox would not write are dropped, whatever their names.
        given.insert(WORKSPACE_HEADER.into(), text(MAX_HEADER + 1));
        given.insert(
            COUNT_HEADER.into(),
            AMQPValue::FieldArray(Default::default()),
        );
        assert_eq!(names(&republished(&of(&given))), [""; 0]);
    }

    #[test]
    fn wakes_round_trip_and_every_missing_part_is_named() {
        let wake = RunWake {
            workspace: WorkspaceId::generate(),
            run: RunId::generate(),
        };
        let whole = wake.message("test").properties;
        assert_eq!(RunWake::decode(&whole), Ok(wake));
        let none = BasicProperties::default();
        assert_eq!(RunWake::decode(&none), Err(MalformedMessage::Type));
        for (cut, name) in [
            (whole.clone().with_message_id("x".into()), "message_id"),
            (whole.with_headers(FieldTable::default()), "workspace_id"),
        ] {
            assert_eq!(RunWake::decode(&cut), Err(MalformedMessage::Field(name)));
        }
    }
}
