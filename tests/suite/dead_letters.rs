//! What can't be processed: set apart from its batch, kept with its reason, replayable.

use bytes::Bytes;
use lapin::{BasicProperties, options::BasicPublishOptions, types::AMQPValue};
use letterbox_broker::{Envelope, Receipt, WebhookDelivery};
use letterbox_common::ids::{DeliveryId, WebhookId, WorkspaceId};
use letterbox_tests::{World, eventually};

fn reason(message: &lapin::message::Delivery) -> String {
    match message
        .properties
        .headers()
        .as_ref()
        .unwrap()
        .inner()
        .get("dead_letter_reason")
    {
        Some(AMQPValue::LongString(reason)) => reason.to_string(),
        other => panic!("no reason: {other:?}"),
    }
}

/// Among a hundred good messages one points at a workspace that is not there, and one has no
/// envelope at all.
#[tokio::test]
async fn bad_messages_are_isolated_and_kept_with_their_reason() {
    let world = World::new().await;
    let gateway = world.gateway().await;
    let webhook = world.webhook(&gateway).await;
    let channel = world.broker().await.create_channel().await.unwrap();
    let publish = async |properties: BasicProperties, body: &str| {
        let options = BasicPublishOptions::default();
        channel
            .basic_publish(
                "letterbox.v1".into(),
                "webhooks".into(),
                options,
                body.as_bytes(),
                properties,
            )
            .await
            .unwrap();
    };
    let envelope = |workspace| {
        Envelope::WebhookDelivery(WebhookDelivery {
            delivery: DeliveryId::generate(),
            workspace,
            webhook: WebhookId::generate(),
            receipt: Receipt {
                received_at: jiff::Timestamp::now(),
                traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into(),
            },
        })
        .properties("test")
    };
    for n in 0..100 {
        assert!(webhook.send(n.to_string()).await.is_first());
        if n == 50 {
            publish(envelope(WorkspaceId::generate()), "\"nowhere\"").await;
            publish(BasicProperties::default(), "\"bare\"").await;
        }
    }
    let worker = world.worker().await;
    world.await_signals(100).await;
    eventually("both are dead letters", async || {
        world.messages("letterbox.v1.dead-letters").await == 2
    })
    .await;
    eventually("nothing is left", async || {
        world.messages("letterbox.v1.webhooks").await == 0
    })
    .await;
    assert!(worker.is_ready().await);

    let mut dead = Vec::new();
    while let Some(message) = world.take_message("letterbox.v1.dead-letters").await {
        assert_eq!(message.routing_key.as_str(), "letterbox.v1.webhooks");
        dead.push((Bytes::from(message.data.clone()), reason(&message)));
    }
    dead.sort();
    assert_eq!(dead[0].0, Bytes::from("\"bare\""));
    assert_eq!(dead[0].1, "unknown message type");
    assert_eq!(dead[1].0, Bytes::from("\"nowhere\""));
    assert!(dead[1].1.contains("foreign key"), "{}", dead[1].1);
}

/// What was missing is made good, the dead letter moved back twice: processed once.
#[tokio::test]
async fn a_replayed_dead_letter_is_processed_once() {
    let world = World::new().await;
    let (gateway, _worker) = (world.gateway().await, world.worker().await);
    let webhook = world.webhook(&gateway).await;
    // A constraint stands in for a bug that is mended later.
    world
        .database
        .batch_execute("ALTER TABLE signals ADD CONSTRAINT bug CHECK (kind <> 'generic')")
        .await
        .unwrap();
    assert!(webhook.send("1").await.is_first());
    eventually("dead", async || {
        world.messages("letterbox.v1.dead-letters").await == 1
    })
    .await;
    world
        .database
        .batch_execute("ALTER TABLE signals DROP CONSTRAINT bug")
        .await
        .unwrap();

    let message = world
        .take_message("letterbox.v1.dead-letters")
        .await
        .unwrap();
    let connection = world.broker().await;
    let channel = connection.create_channel().await.unwrap();
    for _ in 0..2 {
        let queue = message.routing_key.clone();
        let (options, properties) = (BasicPublishOptions::default(), message.properties.clone());
        channel
            .basic_publish("".into(), queue, options, &message.data, properties)
            .await
            .unwrap();
    }
    world.await_signals(1).await;
    eventually("both are consumed", async || {
        world.messages("letterbox.v1.webhooks").await == 0
    })
    .await;
    world.await_signals(1).await;
}
