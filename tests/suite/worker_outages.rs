//! What a worker does while something is wrong that will not pass by itself: one entry, one batch,
//! one question does not stop the others.

use letterbox_broker::{
    BatchBody, Message,
    topology::{DEAD_EXCHANGE, DEAD_LETTERS_QUEUE},
};
use letterbox_common::webhook::WebhookAddress;
use letterbox_database::Role;
use letterbox_tests::{
    EXPIRE, Peer, PrivateBroker, Reply, Scene, World, delivery_to, eventually, post,
};
use serde_json::json;

/// A message with so many deliveries of a webhook, each of a body of its own.
fn deliveries(address: WebhookAddress, number: usize) -> Message {
    let entries = (0..number).map(|_| {
        let body = format!("\"{}\"", uuid::Uuid::new_v4());
        (delivery_to(address), body.into())
    });
    let entries: Vec<_> = entries.collect();
    BatchBody::encode(&entries).into_message("webhooks".into(), "test".into(), "test")
}

/// The broker takes no messages for lack of memory, and a message is there that can't be processed:
/// the others are, so that there is room again.
#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_that_nobody_takes_holds_up_nothing() {
    let broker = PrivateBroker::start("");
    let world = World::new().await.with_broker(broker.url()).await;
    let gateway = world.gateway().await;
    let webhook = world.webhook(&gateway).await;
    let poison = Message {
        body: "neither a line nor a body".into(),
        ..deliveries(webhook.address, 1)
    };
    world.publish_unclaimed(poison.clone()).await;
    for _ in 0..50 {
        world.publish(deliveries(webhook.address, 1)).await;
    }
    let form = Message {
        routing_key: "forms".into(),
        ..poison
    };
    world.publish_unclaimed(form).await;
    broker.ctl(&["set_vm_memory_high_watermark", "0.000001"]);
    let few = [("LETTERBOX_PREFETCH", "8")];
    let worker = world.start("letterbox-worker", &few);
    world.await_signals(50).await;
    assert_eq!(world.consumers("letterbox.v1.webhooks").await, 1);
    assert!(!worker.log().contains("broker connection ended"));
    broker.ctl(&["set_vm_memory_high_watermark", "0.6"]);
    // Or more: what the broker did not take in time was published again.
    eventually("dead letters", async || {
        world.messages(DEAD_LETTERS_QUEUE).await >= 2
    })
    .await;
}

/// Each new signal takes so many seconds.
async fn slow_signals(world: &World, seconds: &str) {
    let slow = format!(
        "CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS
            'BEGIN PERFORM pg_sleep({seconds}); RETURN NEW; END';
        CREATE TRIGGER slow BEFORE INSERT ON signals FOR EACH ROW EXECUTE FUNCTION wait();"
    );
    world.change(&slow).await;
}

/// A worker that always has something to do tries its held dead letters again all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_that_is_held_is_tried_again_under_load() {
    let (world, _gateway, webhook) = World::with_webhook().await;
    let full = r#"{"pattern":"dead-letters$","definition":{"max-length":1,
        "overflow":"reject-publish"},"apply-to":"queues"}"#;
    world.set_queue_policy(Some(full)).await;
    let poison = || Message {
        body: "neither a line nor a body".into(),
        ..deliveries(webhook.address, 1)
    };
    let letter = || Message {
        exchange: DEAD_EXCHANGE,
        ..poison()
    };
    eventually("a full queue", async || !world.offer(letter()).await).await;
    let full = world.messages(DEAD_LETTERS_QUEUE).await;
    world.publish_unclaimed(poison()).await;
    for _ in 0..40 {
        world.publish(deliveries(webhook.address, 5)).await;
    }
    slow_signals(&world, "0.05").await;
    let _worker = world.start("letterbox-worker", &[("LETTERBOX_PREFETCH", "4")]);
    eventually("signals", async || world.signals().await > 0).await;
    assert_eq!(world.messages(DEAD_LETTERS_QUEUE).await, full);
    world.set_queue_policy(None).await;
    eventually("a dead letter", async || {
        world.messages(DEAD_LETTERS_QUEUE).await > full
    })
    .await;
    assert!(world.signals().await < 200, "tried again only when idle");
    world.await_signals(200).await;
}

/// What is too much for one statement is done in halves.
#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_takes_too_long_is_done_in_parts() {
    let (world, _gateway, webhook) = World::with_webhook().await;
    slow_signals(&world, "0.1").await;
    world.publish(deliveries(webhook.address, 60)).await;
    let _worker = world.worker().await;
    world.await_signals(60).await;
}

/// A worker is stopped that can't read yet what a run is to do that it has taken: the run has not
/// failed, and another worker goes on with it.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_a_stopping_worker_could_not_read_goes_on() {
    let peer = Peer::start(|_, before| match before {
        0 => Reply::Silence,
        _ => Reply::Status(200),
    })
    .await;
    let (world, gateway, mut first) = World::with_both().await;
    let form = world.sending_form(&gateway, &peer);
    form.await.assert_accepts("k").await;
    peer.await_received(1).await;
    first.kill().await;
    let locking = world.session(Role::Login).await;
    let definitions = "BEGIN; LOCK TABLE releases IN ACCESS EXCLUSIVE MODE";
    locking.batch_execute(definitions).await.unwrap();
    let mut stopping = world.worker().await;
    world.change(EXPIRE).await;
    eventually("it reads", async || world.locks_out().await).await;
    stopping.terminate();
    assert!(stopping.ended().await.success());
    locking.batch_execute("COMMIT").await.unwrap();
    let _last = world.worker().await;
    world.change(EXPIRE).await;
    world.await_state("succeeded", 1).await;
    assert_eq!(peer.received().len(), 2);
}

/// The policy allows what a person was asked about, an attempt fails, and the policy asks again:
/// the question is open again.
#[tokio::test(flavor = "multi_thread")]
async fn a_question_that_was_withdrawn_can_be_asked_again() {
    let (peer, gate) = Peer::gated_at_first(503).await;
    let scene = Scene::new(&peer, json!([post("send")])).await;
    let first = scene.ask().await;
    scene.decide("allow").await;
    scene.world.change(EXPIRE).await;
    peer.await_received(1).await;
    scene.decide("approve").await;
    gate.add_permits(1);
    scene.world.await_state("waiting_approval", 1).await;
    let second = scene.the_approval().await;
    assert_ne!(second.approval_id, first.approval_id, "a new question");
    scene.approve(second.approval_id).await;
    scene.world.await_state("succeeded", 1).await;
    assert_eq!(peer.received().len(), 2);
}
