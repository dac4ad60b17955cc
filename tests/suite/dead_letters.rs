//! What can't be processed: set apart from its companions, and kept with its reason.

use bytes::Bytes;
use lapin::{
    BasicProperties,
    options::{BasicPublishOptions, QueueDeclareOptions, QueueDeleteOptions},
    types::AMQPValue,
};
use letterbox_broker::{BatchBody, Message, WebhookDelivery, topology::EXCHANGE};
use letterbox_common::ids::{WebhookId, WorkspaceId};
use letterbox_tests::{Proxy, Servers, Webhook, World, delivery_to, eventually, http_client};
use serde_json::Value;
use tokio_postgres::types::ToSql;

const QUEUE: &str = "letterbox.v1.webhooks";
const DEAD_LETTERS: &str = "letterbox.v1.dead-letters";

fn reason(message: &lapin::message::Delivery) -> String {
    let headers = message.properties.headers().as_ref().unwrap();
    match headers.inner().get("dead_letter_reason") {
        Some(AMQPValue::LongString(reason)) => reason.to_string(),
        other => panic!("no reason: {other:?}"),
    }
}

pub(super) fn to(webhook: &Webhook, body: &str) -> (WebhookDelivery, Bytes) {
    (delivery_to(webhook.address), body.to_owned().into())
}

pub(super) fn message(entries: &[(WebhookDelivery, Bytes)]) -> Message {
    BatchBody::encode(entries).into_message("webhooks".into(), "1".into(), "test")
}

/// Among good entries one points at a workspace that is not there, and one has a broken line. And
/// there is a message that is none of ours.
#[tokio::test]
async fn bad_entries_are_isolated_and_kept_with_their_reason() {
    let (world, _gateway, webhook) = World::with_webhook().await;
    let mut entries: Vec<_> = (0..40).map(|n| to(&webhook, &n.to_string())).collect();
    let nowhere = WebhookDelivery {
        workspace: WorkspaceId::generate(),
        webhook: WebhookId::generate(),
        memory: None,
        ..entries[0].0.clone()
    };
    entries[20] = (nowhere, "\"nowhere\"".into());
    let mut batch = message(&entries);
    let id = entries[30].0.delivery.to_string();
    let text = String::from_utf8(batch.body.to_vec()).unwrap();
    batch.body = text.replace(&id, "no-id").into();
    world.publish(batch).await;
    let bare = Message {
        exchange: EXCHANGE,
        routing_key: "webhooks".into(),
        properties: BasicProperties::default(),
        body: "\"bare\"".into(),
    };
    world.publish(bare).await;
    assert!(webhook.send("\"after\"").await.is_first());

    let worker = world.worker().await;
    world.await_signals(39).await;
    world.await_messages(DEAD_LETTERS, 3).await;
    world.await_messages(QUEUE, 0).await;
    assert!(worker.is_ready().await);

    let mut dead = Vec::new();
    while let Some(message) = world.take_message(DEAD_LETTERS).await {
        assert_eq!(message.routing_key.as_str(), QUEUE);
        let body = String::from_utf8(message.data.clone()).unwrap();
        dead.push((body.lines().last().unwrap().to_owned(), reason(&message)));
        assert!(body.lines().count() <= 2, "one entry alone: {body}");
    }
    dead.sort();
    assert_eq!(dead[0], ("\"bare\"".into(), "unknown message type".into()));
    assert_eq!(dead[1].0, "\"nowhere\"");
    assert!(dead[1].1.contains("foreign key"), "{}", dead[1].1);
    assert_eq!(dead[2].0, "30");
    assert!(dead[2].1.contains("line is malformed"), "{}", dead[2].1);
}

/// What was missing is made good, the dead letter moved back twice: processed once.
#[tokio::test]
async fn a_replayed_dead_letter_is_processed_once() {
    let (world, _gateway, _worker, webhook) = World::with_recorded_webhook().await;
    // A constraint stands in for a bug that is mended later.
    let bug = "ALTER TABLE signals ADD CONSTRAINT bug CHECK (body <> '1')";
    world.change(bug).await;
    let entries = [to(&webhook, "0"), to(&webhook, "1"), to(&webhook, "2")];
    world.publish(message(&entries)).await;
    world.await_messages(DEAD_LETTERS, 1).await;
    world.await_signals(2).await;
    let mended = "ALTER TABLE signals DROP CONSTRAINT bug";
    world.change(mended).await;

    let message = world.take_message(DEAD_LETTERS).await.unwrap();
    let channel = world.channel().await;
    for _ in 0..2 {
        let queue = message.routing_key.clone();
        let (options, properties) = (BasicPublishOptions::default(), message.properties.clone());
        channel
            .basic_publish("".into(), queue, options, &message.data, properties)
            .await
            .unwrap();
    }
    world.await_signals(3).await;
    world.await_messages(QUEUE, 0).await;
    world.await_signals(3).await;
}

/// An entry kills its worker each time: it is separated from its companions, which are processed,
/// and given up alone, with a reason.
#[tokio::test]
async fn an_entry_that_kills_workers_ends_alone() {
    let (world, _gateway, webhook) = World::with_webhook().await;
    // Where a worker would die, it waits, and is killed. It waits without a lock's timeout: behind
    // that it would have lived, which is counted from the beginning.
    let deadly = "
        CREATE FUNCTION wait_here() RETURNS trigger LANGUAGE plpgsql SET lock_timeout = 0 AS $$
        BEGIN PERFORM pg_advisory_xact_lock(7); RETURN NEW; END $$;
        CREATE TRIGGER deadly BEFORE INSERT ON signals FOR EACH ROW
            WHEN (NEW.body = '\"deadly\"') EXECUTE FUNCTION wait_here();
        SELECT pg_advisory_lock(7)";
    world.change(deadly).await;
    let waits = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event = 'advisory'";
    let bury = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event = 'advisory'";
    let silent = "UPDATE workers SET seen_at = now() - interval '1 minute';
        UPDATE spilled_messages SET lease_until = now()";
    let bodies = ["0", "1", "\"deadly\"", "2", "3"];
    world
        .publish(message(&bodies.map(|body| to(&webhook, body))))
        .await;

    let mut deaths = 0;
    while world.messages(DEAD_LETTERS).await == 0 {
        let mut worker = world.worker().await;
        let mut is_over = false;
        eventually("it waits, or is given up", async || {
            is_over = world.messages(DEAD_LETTERS).await > 0;
            is_over || world.count(waits).await > 0
        })
        .await;
        if !is_over {
            deaths += 1;
            worker.kill().await;
            world.change(bury).await;
            // Otherwise it is known to be dead only when it has been silent for a while, and what
            // it had is left to it.
            world.change(silent).await;
        }
    }
    assert!((23..33).contains(&deaths), "{deaths}");
    let dead = world.take_message(DEAD_LETTERS).await.unwrap();
    assert!(
        reason(&dead).contains("its workers died"),
        "{}",
        reason(&dead)
    );
    let body = String::from_utf8(dead.data).unwrap();
    assert!(
        body.ends_with("\n\"deadly\"\n") && body.lines().count() == 2,
        "{body}"
    );
    world.await_signals(4).await;
    // What killed workers is mended, and the dead letter is moved back.
    let mended = "SELECT pg_advisory_unlock(7); DROP TRIGGER deadly ON signals";
    world.change(mended).await;
    let _worker = world.worker().await;
    let replayed = Message {
        exchange: EXCHANGE,
        routing_key: "webhooks".into(),
        properties: dead.properties.clone(),
        body: body.into(),
    };
    world.publish(replayed).await;
    world.await_signals(5).await;
    world.await_messages(QUEUE, 0).await;
}

/// What was spilled and can't be stored becomes a dead letter, too, as soon as the broker takes
/// one; everything else is stored before.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_spilled_and_cannot_be_stored_is_a_dead_letter() {
    let world = World::new().await;
    let broker = Proxy::before(&world.amqp_url).await;
    let away = ("AMQP_URL", broker.url.as_str());
    let gateway = world.gateway_with(&[away]).await;
    broker.cut();
    eventually("noticed", async || !gateway.is_whole().await).await;
    let webhook = world.webhook(&gateway).await;
    let dead = "INSERT INTO workers (worker_id, name, places, seen_at)
        SELECT gen_random_uuid(), 'dead', 1, now() - interval '1 hour' FROM generate_series(1, 3)";
    world.database.execute(dead, &[]).await.unwrap();
    let deadly = message(&[to(&webhook, "\"deadly\"")]);
    world.claim(&deadly).await;
    let unclaimed = message(&[to(&webhook, "\"unclaimed\"")]).body;
    let ours = Some("webhook.deliveries");
    for (kind, body, takes) in [
        (ours, &b"unreadable"[..], 0_i64),
        (ours, &unclaimed, 0),
        (ours, &deadly.body, 23),
        (None, &unclaimed, 0),
    ] {
        let spill = "INSERT INTO spilled_messages
                (workspace_id, batch_id, routing_key, message_type, body, takes)
            VALUES ($1, 7, 'webhooks', $4, $2, $3)";
        let workspace = webhook.address.workspace;
        let spilled: &[&(dyn ToSql + Sync)] = &[&workspace, &body, &takes, &kind];
        world.database.execute(spill, spilled).await.unwrap();
    }
    for n in 0..3 {
        assert!(webhook.send(n.to_string()).await.is_first());
    }
    let _worker = world.start("letterbox-worker", &[away]);
    world.await_signals(3).await;
    let spilled = "SELECT count(*) FROM spilled_messages";
    assert_eq!(world.count(spilled).await, 4);
    broker.pass();
    eventually("nothing waits", async || world.count(spilled).await == 0).await;
    world.await_messages(DEAD_LETTERS, 4).await;
    let mut reasons = Vec::new();
    while let Some(message) = world.take_message(DEAD_LETTERS).await {
        assert_eq!(message.routing_key.as_str(), QUEUE);
        reasons.push(reason(&message));
    }
    reasons.sort();
    assert!(reasons[0].contains("its workers died"), "{reasons:?}");
    assert!(
        reasons[1].starts_with("malformed entry list"),
        "{reasons:?}"
    );
    assert!(reasons[2].starts_with("unclaimed"), "{reasons:?}");
    assert!(
        reasons[3].starts_with("unknown message type"),
        "{reasons:?}"
    );
    assert_eq!(world.signals().await, 3);
}

/// Nobody consumes the queue for dead letters: it is declared again all the same when it is gone.
#[tokio::test]
async fn the_queue_of_dead_letters_comes_back() {
    let (world, _gateway, webhook) = World::with_webhook().await;
    let _worker = world.worker().await;
    let connection = world.broker().await;
    let channel = connection.create_channel().await.unwrap();
    let deleting = channel.queue_delete(DEAD_LETTERS.into(), QueueDeleteOptions::default());
    deleting.await.unwrap();
    let (delivery, body) = to(&webhook, "1");
    let nowhere = WebhookDelivery {
        workspace: WorkspaceId::generate(),
        ..delivery
    };
    world.publish(message(&[(nowhere, body)])).await;
    let found = || async {
        let channel = connection.create_channel().await.unwrap();
        let passive = QueueDeclareOptions {
            passive: true,
            ..Default::default()
        };
        let finding = channel.queue_declare(DEAD_LETTERS.into(), passive, Default::default());
        finding.await.is_ok_and(|queue| queue.message_count() == 1)
    };
    eventually("it is there, with the dead letter", async || found().await).await;
}

/// What can be imported is what the programs declare.
#[tokio::test]
async fn the_definitions_are_those_of_the_code() {
    let world = World::new().await;
    let _worker = world.worker().await;
    let vhost = world.amqp_url.rsplit('/').next().unwrap();
    let url = format!("{}api/definitions/{vhost}", Servers::shared().dashboard_url);
    let answer = http_client().get(url).send().await.unwrap();
    let declared = answer.text().await.unwrap();
    let declared: Value = serde_json::from_str(&declared).unwrap();
    let file: Value =
        serde_json::from_str(include_str!("../../deploy/rabbitmq/definitions.json")).unwrap();
    for kind in ["exchanges", "queues", "bindings"] {
        let sorted = |of: &Value| {
            let mut things: Vec<Value> = of[kind].as_array().unwrap().clone();
            for thing in &mut things {
                let thing = thing.as_object_mut().unwrap();
                thing.remove("vhost");
                if kind == "queues" {
                    // Newer brokers tell it beside the arguments, too.
                    thing.remove("type");
                }
            }
            things.sort_by_key(Value::to_string);
            things
        };
        assert_eq!(sorted(&declared), sorted(&file), "{kind}");
        assert!(sorted(&file).len() > 2, "{kind}");
    }
}

/// The database answers and does not store, and the connection breaks again and again meanwhile:
/// nothing is wrong with the entry, and it is stored in the end.
#[tokio::test]
async fn what_was_returned_often_and_kills_nobody_is_stored() {
    let (world, _gateway, webhook) = World::with_webhook().await;
    let full = "
        CREATE FUNCTION disk_full() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN RAISE EXCEPTION 'no space left' USING ERRCODE = '53100'; END $$;
        CREATE TRIGGER full_disk BEFORE INSERT ON signals FOR EACH ROW
            EXECUTE FUNCTION disk_full()";
    world.change(full).await;
    world.publish(message(&[to(&webhook, "\"healthy\"")])).await;
    // Deadly ones end sooner, but no worker has died.
    world.return_message(QUEUE, 30).await;
    let broker = Proxy::before(&world.amqp_url).await;
    let worker = world.worker_with(&[("AMQP_URL", &broker.url)]).await;
    let tried = async || {
        worker
            .metric(r#"letterbox_entries_total{queue="letterbox.v1.webhooks",outcome="retry"}"#)
            .await
    };
    for _ in 0..4 {
        let before = tried().await;
        eventually("tried", async || tried().await > before).await;
        broker.cut();
        eventually("noticed", async || !worker.is_ready().await).await;
        broker.pass();
    }
    world.change("DROP TRIGGER full_disk ON signals").await;
    world.await_signals(1).await;
    assert_eq!(world.messages(DEAD_LETTERS).await, 0);
}
