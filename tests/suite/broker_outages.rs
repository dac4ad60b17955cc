//! RabbitMQ away, blocked, crashed, or tampered with.

use lapin::options::{QueueDeclareOptions, QueueDeleteOptions};
use letterbox_tests::{PrivateBroker, World, eventually};

/// A memory alarm blocks publishing, a crash loses the connection: refused, never stuck, back
/// without a restart.
#[tokio::test]
async fn broker_alarms_and_crashes_refuse_senders_and_lose_nothing() {
    let world = World::new().await;
    let broker = PrivateBroker::start("");
    let url = broker.url();
    let gateway = world.gateway_with(&[("AMQP_URL", &url)]).await;
    let worker = world.worker_with(&[("AMQP_URL", &url)]).await;
    let webhook = world.webhook(&gateway).await;
    assert!(webhook.send("\"before\"").await.is_first());

    broker.ctl(&["set_vm_memory_high_watermark", "absolute", "1MB"]);
    // The broker tells a connection that it is blocked when it next publishes.
    eventually("blocked", async || {
        webhook.send("\"alarm\"").await.status == 503 && !gateway.is_ready().await
    })
    .await;
    let blocked = gateway.admin("/readyz").await.unwrap().1;
    assert!(blocked.contains("blocks publishing"), "{blocked}");
    broker.ctl(&["set_vm_memory_high_watermark", "0.4"]);
    gateway.await_ready().await;
    let answer = webhook.send_until_accepted("\"alarm\"").await;
    assert_eq!(answer.status, 202);

    broker.kill();
    gateway.await_not_ready().await;
    worker.await_not_ready().await;
    assert_eq!(webhook.send("\"crash\"").await.status, 503);
    broker.start_again();
    gateway.await_ready().await;
    worker.await_ready().await;
    assert!(webhook.send_until_accepted("\"crash\"").await.is_first());
    world.await_signals(3).await;
}

/// Somebody deletes the work queue: what is accepted meanwhile is processed all the same, and the
/// queue comes back.
#[tokio::test]
async fn a_deleted_queue_loses_nothing() {
    let world = World::new().await;
    let (gateway, worker) = (world.gateway().await, world.worker().await);
    let webhook = world.webhook(&gateway).await;
    let connection = world.broker().await;
    let channel = connection.create_channel().await.unwrap();
    channel
        .queue_delete(
            "letterbox.v1.webhooks".into(),
            QueueDeleteOptions::default(),
        )
        .await
        .unwrap();
    for n in 0..10 {
        assert_eq!(
            webhook.send_until_accepted(&n.to_string()).await.status,
            202
        );
    }
    world.await_signals(10).await;
    worker.await_ready().await;
    let passive = QueueDeclareOptions {
        passive: true,
        ..Default::default()
    };
    eventually("the queue is back", async || {
        let channel = connection.create_channel().await.unwrap();
        channel
            .queue_declare("letterbox.v1.webhooks".into(), passive, Default::default())
            .await
            .is_ok()
    })
    .await;
}

/// A binding is gone, nothing else: messages go the other way and are processed.
#[tokio::test]
async fn unroutable_messages_are_processed() {
    let world = World::new().await;
    let (gateway, _worker) = (world.gateway().await, world.worker().await);
    let webhook = world.webhook(&gateway).await;
    let channel = world.broker().await.create_channel().await.unwrap();
    let unbind = channel.queue_unbind(
        "letterbox.v1.webhooks".into(),
        "letterbox.v1".into(),
        "webhooks".into(),
        Default::default(),
    );
    unbind.await.unwrap();
    assert!(webhook.send("1").await.is_first());
    world.await_signals(1).await;
}

/// A queue stands there with other arguments: said clearly, not ready, the queue untouched.
#[tokio::test]
async fn a_foreign_queue_is_reported_and_left_alone() {
    let world = World::new().await;
    let channel = world.broker().await.create_channel().await.unwrap();
    let durable = QueueDeclareOptions {
        durable: true,
        ..Default::default()
    };
    channel
        .queue_declare("letterbox.v1.webhooks".into(), durable, Default::default())
        .await
        .unwrap();
    let gateway = world.start("letterbox-gateway", &[]);
    eventually("said in the log", async || {
        gateway.log().contains("PRECONDITION") && gateway.log().contains("letterbox.v1.webhooks")
    })
    .await;
    assert!(!gateway.is_ready().await);
    let passive = QueueDeclareOptions {
        passive: true,
        ..Default::default()
    };
    channel
        .queue_declare("letterbox.v1.webhooks".into(), passive, Default::default())
        .await
        .unwrap();
}

#[tokio::test]
async fn connections_are_named_after_their_process() {
    let world = World::new().await;
    let (_gateway, _worker) = (world.gateway().await, world.worker().await);
    let vhost = world.amqp_url.rsplit('/').next().unwrap().to_owned();
    let url = format!(
        "{}api/vhosts/{vhost}/connections",
        letterbox_tests::Servers::shared().dashboard_url
    );
    let mut text = String::new();
    eventually("the dashboard lists them", async || {
        text = letterbox_tests::http_client()
            .get(&url)
            .send()
            .await
            .unwrap()
            .text()
            .await
            .unwrap();
        text.contains("letterbox-gateway@") && text.matches("letterbox-worker@").count() >= 2
    })
    .await;
}
