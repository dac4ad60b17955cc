//! The spans of messages, named by OpenTelemetry's semantic conventions for messaging.

use letterbox_traces::{Span, SpanKind, batch};

use crate::{ReceivedEntry, topology::EXCHANGE};

/// Starts the span of publishing entries, which have these trace contexts, under a routing key.
pub fn publishing<'c>(
    routing_key: &str,
    contexts: impl Iterator<Item = &'c str> + Clone,
) -> Option<Span> {
    let name = || format!("publish {EXCHANGE}.{routing_key}");
    let mut span = batch(SpanKind::Producer, name, contexts.clone())?;
    say(&mut span, ("publish", "send"), contexts.count());
    let destination = format!("{EXCHANGE}:{routing_key}");
    span.set("messaging.destination.name", destination);
    let key = routing_key.to_owned();
    span.set("messaging.rabbitmq.destination.routing_key", key);
    Some(span)
}

/// Starts the span of processing entries of a queue together.
pub fn processing<'e>(
    queue: &str,
    entries: impl Iterator<Item = &'e ReceivedEntry> + Clone,
) -> Option<Span> {
    let contents = entries.clone().filter_map(|one| one.content.as_ref().ok());
    let contexts = contents.map(|content| content.receipt().traceparent.as_str());
    let mut span = batch(SpanKind::Consumer, || format!("process {queue}"), contexts)?;
    say(&mut span, ("process", "process"), entries.count());
    span.set("messaging.destination.name", queue.to_owned());
    Some(span)
}

fn say(span: &mut Span, (name, kind): (&'static str, &'static str), count: usize) {
    span.set("messaging.system", "rabbitmq");
    span.set("messaging.operation.name", name);
    span.set("messaging.operation.type", kind);
    span.set("messaging.batch.message_count", count as i64);
}
