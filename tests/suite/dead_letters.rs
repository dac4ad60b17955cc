//! What can't be processed: set apart from its companions, kept with its reason, replayable.

use bytes::Bytes;
use lapin::{
    BasicProperties,
    options::{
        BasicGetOptions, BasicPublishOptions, BasicRejectOptions, QueueDeclareOptions,
        QueueDeleteOptions,
    },
    types::AMQPValue,
};
use letterbox_broker::{
    BatchBody, BrokerTarget, DeadLetters, Message, Receipt, WebhookDelivery,
    topology::{DEAD_EXCHANGE, EXCHANGE},
};
use letterbox_common::ids::{DeliveryId, WebhookId, WorkspaceId};
use letterbox_tests::{Servers, Webhook, World, eventually, http_client};
use serde_json::{Value, json};

const QUEUE: &str = "letterbox.v1.webhooks";
const DEAD_LETTERS: &str = "letterbox.v1.dead-letters";

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

fn receipt() -> Receipt {
    Receipt {
        received_at: jiff::Timestamp::now(),
        traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into(),
        request_id: None,
    }
}

fn to(webhook: &Webhook, body: &str) -> (WebhookDelivery, Bytes) {
    let delivery = WebhookDelivery {
        delivery: DeliveryId::generate(),
        workspace: webhook.address.workspace,
        webhook: webhook.address.webhook,
        memory: None,
        receipt: receipt(),
    };
    (delivery, Bytes::from(body.to_owned()))
}

fn message(entries: &[(WebhookDelivery, Bytes)]) -> Message {
    BatchBody::encode(entries).into_message("webhooks".into(), "1".into(), "test")
}

/// Among good entries one points at a workspace that is not there, and one has a broken line. And
/// there is a message that is none of ours.
#[tokio::test]
async fn bad_entries_are_isolated_and_kept_with_their_reason() {
    let world = World::new().await;
    let gateway = world.gateway().await;
    let webhook = world.webhook(&gateway).await;
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
    eventually("all are dead letters", async || {
        world.messages(DEAD_LETTERS).await == 3
    })
    .await;
    eventually("nothing is left", async || world.messages(QUEUE).await == 0).await;
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
    let world = World::new().await;
    let (gateway, _worker) = (world.gateway().await, world.worker().await);
    let webhook = world.webhook(&gateway).await;
    // A constraint stands in for a bug that is mended later.
    let bug = "ALTER TABLE signals ADD CONSTRAINT bug CHECK (body <> '1')";
    world.database.batch_execute(bug).await.unwrap();
    let entries = [to(&webhook, "0"), to(&webhook, "1"), to(&webhook, "2")];
    world.publish(message(&entries)).await;
    eventually("dead", async || world.messages(DEAD_LETTERS).await == 1).await;
    world.await_signals(2).await;
    let mended = "ALTER TABLE signals DROP CONSTRAINT bug";
    world.database.batch_execute(mended).await.unwrap();

    let message = world.take_message(DEAD_LETTERS).await.unwrap();
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
    world.await_signals(3).await;
    eventually("both are consumed", async || {
        world.messages(QUEUE).await == 0
    })
    .await;
    world.await_signals(3).await;
}

/// An entry kills its worker each time: it is separated from its companions, which are processed,
/// and given up alone, with a reason.
#[tokio::test]
async fn an_entry_that_kills_workers_ends_alone() {
    let world = World::new().await;
    let gateway = world.gateway().await;
    let webhook = world.webhook(&gateway).await;
    // Where a worker would die, it waits, and is killed.
    let deadly = "
        CREATE FUNCTION wait_here() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN PERFORM pg_advisory_xact_lock(7); RETURN NEW; END $$;
        CREATE TRIGGER deadly BEFORE INSERT ON signals FOR EACH ROW
            WHEN (NEW.body = '\"deadly\"') EXECUTE FUNCTION wait_here();
        SELECT pg_advisory_lock(7)";
    world.database.batch_execute(deadly).await.unwrap();
    let waits = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event = 'advisory'";
    let bury = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event = 'advisory'";
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
            world.database.batch_execute(bury).await.unwrap();
        }
    }
    assert!((20..30).contains(&deaths), "{deaths}");
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
    world.database.batch_execute(mended).await.unwrap();
    let _worker = world.worker().await;
    let replayed = Message {
        exchange: EXCHANGE,
        routing_key: "webhooks".into(),
        properties: dead.properties.clone(),
        body: body.into(),
    };
    world.publish(replayed).await;
    world.await_signals(5).await;
    eventually("nothing is left", async || world.messages(QUEUE).await == 0).await;
}

/// The broker gives up a message as a whole, without a reason of ours. It is listed and shown all
/// the same, and everything in it is processed when it is redriven; a second time changes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_broker_gave_up_is_redriven_whole() {
    let world = World::new().await;
    let broker = [("AMQP_URL", world.amqp_url.as_str())];
    let order = |command: &str| world.order_with(&broker, format!("dead-letters {command}"));
    let refusal = |command: &str| {
        let output = world.letterbox_with(&broker, command);
        let told = String::from_utf8(output.stderr).unwrap();
        (output.status.code().unwrap(), told)
    };
    assert_eq!(refusal("dead-letters redrive").0, 2, "which?");
    let gateway = world.gateway().await;
    let webhook = world.webhook(&gateway).await;
    let entries = [to(&webhook, "0"), to(&webhook, "1"), to(&webhook, "2")];
    let id = entries[1].0.delivery;
    world.publish(message(&entries)).await;
    let other = to(&webhook, "3");
    let other_id = other.0.delivery;
    world.publish(message(&[other])).await;
    assert_eq!(order("list"), json!([]));
    // As after too many returns: it is rejected, and not by us.
    let connection = world.broker().await;
    let channel = connection.create_channel().await.unwrap();
    let (queue, options) = (QUEUE.into(), BasicGetOptions::default());
    let taken = channel.basic_get(queue, options).await.unwrap().unwrap();
    let rejecting = taken.delivery.reject(BasicRejectOptions { requeue: false });
    rejecting.await.unwrap();
    eventually("dead", async || world.messages(DEAD_LETTERS).await == 1).await;

    let listed = order("list");
    let [letter] = listed.as_array().unwrap().as_slice() else {
        panic!("{listed}");
    };
    assert_eq!(letter["reason"], "given up by the broker: rejected");
    assert_eq!(letter["queue"], QUEUE);
    assert_eq!(letter["count"], 3);
    let since: jiff::Timestamp = letter["dead_since"].as_str().unwrap().parse().unwrap();
    assert!(jiff::Timestamp::now().duration_since(since).as_secs() < 60);
    let shown = order(&format!("show {id}"));
    assert_eq!(shown["entries"][1]["id"], json!(id));
    assert_eq!(shown["entries"][1]["body"], "1");
    let (code, told) = world.refusal(format!("dead-letters show {other_id}"));
    assert!(code == 2 && told.contains("AMQP_URL"), "{code} {told}");
    let status = world.letterbox_with(&broker, "status --json");
    let status: Value = serde_json::from_slice(&status.stdout).unwrap();
    let mut kinds = status["backlog"].as_array().unwrap().iter();
    let dead = kinds.find(|kind| kind["kind"] == DEAD_LETTERS).unwrap();
    assert!(dead["oldest_seconds"].is_f64(), "{dead}");

    assert_eq!(order("list --reason expired"), json!([]));
    let (one, none) = (
        json!({"redriven": 1, "left": 0}),
        json!({"redriven": 0, "left": 1}),
    );
    eventually("it is back", async || {
        world.messages(DEAD_LETTERS).await == 1
    })
    .await;
    assert_eq!(order("redrive --reason expired"), none);
    eventually("it is back", async || {
        world.messages(DEAD_LETTERS).await == 1
    })
    .await;
    let (code, told) = refusal(&format!("dead-letters redrive {other_id}"));
    assert!(
        code == 1 && told.contains("no such dead letter"),
        "{code} {told}"
    );
    eventually("it is back", async || {
        world.messages(DEAD_LETTERS).await == 1
    })
    .await;
    assert_eq!(order(&format!("redrive {id} --rate 5")), one);
    assert_eq!(order("list"), json!([]));
    let _worker = world.worker().await;
    world.await_signals(4).await;
    eventually("nothing is left", async || world.messages(QUEUE).await == 0).await;
}

/// An id means one thing, or nothing is done; what its queue does not take stays.
#[tokio::test(flavor = "multi_thread")]
async fn only_what_is_meant_is_redriven() {
    let world = World::new().await;
    let broker = [("AMQP_URL", world.amqp_url.as_str())];
    let refusal = |command: &str| {
        let output = world.letterbox_with(&broker, format!("dead-letters {command}"));
        let told = String::from_utf8(output.stderr).unwrap();
        (output.status.code().unwrap(), told)
    };
    let gateway = world.gateway().await;
    let webhook = world.webhook(&gateway).await;
    let ids = ["0190aaaa", "0190bbbb"].map(|begin| format!("{begin}-0000-7000-8000-000000000001"));
    for id in &ids {
        let (delivery, body) = to(&webhook, id.split('-').next().unwrap());
        let delivery = WebhookDelivery {
            delivery: id.parse().unwrap(),
            ..delivery
        };
        world.publish(message(&[(delivery, body)])).await;
    }
    let connection = world.broker().await;
    let channel = connection.create_channel().await.unwrap();
    for _ in &ids {
        let options = BasicGetOptions::default();
        let getting = channel.basic_get(QUEUE.into(), options);
        let taken = getting.await.unwrap().unwrap();
        let rejecting = taken.delivery.reject(BasicRejectOptions { requeue: false });
        rejecting.await.unwrap();
    }
    let both_are_there = async || {
        eventually("both are there", async || {
            world.messages(DEAD_LETTERS).await == 2
        })
        .await;
    };
    both_are_there().await;

    for (command, said) in [
        ("redrive 0190", "can be"),
        ("show 0190", &ids[1]),
        ("redrive 0191", "no such dead letter"),
        ("redrive 019", "four characters"),
        ("redrive ", "four characters"),
        ("show 019", "four characters"),
        ("discard 0190", "can be"),
    ] {
        let (code, told) = refusal(command);
        assert!(code == 1 && told.contains(said), "{command}: {code} {told}");
        both_are_there().await;
    }
    for command in ["redrive --reason=", "redrive --reason=\t", "list --reason="] {
        assert_eq!(refusal(command).0, 2, "{command}");
    }

    // Its queue takes no more.
    let full = r#"{"pattern":"^letterbox.v1.webhooks$","definition":{"max-length":1},
        "apply-to":"queues"}"#;
    world.set_queue_policy(Some(full)).await;
    assert!(webhook.send("\"fills\"").await.is_first());
    eventually("it is full", async || {
        !world.offer(message(&[to(&webhook, "9")])).await
    })
    .await;
    let filled = world.messages(QUEUE).await;
    let (code, told) = refusal("redrive 0190bbbb");
    assert!(code == 1 && told.contains("takes nothing now"), "{told}");
    both_are_there().await;
    let order = |command: &str| world.order_with(&broker, format!("dead-letters {command}"));
    assert_eq!(order("redrive --all"), json!({"redriven": 0, "left": 2}));
    both_are_there().await;
    assert_eq!(world.messages(QUEUE).await, filled);
    world.set_queue_policy(None).await;
    eventually("it takes some again", async || {
        world.offer(message(&[to(&webhook, "8")])).await
    })
    .await;
    let one = json!({"redriven": 1, "left": 1});
    assert_eq!(order("redrive 0190bbbb"), one);
    eventually("one is left", async || {
        world.messages(DEAD_LETTERS).await == 1
    })
    .await;
    assert_eq!(order("list")[0]["message_id"], json!("1"));
    assert_eq!(
        order(&format!("show {}", ids[0]))["entries"][0]["body"],
        "0190aaaa"
    );
}

/// What is none of ours comes back for ever: it can be thrown away, and nothing else with it.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_none_of_ours_is_thrown_away() {
    let world = World::new().await;
    let _worker = world.worker().await;
    let foreign = |id: &str| Message {
        exchange: EXCHANGE,
        routing_key: "webhooks".into(),
        properties: BasicProperties::default().with_message_id(id.into()),
        body: "{}".into(),
    };
    for id in ["foreign-1", "foreign-2", "foreign-3"] {
        world.publish_unclaimed(foreign(id)).await;
    }
    let left = async |expected: u32| {
        eventually("dead letters", async || {
            world.messages(DEAD_LETTERS).await == expected
        })
        .await;
    };
    left(3).await;
    let broker = [("AMQP_URL", world.amqp_url.as_str())];
    let order = |command: &str| world.order_with(&broker, format!("dead-letters {command}"));
    assert_eq!(
        order("discard foreign-2 --yes"),
        json!({"discarded": 1, "left": 2})
    );
    left(2).await;
    let mut dead: Vec<_> = order("list").as_array().unwrap().clone();
    dead.sort_by_key(|letter| letter["message_id"].to_string());
    assert_eq!(dead[0]["message_id"], "foreign-1");
    assert_eq!(dead[1]["message_id"], "foreign-3");
    left(2).await;
    let none = json!({"discarded": 0, "left": 2});
    assert_eq!(order("discard --reason key --yes"), none);
    left(2).await;
    let all = json!({"discarded": 2, "left": 0});
    assert_eq!(order("discard --reason unknown --yes"), all);
    assert_eq!(order("list"), json!([]));
    let audit = world.order("audit list --limit 1");
    assert_eq!(audit[0]["command"], "dead-letters discard");
}

/// Where a queue was not there, the dead letter leads back to where its message went instead.
#[tokio::test(flavor = "multi_thread")]
async fn what_went_nowhere_is_redriven_there() {
    let world = World::new().await;
    let worker = world.worker().await;
    let (mut batch, unrouted) = (message(&[]), "letterbox.v1.unrouted");
    batch.body = "no line\n".into();
    batch.routing_key = "nowhere".into();
    world.publish_unclaimed(batch).await;
    let is_dead = async || {
        eventually("dead", async || world.messages(DEAD_LETTERS).await == 1).await;
    };
    is_dead().await;
    let broker = [("AMQP_URL", world.amqp_url.as_str())];
    let order = |command: &str| world.order_with(&broker, format!("dead-letters {command}"));
    assert_eq!(order("list")[0]["queue"], unrouted);
    is_dead().await;
    let all = json!({"redriven": 1, "left": 0});
    assert_eq!(order("redrive --all --rate 10"), all);
    let tried = format!("letterbox_entries_total{{queue=\"{unrouted}\",outcome=\"rejected\"}}");
    eventually("tried again", async || worker.metric(&tried).await == 2.0).await;
    is_dead().await;
    assert_eq!(order("list")[0]["queue"], unrouted);
}

/// What was left is put back on the way, and seen once more; what came behind is not.
#[tokio::test]
async fn a_look_can_put_back_what_it_holds() {
    let world = World::new().await;
    let connection = world.broker().await;
    let channel = connection.create_channel().await.unwrap();
    let bury = async |id: &str| {
        let message = Message {
            exchange: DEAD_EXCHANGE,
            routing_key: QUEUE.into(),
            properties: BasicProperties::default().with_message_id(id.into()),
            body: "{}".into(),
        };
        assert!(world.offer(message).await);
    };
    for id in ["a", "b", "c"] {
        bury(id).await;
    }
    let target: BrokerTarget = world.amqp_url.parse().unwrap();
    let mut letters = DeadLetters::open(&target, "test").await.unwrap();
    let next = async |letters: &mut DeadLetters| {
        let letter = letters.next().await.unwrap()?;
        letter.message_id.clone().map(|id| (id, letter))
    };
    let (first, _held) = next(&mut letters).await.unwrap();
    let (second, letter) = next(&mut letters).await.unwrap();
    assert_eq!((first.as_str(), second.as_str()), ("a", "b"));
    assert!(letters.held_for() > std::time::Duration::ZERO);
    assert!(letters.replay(letter).await.unwrap());
    bury("d").await;
    assert_eq!(letters.held(), 1);
    letters.put_back().await.unwrap();
    assert_eq!((letters.held(), letters.held_for().as_secs()), (0, 0));
    let mut seen = Vec::new();
    while let Some((id, _)) = next(&mut letters).await {
        seen.push(id);
    }
    assert_eq!(seen, ["a", "c"]);
    assert_eq!(letters.held(), 2);
    letters.close().await;
    eventually("all others are back", async || {
        world.messages(DEAD_LETTERS).await == 3
    })
    .await;
    channel.close(200, "done".into()).await.unwrap();
}

/// Nobody consumes the queue for dead letters: it is declared again all the same when it is gone.
#[tokio::test]
async fn the_queue_of_dead_letters_comes_back() {
    let world = World::new().await;
    let gateway = world.gateway().await;
    let webhook = world.webhook(&gateway).await;
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
