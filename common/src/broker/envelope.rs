//! What travels with a body: AMQP properties and headers that people can read in the dashboard and workers can trust.
//!
//! The body of a message is the sender's bytes and nothing else. Everything that Letterbox adds stands beside it.

use jiff::Timestamp;
use lapin::{
    BasicProperties,
    types::{AMQPValue, FieldTable, LongString},
};

use crate::ids::{DeliveryId, WebhookId, WorkspaceId};

const PERSISTENT: u8 = 2;
const WEBHOOK_DELIVERY: &str = "webhook.delivery";

/// Everything that Letterbox sends through the broker, by the AMQP property `type`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Envelope {
    WebhookDelivery(WebhookDelivery),
}

/// A signed body that a webhook received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookDelivery {
    /// `message_id`: the same for every attempt to deliver this body.
    pub delivery: DeliveryId,
    pub workspace: WorkspaceId,
    pub webhook: WebhookId,
    /// By the gateway's clock, kept to the millisecond.
    pub received_at: Timestamp,
    /// W3C trace context of the request.
    pub traceparent: String,
}

/// A message that Letterbox did not write, or that was damaged on the way.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EnvelopeError {
    #[error("unknown message type")]
    UnknownType,
    #[error("property or header '{0}' is missing or malformed")]
    Field(&'static str),
}

impl Envelope {
    /// The properties to publish with; `app_id` names the publishing process.
    #[must_use]
    pub fn properties(&self, app_id: &str) -> BasicProperties {
        let Self::WebhookDelivery(delivery) = self;
        let mut headers = FieldTable::default();
        let entries = [
            ("workspace_id", delivery.workspace.to_string()),
            ("webhook_id", delivery.webhook.to_string()),
            ("received_at", format!("{:.3}", delivery.received_at)),
            ("traceparent", delivery.traceparent.clone()),
        ];
        for (name, value) in entries {
            headers.insert(name.into(), AMQPValue::LongString(LongString::from(value)));
        }
        BasicProperties::default()
            .with_type(WEBHOOK_DELIVERY.into())
            .with_message_id(delivery.delivery.to_string().into())
            .with_timestamp(u64::try_from(delivery.received_at.as_second()).unwrap_or(0))
            .with_content_type("application/json".into())
            .with_app_id(app_id.into())
            .with_delivery_mode(PERSISTENT)
            .with_headers(headers)
    }

    /// Reads what [`Self::properties`] wrote.
    ///
    /// # Errors
    /// See [`EnvelopeError`]; never quotes what it could not read.
    pub fn read(properties: &BasicProperties) -> Result<Self, EnvelopeError> {
        match properties.kind().as_ref().map(lapin::types::ShortString::as_str) {
            Some(WEBHOOK_DELIVERY) => read_delivery(properties).map(Self::WebhookDelivery),
            _ => Err(EnvelopeError::UnknownType),
        }
    }
}

fn read_delivery(properties: &BasicProperties) -> Result<WebhookDelivery, EnvelopeError> {
    let id = properties.message_id().as_ref().map(lapin::types::ShortString::as_str);
    Ok(WebhookDelivery {
        delivery: id.and_then(|id| id.parse().ok()).ok_or(EnvelopeError::Field("message_id"))?,
        workspace: header(properties, "workspace_id")?,
        webhook: header(properties, "webhook_id")?,
        received_at: header(properties, "received_at")?,
        traceparent: header(properties, "traceparent")?,
    })
}

fn header<T: std::str::FromStr>(properties: &BasicProperties, name: &'static str) -> Result<T, EnvelopeError> {
    let value = properties.headers().as_ref().and_then(|headers| headers.inner().get(name));
    let text = match value {
        Some(AMQPValue::LongString(text)) => std::str::from_utf8(text.as_bytes()).ok(),
        Some(AMQPValue::ShortString(text)) => Some(text.as_str()),
        _ => None,
    };
    text.and_then(|text| text.parse().ok()).ok_or(EnvelopeError::Field(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn envelope() -> Envelope {
        Envelope::WebhookDelivery(WebhookDelivery {
            delivery: DeliveryId::generate(),
            workspace: WorkspaceId::generate(),
            webhook: WebhookId::generate(),
            received_at: Timestamp::from_millisecond(1_790_000_000_123).unwrap(),
            traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into(),
        })
    }

    #[test]
    fn is_read_as_it_was_written() {
        let envelope = envelope();
        assert_eq!(Envelope::read(&envelope.properties("test")), Ok(envelope));
    }

    #[test]
    fn every_missing_part_is_named() {
        assert_eq!(Envelope::read(&BasicProperties::default()), Err(EnvelopeError::UnknownType));
        let whole = envelope().properties("test");
        let no_id = whole.clone().with_message_id("x".into());
        assert_eq!(Envelope::read(&no_id), Err(EnvelopeError::Field("message_id")));
        for name in ["workspace_id", "webhook_id", "received_at", "traceparent"] {
            let mut headers = FieldTable::default();
            for (key, value) in whole.headers().as_ref().unwrap().inner() {
                if key.as_str() != name {
                    headers.insert(key.clone(), value.clone());
                }
            }
            let cut = whole.clone().with_headers(headers);
            assert_eq!(Envelope::read(&cut), Err(EnvelopeError::Field(name)));
        }
    }
}
