//! Entries: the accepted deliveries and submissions that messages carry. One line of JSON before
//! its body describes each of them.

use jiff::Timestamp;
use letterbox_common::{
    KeyHash, delivery_sha256,
    ids::{DeliveryId, ReleaseId, RunId, WebhookId, WorkflowId, WorkspaceId},
    webhook::KeptHeaders,
};
use letterbox_traces::{is_on, is_sampled};
use serde::{Deserialize, Serialize, Serializer, de::DeserializeOwned};

use crate::{MessageType, topology::QueueFamily};

/// A signed body that a webhook received. Becomes a signal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookDelivery {
    /// The same for every attempt to deliver this body.
    #[serde(rename = "delivery_id")]
    pub delivery: DeliveryId,
    /// The workspace of the webhook.
    #[serde(rename = "workspace_id")]
    pub workspace: WorkspaceId,
    /// The webhook that received the body.
    #[serde(rename = "webhook_id")]
    pub webhook: WebhookId,
    /// The webhook under whose id the body is remembered, if that is another one: the first of
    /// those that this one has replaced.
    #[serde(rename = "memory_id", default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<WebhookId>,
    /// The id that its sender has given it, if that makes it the same as another one, not its body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub same_by: Option<String>,
    /// What its tool calls the event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_type: Option<String>,
    /// What was kept of the headers of the request; older messages lack it.
    #[serde(default, skip_serializing_if = "KeptHeaders::is_empty")]
    pub headers: KeptHeaders,
    /// When and how the request arrived; another attempt has its own.
    #[serde(flatten)]
    pub receipt: Receipt,
}

impl WebhookDelivery {
    /// The webhook under whose id the body is remembered.
    pub fn remembered_by(&self) -> WebhookId {
        self.memory.unwrap_or(self.webhook)
    }

    /// The key under which it is claimed, with this body.
    pub fn key_hash(&self, body: &[u8]) -> KeyHash {
        let sha256 = delivery_sha256(self.same_by.as_deref(), body);
        KeyHash::of(self.remembered_by().as_bytes(), &sha256)
    }
}

/// A payload that a form received. Becomes a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FormSubmission {
    /// The same for every attempt under one idempotency key.
    #[serde(rename = "submission_id")]
    pub run: RunId,
    /// The workspace of the workflow.
    #[serde(rename = "workspace_id")]
    pub workspace: WorkspaceId,
    /// The workflow that the form starts.
    #[serde(rename = "workflow_id")]
    pub workflow: WorkflowId,
    /// The release that the payload was validated against.
    #[serde(rename = "release_id")]
    pub release: ReleaseId,
    /// The key that it was claimed under; older messages lack it.
    #[serde(rename = "claim_key", default, skip_serializing_if = "Option::is_none")]
    pub key: Option<KeyHash>,
    /// When and how the request arrived; another attempt has its own.
    #[serde(flatten)]
    pub receipt: Receipt,
}

/// When a request was received, and in which trace context.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// By the gateway's clock, kept to the millisecond.
    #[serde(serialize_with = "to_the_millisecond")]
    pub received_at: Timestamp,
    /// W3C trace context of the request.
    pub traceparent: String,
    /// The `X-Request-Id` that the sender was given; older messages lack it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
}

impl Receipt {
    /// The trace context, if traces are exported and this one is sampled.
    pub fn followed(&self) -> Option<&str> {
        Some(self.traceparent.as_str()).filter(|context| is_on() && is_sampled(context))
    }
}

fn to_the_millisecond<S: Serializer>(time: &Timestamp, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&format_args!("{time:.3}"))
}

/// Something that messages carry in batches.
pub trait Entry: Serialize + DeserializeOwned {
    /// The type of a message that carries such entries.
    const TYPE: MessageType;
    /// The queues that take them.
    const QUEUES: QueueFamily;

    /// The workspace, which selects a queue of the family.
    fn workspace(&self) -> WorkspaceId;
    /// The id of the entry itself.
    fn id(&self) -> String;
    /// When and how its request arrived.
    fn receipt(&self) -> &Receipt;
}

impl Entry for WebhookDelivery {
    const TYPE: MessageType = MessageType::WebhookDeliveries;
    const QUEUES: QueueFamily = QueueFamily::Webhooks;

    fn workspace(&self) -> WorkspaceId {
        self.workspace
    }
    fn id(&self) -> String {
        self.delivery.to_string()
    }
    fn receipt(&self) -> &Receipt {
        &self.receipt
    }
}

impl Entry for FormSubmission {
    const TYPE: MessageType = MessageType::FormSubmissions;
    const QUEUES: QueueFamily = QueueFamily::Forms;

    fn workspace(&self) -> WorkspaceId {
        self.workspace
    }
    fn id(&self) -> String {
        self.run.to_string()
    }
    fn receipt(&self) -> &Receipt {
        &self.receipt
    }
}

/// The content of an entry in a received message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// Becomes a signal.
    Delivery(WebhookDelivery),
    /// Becomes a run.
    Submission(FormSubmission),
}

impl Content {
    /// When and how its request arrived.
    pub(crate) fn receipt(&self) -> &Receipt {
        match self {
            Self::Delivery(delivery) => &delivery.receipt,
            Self::Submission(submission) => &submission.receipt,
        }
    }

    pub(crate) fn id(&self) -> String {
        match self {
            Self::Delivery(delivery) => delivery.id(),
            Self::Submission(submission) => submission.id(),
        }
    }
}
