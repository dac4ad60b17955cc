//! What Letterbox declares on the broker, all of it, in one place.
//!
//! What keeps messages from being lost stands in the queues' own arguments, where no missing policy
//! can take it away; lengths are left to policies. Arguments can't be changed later: a change of
//! theirs means new names (`v2`).
//!
//! ```text
//! letterbox.v1 ──webhooks──> letterbox.v1.webhooks ──┐ gave up after DELIVERY_LIMIT returns
//!      │       ──forms─────> letterbox.v1.forms ─────┤
//!      └ no queue for it ──> letterbox.v1.unrouted ──┴──> letterbox.v1.dead ──> letterbox.v1.dead-letters
//! ```
//!
//! A message for which there is no queue (somebody deleted it) goes to `letterbox.v1.unrouted`,
//! which workers consume like the others: publishing can't end in nothing, and nobody has to carry
//! messages over by hand.

use lapin::{
    Channel, ExchangeKind,
    options::{ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions},
    types::{AMQPValue, FieldTable},
};

/// Everything accepted is published here, with the kind of message as routing key.
pub const EXCHANGE: &str = "letterbox.v1";
/// Takes what [`EXCHANGE`] has no queue for.
pub const UNROUTED_EXCHANGE: &str = "letterbox.v1.unrouted";
/// Takes what can't be processed; the routing key is the queue it came from.
pub const DEAD_EXCHANGE: &str = "letterbox.v1.dead";

pub const WEBHOOKS_QUEUE: &str = "letterbox.v1.webhooks";
pub const FORMS_QUEUE: &str = "letterbox.v1.forms";
pub const RUNS_QUEUE: &str = "letterbox.v1.runs";
pub const UNROUTED_QUEUE: &str = "letterbox.v1.unrouted";
pub const DEAD_LETTERS_QUEUE: &str = "letterbox.v1.dead-letters";

/// Routing key of webhook deliveries.
pub const WEBHOOKS_KEY: &str = "webhooks";
/// Routing key of form submissions.
pub const FORMS_KEY: &str = "forms";
/// Routing key of runs that somebody has to look at.
pub const RUNS_KEY: &str = "runs";

/// How often a message may come back (its worker died, its connection broke) before it is
/// dead-lettered. High, because every return counts, also of the healthy messages that a dying
/// worker had fetched; never unlimited, because a message that kills its worker would go round for
/// ever. -1 does not mean unlimited on every broker.
const DELIVERY_LIMIT: i64 = 50;

/// Declares everything; does nothing where it stands already.
///
/// # Errors
/// When something stands there with other properties (406), or the connection breaks.
pub async fn declare(channel: &Channel) -> lapin::Result<()> {
    exchange(
        channel,
        DEAD_EXCHANGE,
        ExchangeKind::Fanout,
        FieldTable::default(),
    )
    .await?;
    queue(channel, DEAD_LETTERS_QUEUE, last_queue()).await?;
    bind(channel, DEAD_LETTERS_QUEUE, DEAD_EXCHANGE, "").await?;

    exchange(
        channel,
        UNROUTED_EXCHANGE,
        ExchangeKind::Fanout,
        FieldTable::default(),
    )
    .await?;
    queue(channel, UNROUTED_QUEUE, work_queue()).await?;
    bind(channel, UNROUTED_QUEUE, UNROUTED_EXCHANGE, "").await?;

    exchange(
        channel,
        EXCHANGE,
        ExchangeKind::Direct,
        arguments([("alternate-exchange", text(UNROUTED_EXCHANGE))]),
    )
    .await?;
    for (name, key) in [
        (WEBHOOKS_QUEUE, WEBHOOKS_KEY),
        (FORMS_QUEUE, FORMS_KEY),
        (RUNS_QUEUE, RUNS_KEY),
    ] {
        queue(channel, name, work_queue()).await?;
        bind(channel, name, EXCHANGE, key).await?;
    }
    Ok(())
}

/// Full queues refuse (the sender hears 503) instead of dropping; dead letters stay until their
/// queue has them.
fn work_queue() -> FieldTable {
    arguments([
        ("x-queue-type", text("quorum")),
        ("x-delivery-limit", AMQPValue::LongLongInt(DELIVERY_LIMIT)),
        ("x-dead-letter-exchange", text(DEAD_EXCHANGE)),
        ("x-dead-letter-strategy", text("at-least-once")),
        ("x-overflow", text("reject-publish")),
    ])
}

/// Where dead letters wait for a person. Looking at them in the dashboard returns them: the limit
/// is out of reach.
fn last_queue() -> FieldTable {
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
    channel
        .queue_bind(
            queue.into(),
            exchange.into(),
            key.into(),
            QueueBindOptions::default(),
            FieldTable::default(),
        )
        .await
}
