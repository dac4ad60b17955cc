//! Everything that Letterbox declares on the broker.
//!
//! The settings that prevent loss are arguments of the queues, so that no missing policy can remove
//! them; length limits are left to policies. Arguments can't be changed later: other arguments need
//! other names (`v2`).
//!
//! ```text
//! letterbox.v1 ──webhooks──> letterbox.v1.webhooks ──┐
//!      │       ──forms─────> letterbox.v1.forms ─────┤ returned more than DELIVERY_LIMIT times
//!      └─no such queue─────> letterbox.v1.unrouted ──┴─> letterbox.v1.dead
//!                                                         └─> letterbox.v1.dead-letters
//! letterbox.v1.signals ──of a subscription──> the queue of its choice
//! ```
//! There may be several of `webhooks` and of `forms` (`letterbox.v1.webhooks.2`, …): a queue has
//! one leader, and a leader uses one core.
//!
//! A message whose queue was deleted goes to `letterbox.v1.unrouted`, which workers consume like
//! the others: no message is dropped as unroutable, and none has to be moved by hand.

use std::time::Duration;

use lapin::{
    Channel, Connection, ExchangeKind, Queue,
    options::{ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions},
    types::{AMQPValue, FieldTable},
};
use letterbox_common::{ids::WorkspaceId, text_enum};

use crate::{
    BrokerError,
    error::{close_channel, with_timeout},
};

/// Everything accepted is published here, with the routing key of its queue.
pub const EXCHANGE: &str = "letterbox.v1";
/// Takes messages that [`EXCHANGE`] has no queue for.
pub const UNROUTED_EXCHANGE: &str = "letterbox.v1.unrouted";
/// Takes messages that can't be processed. The routing key is the queue that they came from.
pub const DEAD_EXCHANGE: &str = "letterbox.v1.dead";
/// Signals are published here, for the queues of those who subscribe.
pub const SIGNALS_EXCHANGE: &str = "letterbox.v1.signals";
/// Holds messages that can't be processed until an operator handles them.
pub const DEAD_LETTERS_QUEUE: &str = "letterbox.v1.dead-letters";
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

text_enum! {
    /// Queues that share one kind of entries, by routing key; each workspace uses one of them.
    pub enum QueueFamily {
        /// Accepted webhook deliveries
        Webhooks = "webhooks",
        /// Accepted form submissions
        Forms = "forms",
    }
}

impl QueueFamily {
    /// The number of the queue that takes a workspace's entries, from 1 to `queues`. Ids of
    /// workspaces are random, so workspaces spread evenly.
    pub fn number_for(workspace: WorkspaceId, queues: u16) -> u16 {
        let number = u128::from_be_bytes(*workspace.as_bytes()) % u128::from(queues.max(1));
        u16::try_from(number + 1).unwrap_or(1)
    }

    /// The routing key of the queue with a number, counted from 1. The first has no number in its
    /// name: most installations have one.
    pub fn routing_key(self, number: u16) -> String {
        match number {
            0 | 1 => self.to_string(),
            more => format!("{self}.{more}"),
        }
    }

    /// The queue with a number, counted from 1.
    pub fn queue(self, number: u16) -> WorkQueue {
        WorkQueue::bound(self.routing_key(number))
    }
}

/// A queue that workers consume. All work queues have the same arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkQueue {
    /// Its name on the broker.
    pub name: String,
    exchange: &'static str,
    routing_key: String,
}

impl WorkQueue {
    /// A queue of [`EXCHANGE`], named after its routing key.
    fn bound(routing_key: String) -> Self {
        Self {
            name: format!("{EXCHANGE}.{routing_key}"),
            exchange: EXCHANGE,
            routing_key,
        }
    }

    /// The queue of messages of any kind whose queue does not exist.
    fn unrouted() -> Self {
        Self {
            name: UNROUTED_EXCHANGE.to_owned(),
            exchange: UNROUTED_EXCHANGE,
            routing_key: String::new(),
        }
    }
}

/// Every work queue, with `queues` queues in each family: declared, and consumed by workers.
pub fn work_queues(queues: u16) -> Vec<WorkQueue> {
    let of_family = |family: &QueueFamily| {
        let family = *family;
        (1..=queues.max(1)).map(move |number| family.queue(number))
    };
    let families = QueueFamily::ALL.iter().flat_map(of_family);
    families.chain([WorkQueue::unrouted()]).collect()
}

/// How often a message may return to its queue (its worker died, its connection broke) before it is
/// dead-lettered. High, because every return counts, even of healthy messages that a dying worker
/// had fetched; never unlimited, because a message that kills its worker would circulate forever.
const DELIVERY_LIMIT: i64 = 50;

/// Declares these work queues and what all of them need; what exists already stays as it is.
///
/// # Errors
/// When something of the same name has other properties (406), or the connection breaks.
async fn declare(channel: &Channel, queues: &[WorkQueue]) -> lapin::Result<()> {
    let none = FieldTable::default();
    exchange(channel, DEAD_EXCHANGE, ExchangeKind::Fanout, none).await?;
    queue(channel, DEAD_LETTERS_QUEUE, lasting_arguments()).await?;
    bind(channel, DEAD_LETTERS_QUEUE, DEAD_EXCHANGE, "").await?;

    let none = FieldTable::default();
    exchange(channel, UNROUTED_EXCHANGE, ExchangeKind::Fanout, none).await?;
    // Before anybody can publish: nothing is ever unroutable.
    work_queue(channel, &WorkQueue::unrouted()).await?;
    let alternate = arguments([("alternate-exchange", text(UNROUTED_EXCHANGE))]);
    exchange(channel, EXCHANGE, ExchangeKind::Direct, alternate).await?;
    for work in queues {
        work_queue(channel, work).await?;
    }
    declare_signals_exchange(channel).await
}

/// Declares the exchange of signals. It has no alternate: a message that no queue takes must not
/// count as published.
pub(crate) async fn declare_signals_exchange(channel: &Channel) -> lapin::Result<()> {
    let arguments = FieldTable::default();
    exchange(channel, SIGNALS_EXCHANGE, ExchangeKind::Topic, arguments).await
}

async fn work_queue(channel: &Channel, work: &WorkQueue) -> lapin::Result<()> {
    queue(channel, &work.name, work_arguments()).await?;
    bind(channel, &work.name, work.exchange, &work.routing_key).await
}

/// Like [`declare`], on a channel of its own: a refusal (406) closes the channel it happens on.
///
/// # Errors
/// When something of the same name has other properties, or the broker does not answer.
pub async fn declare_on(connection: &Connection, queues: &[WorkQueue]) -> Result<(), BrokerError> {
    let channel = with_timeout(ANSWER_TIMEOUT, connection.create_channel()).await?;
    with_timeout(ANSWER_TIMEOUT, declare(&channel, queues)).await?;
    close_channel(&channel).await;
    Ok(())
}

/// Checks that [`EXCHANGE`] exists, which needs no rights.
pub(crate) async fn find_on(connection: &Connection) -> Result<(), BrokerError> {
    let channel = with_timeout(ANSWER_TIMEOUT, connection.create_channel()).await?;
    let passive = ExchangeDeclareOptions {
        passive: true,
        ..Default::default()
    };
    let kind = ExchangeKind::Direct;
    let none = FieldTable::default();
    let finding = channel.exchange_declare(EXCHANGE.into(), kind, passive, none);
    match with_timeout(ANSWER_TIMEOUT, finding).await {
        Ok(()) => {
            close_channel(&channel).await;
            Ok(())
        }
        Err(error) if error.is_not_found() => Err(BrokerError::Ended(format!(
            "the exchange {EXCHANGE} is missing: a worker declares it, and so does 'letterbox \
             migrate' with AMQP_URL"
        ))),
        Err(error) => Err(error),
    }
}

/// The arguments that a queue of ours is declared with, as text; none for another queue.
pub fn declared_arguments(queue: &str) -> Vec<(String, String)> {
    let declared = match queue {
        DEAD_LETTERS_QUEUE => lasting_arguments(),
        queue if queue.starts_with(EXCHANGE) => work_arguments(),
        _ => FieldTable::default(),
    };
    let declared = declared.inner().iter().map(|(name, value)| {
        let value = match value {
            AMQPValue::LongString(text) => text.to_string(),
            AMQPValue::LongLongInt(number) => number.to_string(),
            other => format!("{other:?}"),
        };
        (name.to_string(), value)
    });
    declared.collect()
}

/// A full queue refuses messages instead of dropping them; dead letters stay in their queue until
/// the dead-letter queue has them.
fn work_arguments() -> FieldTable {
    arguments([
        ("x-queue-type", text("quorum")),
        ("x-delivery-limit", AMQPValue::LongLongInt(DELIVERY_LIMIT)),
        ("x-dead-letter-exchange", text(DEAD_EXCHANGE)),
        ("x-dead-letter-strategy", text("at-least-once")),
        ("x-overflow", text("reject-publish")),
    ])
}

/// Viewing a message in the dashboard returns it to its queue, and so does a consumer that ends, so
/// the limit is out of reach. -1 does not mean unlimited on every broker.
pub(crate) fn lasting_arguments() -> FieldTable {
    arguments([
        ("x-queue-type", text("quorum")),
        ("x-delivery-limit", AMQPValue::LongLongInt(1_000_000_000)),
        ("x-overflow", text("reject-publish")),
    ])
}

fn arguments<const N: usize>(entries: [(&str, AMQPValue); N]) -> FieldTable {
    let mut table = FieldTable::default();
    for (name, value) in entries {
        table.insert(name.into(), value);
    }
    table
}

pub(crate) fn text(value: &str) -> AMQPValue {
    AMQPValue::LongString(value.into())
}

async fn exchange(
    channel: &Channel,
    name: &str,
    kind: ExchangeKind,
    arguments: FieldTable,
) -> lapin::Result<()> {
    let durable = ExchangeDeclareOptions {
        durable: true,
        ..Default::default()
    };
    let declaring = channel.exchange_declare(name.into(), kind, durable, arguments);
    declaring.await
}

pub(crate) async fn queue(
    channel: &Channel,
    name: &str,
    arguments: FieldTable,
) -> lapin::Result<()> {
    let durable = QueueDeclareOptions::durable();
    let declaring = channel.queue_declare(name.into(), durable, arguments);
    declaring.await.map(drop)
}

/// A queue and its length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueLength {
    /// Its name on the broker.
    pub queue: String,
    /// Messages that no consumer has.
    pub ready: u32,
    /// The number of consumers.
    pub consumers: u32,
}

/// Returns the length of every queue, with `queues` queues in each family.
pub(crate) async fn lengths_on(
    connection: &Connection,
    queues: u16,
) -> Result<Vec<QueueLength>, BrokerError> {
    let channel = with_timeout(ANSWER_TIMEOUT, connection.create_channel()).await?;
    let names = work_queues(queues).into_iter().map(|queue| queue.name);
    let mut lengths = Vec::new();
    for name in names.chain([DEAD_LETTERS_QUEUE.to_owned()]) {
        let found = with_timeout(ANSWER_TIMEOUT, find_queue(&channel, &name)).await?;
        lengths.push(QueueLength {
            ready: found.message_count(),
            consumers: found.consumer_count(),
            queue: name,
        });
    }
    Ok(lengths)
}

async fn find_queue(channel: &Channel, name: &str) -> lapin::Result<Queue> {
    let passive = QueueDeclareOptions::default().passive();
    let finding = channel.queue_declare(name.into(), passive, FieldTable::default());
    finding.await
}

/// Returns the number of messages that are ready in a queue.
pub(crate) async fn queue_length(channel: &Channel, name: &str) -> lapin::Result<u32> {
    let found = find_queue(channel, name).await?;
    Ok(found.message_count())
}

pub(crate) async fn bind(
    channel: &Channel,
    queue: &str,
    exchange: &str,
    key: &str,
) -> lapin::Result<()> {
    let options = QueueBindOptions::default();
    let none = FieldTable::default();
    let binding = channel.queue_bind(queue.into(), exchange.into(), key.into(), options, none);
    binding.await
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn workspaces_spread_over_the_queues_and_stay_in_theirs() {
        let mut found: HashMap<String, usize> = HashMap::new();
        for _ in 0..4_000 {
            let workspace = WorkspaceId::generate();
            let number = QueueFamily::number_for(workspace, 4);
            assert_eq!(number, QueueFamily::number_for(workspace, 4));
            assert_eq!(QueueFamily::number_for(workspace, 1), 1);
            let key = QueueFamily::Forms.routing_key(number);
            *found.entry(key).or_default() += 1;
        }
        let declared = work_queues(4).into_iter().map(|one| one.routing_key);
        let declared = Vec::from_iter(declared);
        assert_eq!(found.len(), 4);
        let is_used = |key, n| declared.contains(key) && n > 700;
        assert!(found.iter().all(|(key, n)| is_used(key, *n)), "{found:?}");
    }
}
