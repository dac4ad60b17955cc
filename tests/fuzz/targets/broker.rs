//! Targets of the broker: what arrives from a queue, whoever has published it.

use bytes::Bytes;
use lapin::{BasicProperties, protocol::basic::parse_properties, types::AMQPValue};
use letterbox_broker::{
    BatchBody, Content, Entry, MalformedMessage, MessageType, ReceivedEntry, decode, republished,
};

use super::text;

/// Any body is split into entries without a byte lost, and each stands alone as it stood among
/// others. What is decoded is encoded so that it decodes to the same.
pub(super) fn entries(input: &[u8]) {
    for kind in MessageType::ALL {
        let properties = BasicProperties::default().with_type(kind.as_str().into());
        let received = decode(&properties, Bytes::copy_from_slice(input));
        assert_stand_alone(&received, input);
        let (mut deliveries, mut submissions) = (Vec::new(), Vec::new());
        for entry in received {
            match entry.content {
                Ok(Content::Delivery(delivery)) => deliveries.push((delivery, entry.body)),
                Ok(Content::Submission(submission)) => submissions.push((submission, entry.body)),
                Err(problem) => assert!(text(problem.to_string().as_bytes()).is_some()),
            }
        }
        assert_round_trip(&deliveries, Content::Delivery);
        assert_round_trip(&submissions, Content::Submission);
    }
}

fn assert_stand_alone(received: &[ReceivedEntry], input: &[u8]) {
    let alone: Vec<_> = received.iter().map(ReceivedEntry::alone).collect();
    let bodies: Vec<_> = alone.iter().map(|alone| alone.body.clone()).collect();
    assert_eq!(bodies.concat(), input, "nothing is dropped");
    for (entry, alone) in received.iter().zip(alone) {
        let again = decode(&alone.properties, alone.body);
        assert_eq!(again.len(), 1);
        assert_eq!(again[0].content, entry.content);
        assert_eq!(again[0].body, entry.body);
    }
}

fn assert_round_trip<E: Entry + Clone>(entries: &[(E, Bytes)], content: fn(E) -> Content) {
    if entries.is_empty() {
        return;
    }
    let written = BatchBody::encode(entries);
    let message = written
        .clone()
        .into_message("queue".into(), "1".into(), "fuzz");
    let read = decode(&message.properties, message.body);
    assert_eq!(read.len(), entries.len());
    for (read, (entry, body)) in read.iter().zip(entries) {
        assert_eq!(read.body, body);
        // Times are written to the millisecond.
        let (read, entry) = (read.content.clone().unwrap(), content(entry.clone()));
        assert_eq!(as_written(read), as_written(entry));
    }
}

fn as_written(mut content: Content) -> (String, Content) {
    let receipt = match &mut content {
        Content::Delivery(delivery) => &mut delivery.receipt,
        Content::Submission(submission) => &mut submission.receipt,
    };
    let time = std::mem::take(&mut receipt.received_at);
    (format!("{time:.3}"), content)
}

/// Whatever properties a message has, it becomes entries, and what is published of it again has
/// only what Letterbox writes itself.
pub(super) fn properties(input: &[u8]) {
    let Ok((body, given)) = parse_properties(input) else {
        return;
    };
    let again = republished(&given);
    assert_eq!(republished(&again), again);
    let kept = |of: &BasicProperties| (of.kind().clone(), of.message_id().clone());
    assert_eq!(kept(&again), kept(&given));
    let foreign = [again.user_id(), again.expiration(), again.reply_to()];
    assert!(foreign.iter().all(|one| one.is_none()) && again.priority().is_none());
    let headers = again.headers().as_ref().unwrap().inner();
    for (name, value) in headers {
        let is_ours = name.as_str() == "count" && matches!(value, AMQPValue::LongUInt(_));
        assert!(is_ours, "{name} {value:?}");
    }
    let received = decode(&given, Bytes::copy_from_slice(body));
    assert_stand_alone(&received, body);
    let kind = given.kind().as_ref().map(|kind| kind.as_str());
    let is_known = kind.is_some_and(|kind| kind.parse::<MessageType>().is_ok());
    let unknown = Err(MalformedMessage::Type);
    assert_eq!(received[0].content == unknown, !is_known);
}
