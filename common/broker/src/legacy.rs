//! Messages of gateways from before batches: one delivery or submission each, described by
//! properties and headers. Understood for one version, so that gateways and workers can be upgraded
//! one after the other; never written.

use lapin::BasicProperties;

use crate::{
    Content, FormSubmission, MalformedMessage, Receipt, WebhookDelivery,
    message::{header, message_id, message_type},
};

pub(crate) fn decode(properties: &BasicProperties) -> Result<Content, MalformedMessage> {
    match message_type(properties) {
        Some("webhook.delivery") => Ok(Content::Delivery(WebhookDelivery {
            delivery: message_id(properties)?,
            workspace: header(properties, "workspace_id")?,
            webhook: header(properties, "webhook_id")?,
            memory: None,
            receipt: receipt(properties)?,
        })),
        Some("form.submission") => Ok(Content::Submission(FormSubmission {
            run: message_id(properties)?,
            workspace: header(properties, "workspace_id")?,
            workflow: header(properties, "workflow_id")?,
            release: header(properties, "release_id")?,
            key: None,
            receipt: receipt(properties)?,
        })),
        _ => Err(MalformedMessage::Type),
    }
}

fn receipt(properties: &BasicProperties) -> Result<Receipt, MalformedMessage> {
    Ok(Receipt {
        received_at: header(properties, "received_at")?,
        traceparent: header(properties, "traceparent")?,
        request_id: None,
    })
}
