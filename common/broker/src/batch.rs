//! Batches: many entries in one message, readable in the dashboard and separable again.
//!
//! ```text
//! {"delivery_id":"…","workspace_id":"…","webhook_id":"…","received_at":"…",…,"length":30}
//! {"the":"sender's exact bytes"}
//! {"delivery_id":…
//! ```
//! A line of JSON describes an entry and gives the `length` of its body in bytes; the body follows,
//! and a line break. The header `count` is the number of entries. A single entry is a batch of one.
//!
//! Errors are reported entry by entry: a line that does not describe an entry spoils that entry
//! alone, as long as it gives a length.

use std::{ops::Range, sync::Arc};

use bytes::{BufMut, Bytes, BytesMut};
use jiff::Timestamp;
use lapin::{
    BasicProperties,
    types::{AMQPValue, FieldTable},
};
use letterbox_common::ids::WorkspaceId;
use serde::{Deserialize, Serialize};

use crate::{
    Content, Entry, MalformedMessage, Message, MessageType,
    message::{COUNT_HEADER, message_type, properties, republished},
    topology::EXCHANGE,
};

/// Set by the broker: how often a message was returned to its queue. A message that is published
/// anew does not have it.
pub const RETURNS_HEADER: &str = "x-delivery-count";
/// Maximum number of entries decoded from one message; the rest becomes one malformed entry. A
/// gateway sends far fewer.
const MAX_ENTRIES: usize = 1_024;
/// Maximum size of a line with its two line breaks, in bytes, without the headers that were kept:
/// for estimates before encoding.
pub const MAX_LINE: usize = 512;

/// The line of an entry, as written.
#[derive(Serialize)]
struct Line<'a, E> {
    #[serde(flatten)]
    entry: &'a E,
    length: usize,
}

/// The part of a line that is needed to find the next one.
#[derive(Deserialize)]
struct Framing {
    length: usize,
}

/// Entries of one kind as a message's body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchBody {
    /// The kind of the entries.
    pub kind: MessageType,
    /// The workspace of each entry, and where its line and body are.
    pub entries: Vec<(WorkspaceId, Range<usize>)>,
    /// Their lines and bodies.
    pub bytes: Bytes,
}

impl BatchBody {
    /// Encodes entries with their bodies.
    pub fn encode<E: Entry>(entries: &[(E, Bytes)]) -> Self {
        let size = entries.iter().map(|(_, body)| body.len() + MAX_LINE).sum();
        let mut bytes = BytesMut::with_capacity(size).writer();
        let mut places = Vec::with_capacity(entries.len());
        for (entry, body) in entries {
            let begin = bytes.get_ref().len();
            let length = body.len();
            // Writing to memory does not fail, and every entry can be represented in JSON.
            let _ = serde_json::to_writer(&mut bytes, &Line { entry, length });
            bytes.get_mut().put_u8(b'\n');
            bytes.get_mut().extend_from_slice(body);
            bytes.get_mut().put_u8(b'\n');
            places.push((entry.workspace(), begin..bytes.get_ref().len()));
        }
        Self {
            kind: E::TYPE,
            entries: places,
            bytes: bytes.into_inner().freeze(),
        }
    }

    /// The message to publish. `app_id` names the publishing process.
    pub fn into_message(self, routing_key: String, message_id: String, app_id: &str) -> Message {
        let count = u32::try_from(self.entries.len()).unwrap_or(u32::MAX);
        let mut headers = FieldTable::default();
        headers.insert(COUNT_HEADER.into(), AMQPValue::LongUInt(count));
        Message {
            exchange: EXCHANGE,
            routing_key,
            properties: properties(self.kind.as_str(), message_id, app_id)
                .with_content_type("text/plain".into())
                .with_headers(headers),
            body: self.bytes,
        }
    }
}

/// One entry of a received message.
#[derive(Debug, Clone)]
pub struct ReceivedEntry {
    /// The decoded entry, or why it can't be decoded.
    pub content: Result<Content, MalformedMessage>,
    /// The sender's exact bytes, or the validated payload.
    pub body: Bytes,
    /// Line and body; the bytes as received where they can't be told apart.
    raw: Bytes,
    /// The properties of the message that carried it.
    properties: Arc<BasicProperties>,
}

impl ReceivedEntry {
    /// When a gateway received it, by that gateway's clock; `None` for malformed entries.
    pub fn received_at(&self) -> Option<Timestamp> {
        let content = self.content.as_ref().ok()?;
        Some(content.receipt().received_at)
    }

    /// The id of the signal or run that it becomes.
    pub fn id(&self) -> Option<String> {
        self.content.as_ref().ok().map(Content::id)
    }

    /// The id of the message that carried it.
    pub fn message_id(&self) -> Option<&str> {
        self.properties.message_id().as_ref().map(|id| id.as_str())
    }

    /// This entry as a message of its own.
    pub fn alone(&self) -> Alone {
        let id = self.id();
        let mut properties = republished(&self.properties);
        let mut headers = properties.headers().clone().unwrap_or_default();
        // A message that Letterbox did not write may lack it.
        if headers.contains_key(COUNT_HEADER) {
            headers.insert(COUNT_HEADER.into(), AMQPValue::LongUInt(1));
            properties = properties.with_headers(headers);
        }
        Alone {
            properties: match id {
                Some(id) => properties.with_message_id(id.into()),
                None => properties,
            },
            body: self.raw.clone(),
        }
    }
}

/// One entry as a message of its own: for dead letters, and to separate it from its companions.
#[derive(Debug, Clone)]
pub struct Alone {
    /// Type, id, and `count` 1 if it came in a batch.
    pub properties: BasicProperties,
    /// Line and body; the bytes as received where they can't be told apart.
    pub body: Bytes,
}

/// Splits a received message into its entries, at least one.
pub fn decode(properties: &BasicProperties, body: Bytes) -> Vec<ReceivedEntry> {
    let shared = Arc::new(properties.clone());
    let kind = message_type(properties).unwrap_or_default();
    match kind.parse() {
        Ok(MessageType::WebhookDeliveries) => decode_entries(&shared, body, Content::Delivery),
        Ok(MessageType::FormSubmissions) => decode_entries(&shared, body, Content::Submission),
        Err(_) => vec![whole(&shared, body, Err(MalformedMessage::Type))],
    }
}

/// Decodes an entry that was kept by itself, as [`ReceivedEntry::alone`] gives it: one entry,
/// unless it is malformed. Without a kind it is none of Letterbox's.
pub fn decode_alone(
    kind: Option<MessageType>,
    message_id: String,
    body: Bytes,
) -> Vec<ReceivedEntry> {
    let mut headers = FieldTable::default();
    headers.insert(COUNT_HEADER.into(), AMQPValue::LongUInt(1));
    let kind = kind.map_or("unknown", MessageType::as_str);
    let alone = properties(kind, message_id, "").with_headers(headers);
    decode(&alone, body)
}

fn whole(
    properties: &Arc<BasicProperties>,
    body: Bytes,
    content: Result<Content, MalformedMessage>,
) -> ReceivedEntry {
    ReceivedEntry {
        content,
        raw: body.clone(),
        body,
        properties: properties.clone(),
    }
}

fn decode_entries<E: Entry>(
    properties: &Arc<BasicProperties>,
    mut rest: Bytes,
    content: impl Fn(E) -> Content,
) -> Vec<ReceivedEntry> {
    let mut entries = Vec::new();
    // An empty body, too, becomes an entry, so that the message ends as a dead letter.
    while !rest.is_empty() || entries.is_empty() {
        let has_room = entries.len() < MAX_ENTRIES;
        let frame = has_room.then(|| Frame::split_from(&mut rest)).flatten();
        let Some(frame) = frame else {
            let framing = Err(MalformedMessage::Framing);
            entries.push(whole(properties, rest, framing));
            break;
        };
        let parsed = serde_json::from_str(&frame.line).map(&content);
        // The position and class of the error only: the line itself must not be logged.
        let content = parsed.map_err(|error| {
            let problem = format!("{:?} error, column {}", error.classify(), error.column());
            MalformedMessage::Line(problem)
        });
        entries.push(ReceivedEntry {
            content,
            body: frame.body,
            raw: frame.all,
            properties: properties.clone(),
        });
    }
    entries
}

/// One entry's bytes.
struct Frame {
    line: String,
    body: Bytes,
    /// Line, body, and the line breaks after each.
    all: Bytes,
}

impl Frame {
    /// Splits off the next frame. Without one, returns `None` and leaves `rest` as it is.
    fn split_from(rest: &mut Bytes) -> Option<Self> {
        let line = rest.iter().position(|byte| *byte == b'\n')?;
        let text = std::str::from_utf8(&rest[..line]).ok()?.to_owned();
        let Framing { length } = serde_json::from_str(&text).ok()?;
        let begin = line + 1;
        let end = begin.checked_add(length).filter(|end| *end < rest.len())?;
        if rest[end] != b'\n' {
            return None;
        }
        let all = rest.split_to(end + 1);
        Some(Self {
            line: text,
            body: all.slice(begin..end),
            all,
        })
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use letterbox_common::{
        ids::{DeliveryId, WebhookId, WorkspaceId},
        webhook::KeptHeaders,
    };

    use super::*;
    use crate::{Receipt, WebhookDelivery};

    fn delivery() -> WebhookDelivery {
        WebhookDelivery {
            delivery: DeliveryId::generate(),
            workspace: WorkspaceId::generate(),
            webhook: WebhookId::generate(),
            memory: None,
            same_by: None,
            event_type: None,
            headers: KeptHeaders::default(),
            receipt: Receipt {
                received_at: Timestamp::from_millisecond(1_790_000_000_123).unwrap(),
                traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into(),
                request_id: None,
            },
        }
    }

    fn message(entries: &[(WebhookDelivery, Bytes)]) -> Message {
        BatchBody::encode(entries).into_message("webhooks".into(), "1".into(), "test")
    }

    #[test]
    fn entries_round_trip_whatever_their_bodies_hold() {
        let bodies = [
            "1",
            "\"a\\nb\"",
            "{\n\"length\": 3\n}\n",
            " [\r\n]",
            "\"\u{0}\"",
        ];
        let entries = bodies.map(|body| (delivery(), Bytes::from(body)));
        let Message {
            properties, body, ..
        } = message(&entries);
        let received = decode(&properties, body);
        assert_eq!(received.len(), entries.len());
        for (received, (sent, body)) in received.iter().zip(&entries) {
            assert_eq!(received.content, Ok(Content::Delivery(sent.clone())));
            assert_eq!(received.body, body);
            // Alone it is a batch of one, of the same kind.
            let Alone { properties, body } = received.alone();
            let again = decode(&properties, body);
            assert_eq!(again.len(), 1);
            assert_eq!(again[0].content, received.content);
            assert_eq!(again[0].body, received.body);
            let id = properties.message_id().as_ref().unwrap().as_str();
            assert_eq!(id, sent.delivery.to_string());
        }
    }

    #[test]
    fn a_line_is_as_long_as_is_estimated_at_most() {
        let Message { body, .. } = message(&[(delivery(), Bytes::from_static(b"1"))]);
        assert!(body.len() < MAX_LINE, "{}", body.len());
    }

    #[test]
    fn a_bad_line_spoils_its_entry_only() {
        let entries = [delivery(), delivery(), delivery()].map(|one| (one, Bytes::from("1")));
        let Message {
            properties, body, ..
        } = message(&entries);
        let webhook = entries[1].0.webhook.to_string();
        let text = String::from_utf8(body.to_vec()).unwrap();
        let broken = text.replace(&webhook, "not-an-id");
        let received = decode(&properties, broken.into());
        let good: Vec<bool> = received.iter().map(|one| one.content.is_ok()).collect();
        assert_eq!(good, [true, false, true]);
        assert_eq!(received[1].body, "1");
    }

    #[test]
    fn a_message_of_too_many_entries_costs_no_more_than_a_large_one() {
        let one = message(&[(delivery(), Bytes::from_static(b"1"))]);
        let many = one.body.repeat(MAX_ENTRIES + 1_000);
        let received = decode(&one.properties, many.into());
        assert_eq!(received.len(), MAX_ENTRIES + 1);
        assert!(received[MAX_ENTRIES - 1].content.is_ok());
        let rest = &received[MAX_ENTRIES];
        assert_eq!(rest.content, Err(MalformedMessage::Framing));
        assert_eq!(rest.body.len(), one.body.len() * 1_000);
    }

    #[test]
    fn what_follows_a_lost_frame_is_kept_together() {
        let entries = [delivery(), delivery()].map(|one| (one, Bytes::from("\"x\"")));
        let whole = message(&entries);
        for end in 0..whole.body.len() {
            let received = decode(&whole.properties, whole.body.slice(..end));
            let last = received.last().unwrap();
            if received.len() != 1 || last.content.is_err() {
                assert_eq!(last.content, Err(MalformedMessage::Framing));
            }
            let kept: usize = received.iter().map(|one| one.raw.len()).sum();
            assert_eq!(kept, end, "nothing is dropped");
        }
        assert_eq!(decode(&BasicProperties::default(), Bytes::new()).len(), 1);
    }
}
