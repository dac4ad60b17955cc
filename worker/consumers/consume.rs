//! Reads the signals of a subscription: `AMQP_URL=amqp://… QUEUE=acme.crm consume`
//!
//! Needs lapin. A signal can come twice, under one id: do what you do for it once for each id.

use std::time::Duration;

use futures_util::StreamExt;
use lapin::{BasicProperties, Connection, ConnectionProperties};
use serde_json::json;

/// Your part. If it fails, the signal comes again.
fn process(id: &str, properties: &BasicProperties, body: &[u8]) -> Result<(), String> {
    let kind = properties.kind().as_ref().map(ToString::to_string);
    let body = String::from_utf8_lossy(body);
    println!("{}", json!({ "id": id, "kind": kind, "body": body }));
    Ok(())
}

async fn consume(url: &str, queue: &str) -> Result<(), Box<dyn std::error::Error>> {
    let runtime = async_rs::Runtime::tokio_current();
    let properties = ConnectionProperties::default();
    let connection = Connection::connect_with_runtime(url, properties, runtime).await?;
    let channel = connection.create_channel().await?;
    channel.basic_qos(100, Default::default()).await?;
    let mut messages = channel
        .basic_consume(
            queue.into(),
            "".into(),
            Default::default(),
            Default::default(),
        )
        .await?;
    while let Some(message) = messages.next().await {
        let message = message?;
        let id = message.properties.message_id().as_ref();
        let id = id.ok_or("a message without an id")?.as_str();
        process(id, &message.properties, &message.data)?;
        // Only now: a message that is not acknowledged comes again.
        message.ack(Default::default()).await?;
    }
    Err("the queue was deleted, or the broker stops".into())
}

#[tokio::main]
async fn main() {
    let setting = |name| std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set"));
    let url = setting("AMQP_URL");
    let queue = setting("QUEUE");
    loop {
        if let Err(error) = consume(&url, &queue).await {
            eprintln!("connecting again: {error}");
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
}
