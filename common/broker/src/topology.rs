//! Everything that Letterbox declares on the broker.
//!
//! What keeps messages from being lost is in the queues' own arguments, where no missing policy can
//! take it away; lengths are left to policies. Arguments can't be changed later: other arguments
//! need other names (`v2`).
//!
//! ```text
//! letterbox.v1 ──webhooks──> letterbox.v1.webhooks ──┐
//!      │       ──forms─────> letterbox.v1.forms ─────┤ returned more than DELIVERY_LIMIT times
//!      │       ──runs──────> letterbox.v1.runs ──────┤
//!      └─no such queue─────> letterbox.v1.unrouted ──┴─> letterbox.v1.dead
//!                                                         └─> letterbox.v1.dead-letters
//! ```
//!
//! A message whose queue was deleted goes to `letterbox.v1.unrouted`, which workers consume like
//! the others: publishing can't end in nothing, and nobody has to move messages by hand.

use lapin::{
    Channel, ExchangeKind,
    options::{ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions},
    types::{AMQPValue, FieldTable},
};

/// Everything accepted is published here, with the routing key of its queue.
pub const EXCHANGE: &str = "letterbox.v1";
/// Takes what [`EXCHANGE`] has no queue for.
pub const UNROUTED_EXCHANGE: &str = "letterbox.v1.unrouted";
/// Takes what can't be processed. The routing key is the queue that it came from.
pub const DEAD_EXCHANGE: &str = "letterbox.v1.dead";
/// Holds what can't be processed, until a person looks at it.
pub const DEAD_LETTERS_QUEUE: &str = "letterbox.v1.dead-letters";

/// How workers consume a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consumption {
    /// Many messages in one transaction.
    Batches,
    /// One by one, each as long as its run takes.
    Wakes,
}

/// A queue that workers consume. Its arguments are those of every work queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkQueue {
    /// Its name on the broker.
    pub name: &'static str,
    pub(crate) exchange: &'static str,
    pub(crate) routing_key: &'static str,
    /// Whether workers take its messages in batches or one by one.
    pub consumption: Consumption,
}

/// Accepted webhook deliveries.
pub const WEBHOOKS: WorkQueue = WorkQueue {
    name: "letterbox.v1.webhooks",
    exchange: EXCHANGE,
    routing_key: "webhooks",
    consumption: Consumption::Batches,
};
/// Accepted form submissions.
pub const FORMS: WorkQueue = WorkQueue {
    name: "letterbox.v1.forms",
    exchange: EXCHANGE,
    routing_key: "forms",
    consumption: Consumption::Batches,
};
/// Runs that a worker must look at now.
pub const RUNS: WorkQueue = WorkQueue {
    name: "letterbox.v1.runs",
    exchange: EXCHANGE,
    routing_key: "runs",
    consumption: Consumption::Wakes,
};
/// Messages of any kind whose queue does not exist.
pub const UNROUTED: WorkQueue = WorkQueue {
    name: "letterbox.v1.unrouted",
    exchange: UNROUTED_EXCHANGE,
    routing_key: "",
    consumption: Consumption::Batches,
};

/// Every work queue: what is declared, and what workers consume.
pub const WORK_QUEUES: [WorkQueue; 4] = [WEBHOOKS, FORMS, RUNS, UNROUTED];

/// How often a message may come back (its worker died, its connection broke) before it is
/// dead-lettered. High, because every return counts, also of healthy messages that a dying worker
/// had fetched; never unlimited, because a message that kills its worker would go round forever. -1
/// does not mean unlimited on every broker.
const DELIVERY_LIMIT: i64 = 50;

/// Declares everything. Does nothing where it exists already.
///
/// # Errors
/// When something of the same name has other properties (406), or the connection breaks.
pub async fn declare(channel: &Channel) -> lapin::Result<()> {
    exchange(
        channel,
        DEAD_EXCHANGE,
        ExchangeKind::Fanout,
        FieldTable::default(),
    )
    .await?;
    queue(channel, DEAD_LETTERS_QUEUE, dead_letter_arguments()).await?;
    bind(channel, DEAD_LETTERS_QUEUE, DEAD_EXCHANGE, "").await?;

    exchange(
        channel,
        UNROUTED_EXCHANGE,
        ExchangeKind::Fanout,
        FieldTable::default(),
    )
    .await?;
    let alternate = arguments([("alternate-exchange", text(UNROUTED_EXCHANGE))]);
    exchange(channel, EXCHANGE, ExchangeKind::Direct, alternate).await?;
    for work in WORK_QUEUES {
        queue(channel, work.name, work_arguments()).await?;
        bind(channel, work.name, work.exchange, work.routing_key).await?;
    }
    Ok(())
}

/// Full queues refuse (the sender gets a 503) instead of dropping; dead letters stay in their queue
/// until the dead-letter queue has them.
fn work_arguments() -> FieldTable {
    arguments([
        ("x-queue-type", text("quorum")),
        ("x-delivery-limit", AMQPValue::LongLongInt(DELIVERY_LIMIT)),
        ("x-dead-letter-exchange", text(DEAD_EXCHANGE)),
        ("x-dead-letter-strategy", text("at-least-once")),
        ("x-overflow", text("reject-publish")),
    ])
}

/// Looking at a dead letter in the dashboard returns it to its queue: the limit is out of reach.
fn dead_letter_arguments() -> FieldTable {
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

fn text(value: &str) -> AMQPValue {
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
    channel
        .exchange_declare(name.into(), kind, durable, arguments)
        .await
}

async fn queue(channel: &Channel, name: &str, arguments: FieldTable) -> lapin::Result<()> {
    let durable = QueueDeclareOptions {
        durable: true,
        ..Default::default()
    };
    channel
        .queue_declare(name.into(), durable, arguments)
        .await
        .map(drop)
}

async fn bind(channel: &Channel, queue: &str, exchange: &str, key: &str) -> lapin::Result<()> {
    let (options, arguments) = (QueueBindOptions::default(), FieldTable::default());
    channel
        .queue_bind(
            queue.into(),
            exchange.into(),
            key.into(),
            options,
            arguments,
        )
        .await
}
