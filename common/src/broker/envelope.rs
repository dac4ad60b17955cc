//! What travels with a body: AMQP properties and headers that people can read in the dashboard and
//! workers can trust.
//!
//! The body of a message is the sender's bytes (deliveries) or the validated payload (submissions)
//! and nothing else. Everything that Letterbox adds stands beside it.

use jiff::Timestamp;
use lapin::{
    BasicProperties,
    types::{AMQPValue, FieldTable, LongString},
};

use crate::ids::{DeliveryId, ReleaseId, RunId, WebhookId, WorkflowId, WorkspaceId};

const PERSISTENT: u8 = 2;
const WEBHOOK_DELIVERY: &str = "webhook.delivery";
const FORM_SUBMISSION: &str = "form.submission";
const RUN_WAKE: &str = "run.wake";

/// Everything that Letterbox sends through the broker, by the AMQP property `type`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Envelope {
    WebhookDelivery(WebhookDelivery),
    FormSubmission(FormSubmission),
    RunWake(RunWake),
}

/// A run that somebody has to look at. All that is to know about it stands in the database; the
/// body is empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunWake {
    pub workspace: WorkspaceId,
    /// `message_id`
    pub run: RunId,
}

/// A signed body that a webhook received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookDelivery {
    /// `message_id`: the same for every attempt to deliver this body.
    pub delivery: DeliveryId,
    pub workspace: WorkspaceId,
    pub webhook: WebhookId,
    pub receipt: Receipt,
}

/// A payload that a form received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormSubmission {
    /// `message_id`: the same for every attempt under one idempotency key.
    pub run: RunId,
    pub workspace: WorkspaceId,
    pub workflow: WorkflowId,
    /// The release that the payload was validated against.
    pub release: ReleaseId,
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
    #[error("unknown message type")]
    UnknownType,
    #[error("property or header '{0}' is missing or malformed")]
    Field(&'static str),
}

impl Envelope {
    /// The properties to publish with; `app_id` names the publishing process.
    #[must_use]
    pub fn properties(&self, app_id: &str) -> BasicProperties {
        match self {
            Self::WebhookDelivery(delivery) => {
                let ids = [
                    ("workspace_id", delivery.workspace.to_string()),
                    ("webhook_id", delivery.webhook.to_string()),
                ];
                write(
                    WEBHOOK_DELIVERY,
                    delivery.delivery.to_string(),
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
                write(
                    FORM_SUBMISSION,
                    submission.run.to_string(),
                    ids,
                    Some(&submission.receipt),
                    app_id,
                )
            }
            Self::RunWake(wake) => write(
                RUN_WAKE,
                wake.run.to_string(),
                [("workspace_id", wake.workspace.to_string())],
                None,
                app_id,
            ),
        }
    }

    /// Reads what [`Self::properties`] wrote.
    ///
    /// # Errors
    /// See [`EnvelopeError`]; never quotes what it could not read.
    pub fn read(properties: &BasicProperties) -> Result<Self, EnvelopeError> {
        match properties
            .kind()
            .as_ref()
            .map(lapin::types::ShortString::as_str)
        {
            Some(WEBHOOK_DELIVERY) => Ok(Self::WebhookDelivery(WebhookDelivery {
                delivery: message_id(properties)?,
                workspace: header(properties, "workspace_id")?,
                webhook: header(properties, "webhook_id")?,
                receipt: read_receipt(properties)?,
            })),
            Some(FORM_SUBMISSION) => Ok(Self::FormSubmission(FormSubmission {
                run: message_id(properties)?,
                workspace: header(properties, "workspace_id")?,
                workflow: header(properties, "workflow_id")?,
                release: header(properties, "release_id")?,
                receipt: read_receipt(properties)?,
            })),
            Some(RUN_WAKE) => Ok(Self::RunWake(RunWake {
                run: message_id(properties)?,
                workspace: header(properties, "workspace_id")?,
            })),
            _ => Err(EnvelopeError::UnknownType),
        }
    }
}

fn write(
    kind: &str,
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
        .with_type(kind.into())
        .with_message_id(message_id.into())
        .with_timestamp(u64::try_from(timestamp.as_second()).unwrap_or(0))
        .with_content_type("application/json".into())
        .with_app_id(app_id.into())
        .with_delivery_mode(PERSISTENT)
        .with_headers(headers)
}

fn read_receipt(properties: &BasicProperties) -> Result<Receipt, EnvelopeError> {
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
    fn is_read_as_it_was_written() {
        for envelope in envelopes() {
            assert_eq!(Envelope::read(&envelope.properties("test")), Ok(envelope));
        }
    }

    #[test]
    fn every_missing_part_is_named() {
        assert_eq!(
            Envelope::read(&BasicProperties::default()),
            Err(EnvelopeError::UnknownType)
        );
        for envelope in envelopes() {
            let whole = envelope.properties("test");
            let no_id = whole.clone().with_message_id("x".into());
            assert_eq!(
                Envelope::read(&no_id),
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
                let Err(EnvelopeError::Field(named)) = Envelope::read(&cut) else {
                    panic!("{missing} is not missed")
                };
                assert_eq!(named, missing.as_str());
            }
        }
    }
}
