//! What travels with a body: AMQP properties and headers that people can read in the dashboard and
//! workers can trust.
//!
//! The body of a message is the sender's bytes (deliveries) or the validated payload (submissions)
//! and nothing else. Everything that Letterbox adds is beside it.

use bytes::Bytes;
use jiff::Timestamp;
use lapin::{
    BasicProperties,
    types::{AMQPValue, FieldTable, LongString},
};
use letterbox_common::{
    ids::{DeliveryId, ReleaseId, RunId, WebhookId, WorkflowId, WorkspaceId},
    text_enum,
};

use crate::topology::{self, WorkQueue};

const PERSISTENT: u8 = 2;

text_enum! {
    /// The AMQP property `type`.
    enum MessageType {
        /// See [`WebhookDelivery`]
        WebhookDelivery = "webhook.delivery",
        /// See [`FormSubmission`]
        FormSubmission = "form.submission",
        /// See [`RunWake`]
        RunWake = "run.wake",
    }
}

/// A message as it is published.
#[derive(Debug)]
pub struct Message {
    /// The exchange to publish it to.
    pub exchange: &'static str,
    /// How the exchange finds the queue; for a dead letter, the queue that it came from.
    pub routing_key: String,
    /// Everything that Letterbox adds to the body: type, ids, headers.
    pub properties: BasicProperties,
    /// The sender's bytes, the validated payload, or `{}` for a wake.
    pub body: Bytes,
}

/// Everything that Letterbox sends through the broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Envelope {
    /// Becomes a signal.
    WebhookDelivery(WebhookDelivery),
    /// Becomes a run.
    FormSubmission(FormSubmission),
    /// Lets a worker continue a run.
    RunWake(RunWake),
}

/// A run that a worker must look at. Everything about it is in the database; the body is `{}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunWake {
    /// The workspace of the run.
    pub workspace: WorkspaceId,
    /// `message_id`
    pub run: RunId,
}

/// A signed body that a webhook received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookDelivery {
    /// `message_id`: the same for every attempt to deliver this body.
    pub delivery: DeliveryId,
    /// The workspace of the webhook.
    pub workspace: WorkspaceId,
    /// The webhook that received the body.
    pub webhook: WebhookId,
    /// Of the request that this message comes from; another attempt has its own.
    pub receipt: Receipt,
}

/// A payload that a form received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormSubmission {
    /// `message_id`: the same for every attempt under one idempotency key.
    pub run: RunId,
    /// The workspace of the workflow.
    pub workspace: WorkspaceId,
    /// The workflow that the form starts.
    pub workflow: WorkflowId,
    /// The release that the payload was validated against.
    pub release: ReleaseId,
    /// Of the request that this message comes from; another attempt has its own.
    pub receipt: Receipt,
}

/// When and in what context a request was received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    /// By the gateway's clock, kept to the millisecond.
    pub received_at: Timestamp,
    /// W3C trace context of the request.
    pub traceparent: String,
}

/// A message that Letterbox did not write, or that was damaged on the way.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EnvelopeError {
    /// The property `type` is missing or none of ours.
    #[error("unknown message type")]
    UnknownType,
    /// Holds the name of the property or header.
    #[error("property or header '{0}' is missing or malformed")]
    Field(&'static str),
}

impl Envelope {
    /// The queue that takes it.
    fn queue(&self) -> WorkQueue {
        match self {
            Self::WebhookDelivery(_) => topology::WEBHOOKS,
            Self::FormSubmission(_) => topology::FORMS,
            Self::RunWake(_) => topology::RUNS,
        }
    }

    /// The message to publish. `app_id` names the publishing process.
    #[must_use]
    pub fn into_message(self, app_id: &str, body: Bytes) -> Message {
        let queue = self.queue();
        Message {
            exchange: queue.exchange,
            routing_key: queue.routing_key.to_owned(),
            properties: self.properties(app_id),
            body,
        }
    }

    /// The properties to publish with.
    #[must_use]
    pub fn properties(&self, app_id: &str) -> BasicProperties {
        match self {
            Self::WebhookDelivery(delivery) => {
                let ids = [
                    ("workspace_id", delivery.workspace.to_string()),
                    ("webhook_id", delivery.webhook.to_string()),
                ];
                let id = delivery.delivery.to_string();
                encode(
                    MessageType::WebhookDelivery,
                    id,
                    ids,
                    Some(&delivery.receipt),
                    app_id,
                )
            }
            Self::FormSubmission(submission) => {
                let ids = [
                    ("workspace_id", submission.workspace.to_string()),
                    ("workflow_id", submission.workflow.to_string()),
                    ("release_id", submission.release.to_string()),
                ];
                let id = submission.run.to_string();
                encode(
                    MessageType::FormSubmission,
                    id,
                    ids,
                    Some(&submission.receipt),
                    app_id,
                )
            }
            Self::RunWake(wake) => {
                let ids = [("workspace_id", wake.workspace.to_string())];
                encode(
                    MessageType::RunWake,
                    wake.run.to_string(),
                    ids,
                    None,
                    app_id,
                )
            }
        }
    }

    /// Decodes what [`Self::properties`] has written.
    ///
    /// # Errors
    /// See [`EnvelopeError`]; never quotes what it could not decode.
    pub fn decode(properties: &BasicProperties) -> Result<Self, EnvelopeError> {
        let kind = properties
            .kind()
            .as_ref()
            .and_then(|kind| kind.as_str().parse().ok());
        Ok(match kind.ok_or(EnvelopeError::UnknownType)? {
            MessageType::WebhookDelivery => Self::WebhookDelivery(WebhookDelivery {
                delivery: message_id(properties)?,
                workspace: header(properties, "workspace_id")?,
                webhook: header(properties, "webhook_id")?,
                receipt: receipt(properties)?,
            }),
            MessageType::FormSubmission => Self::FormSubmission(FormSubmission {
                run: message_id(properties)?,
                workspace: header(properties, "workspace_id")?,
                workflow: header(properties, "workflow_id")?,
                release: header(properties, "release_id")?,
                receipt: receipt(properties)?,
            }),
            MessageType::RunWake => Self::RunWake(RunWake {
                run: message_id(properties)?,
                workspace: header(properties, "workspace_id")?,
            }),
        })
    }
}

fn encode(
    kind: MessageType,
    message_id: String,
    ids: impl IntoIterator<Item = (&'static str, String)>,
    receipt: Option<&Receipt>,
    app_id: &str,
) -> BasicProperties {
    let mut headers = FieldTable::default();
    let mut add = |name: &'static str, value: String| {
        headers.insert(name.into(), AMQPValue::LongString(LongString::from(value)));
    };
    ids.into_iter().for_each(|(name, id)| add(name, id));
    if let Some(receipt) = receipt {
        add("received_at", format!("{:.3}", receipt.received_at));
        add("traceparent", receipt.traceparent.clone());
    }
    let timestamp = receipt.map_or_else(Timestamp::now, |receipt| receipt.received_at);
    BasicProperties::default()
        .with_type(kind.as_str().into())
        .with_message_id(message_id.into())
        .with_timestamp(u64::try_from(timestamp.as_second()).unwrap_or(0))
        .with_content_type("application/json".into())
        .with_app_id(app_id.into())
        .with_delivery_mode(PERSISTENT)
        .with_headers(headers)
}

fn receipt(properties: &BasicProperties) -> Result<Receipt, EnvelopeError> {
    Ok(Receipt {
        received_at: header(properties, "received_at")?,
        traceparent: header(properties, "traceparent")?,
    })
}

fn message_id<T: std::str::FromStr>(properties: &BasicProperties) -> Result<T, EnvelopeError> {
    let id = properties
        .message_id()
        .as_ref()
        .map(lapin::types::ShortString::as_str);
    id.and_then(|id| id.parse().ok())
        .ok_or(EnvelopeError::Field("message_id"))
}

fn header<T: std::str::FromStr>(
    properties: &BasicProperties,
    name: &'static str,
) -> Result<T, EnvelopeError> {
    let value = properties
        .headers()
        .as_ref()
        .and_then(|headers| headers.inner().get(name));
    let text = match value {
        Some(AMQPValue::LongString(text)) => std::str::from_utf8(text.as_bytes()).ok(),
        Some(AMQPValue::ShortString(text)) => Some(text.as_str()),
        _ => None,
    };
    text.and_then(|text| text.parse().ok())
        .ok_or(EnvelopeError::Field(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn envelopes() -> [Envelope; 3] {
        let receipt = Receipt {
            received_at: Timestamp::from_millisecond(1_790_000_000_123).unwrap(),
            traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into(),
        };
        let workspace = WorkspaceId::generate();
        [
            Envelope::WebhookDelivery(WebhookDelivery {
                delivery: DeliveryId::generate(),
                workspace,
                webhook: WebhookId::generate(),
                receipt: receipt.clone(),
            }),
            Envelope::FormSubmission(FormSubmission {
                run: RunId::generate(),
                workspace,
                workflow: WorkflowId::generate(),
                release: ReleaseId::generate(),
                receipt,
            }),
            Envelope::RunWake(RunWake {
                workspace,
                run: RunId::generate(),
            }),
        ]
    }

    #[test]
    fn envelopes_round_trip() {
        for envelope in envelopes() {
            assert_eq!(Envelope::decode(&envelope.properties("test")), Ok(envelope));
        }
    }

    #[test]
    fn every_missing_part_is_named() {
        assert_eq!(
            Envelope::decode(&BasicProperties::default()),
            Err(EnvelopeError::UnknownType)
        );
        for envelope in envelopes() {
            let whole = envelope.properties("test");
            let no_id = whole.clone().with_message_id("x".into());
            assert_eq!(
                Envelope::decode(&no_id),
                Err(EnvelopeError::Field("message_id"))
            );
            for missing in whole.headers().as_ref().unwrap().inner().keys() {
                let mut headers = FieldTable::default();
                for (name, value) in whole.headers().as_ref().unwrap().inner() {
                    if name != missing {
                        headers.insert(name.clone(), value.clone());
                    }
                }
                let cut = whole.clone().with_headers(headers);
                let Err(EnvelopeError::Field(named)) = Envelope::decode(&cut) else {
                    panic!("{missing} is not missed")
                };
                assert_eq!(named, missing.as_str());
            }
        }
    }
}
