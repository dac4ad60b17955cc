//! Deliveries and submissions: the entries of all fetched messages are stored together, and their
//! messages are acknowledged together, so that a queue never waits for one of its messages.
//!
//! What is not stored then is set aside in the [spill](crate::spill), and stored from there later:
//! - entries that can't be stored although the database answers, because a row is locked, and what
//!   comes for their workspace after them;
//! - entries that can never be stored, while their dead letters can't be published;
//! - entries of a returned message: something in it may have killed its worker, so they are tried
//!   apart from fresh ones.

use lapin::{message::Delivery, types::AMQPValue};
use letterbox_broker::{BrokerError, RETURNS_HEADER, decode};
use tokio_util::sync::CancellationToken;

use super::{queue_reader::QueueReader, storing::Storing};
use crate::apply::DecodedEntry;

/// Takes the entries out of a message.
fn open(delivery: &mut Delivery) -> impl Iterator<Item = DecodedEntry> + use<> {
    let body = std::mem::take(&mut delivery.data).into();
    let entries = decode(&delivery.properties, body).into_iter();
    entries.map(|entry| DecodedEntry::new(entry, None))
}

/// How often a message has been returned to its queue.
fn returns(delivery: &Delivery) -> i64 {
    // On a first delivery only the publisher can have set the header: it doesn't count.
    if !delivery.redelivered {
        return 0;
    }
    let headers = delivery.properties.headers().as_ref();
    match headers.and_then(|headers| headers.inner().get(RETURNS_HEADER)) {
        Some(AMQPValue::LongLongInt(count)) => *count,
        Some(AMQPValue::LongInt(count)) => i64::from(*count),
        Some(AMQPValue::LongUInt(count)) => i64::from(*count),
        Some(AMQPValue::ShortInt(count)) => i64::from(*count),
        Some(AMQPValue::ShortShortInt(count)) => i64::from(*count),
        _ => 0,
    }
}

/// Consumes a queue until `stop`, then fetches nothing more and finishes what was fetched.
pub(super) async fn consume(
    storing: &Storing<'_>,
    mut reader: QueueReader,
    stop: &CancellationToken,
) -> Result<(), BrokerError> {
    while let Some(mut batch) = reader.next(stop).await? {
        let mut fresh = Vec::new();
        let mut aside = Vec::new();
        for delivery in &mut batch {
            let times = returns(delivery);
            for entry in open(delivery) {
                match times == 0 && !storing.locked.has(entry.door()) {
                    true => fresh.push(entry),
                    false => aside.push((entry, times)),
                }
            }
        }
        let stored = storing.store(&reader.queue, fresh, stop).await?;
        storing.locked.add(stored.locked);
        let unfinished = stored.left.into_iter().chain(stored.letters);
        aside.extend(unfinished.map(|entry| (entry, 0)));
        storing.set_aside(&reader.queue, &aside, stop).await?;
        if let Some(last) = batch.last() {
            // With all before it.
            reader.acknowledge(last).await?;
        }
    }
    reader.close().await;
    Ok(())
}
