//! What operators order about dead letters: to see them, to have them processed after all, to be
//! rid of them.

use lapin::{
    BasicProperties,
    options::{BasicGetOptions, BasicRejectOptions},
};
use letterbox_broker::{
    BrokerTarget, DeadLetters, Message, WebhookDelivery,
    topology::{DEAD_EXCHANGE, EXCHANGE},
};
use letterbox_tests::{Webhook, World, assert_tells, eventually, one_of};
use serde_json::{Value, json};

use crate::dead_letters::{message, to};

const QUEUE: &str = "letterbox.v1.webhooks";
const DEAD_LETTERS: &str = "letterbox.v1.dead-letters";

/// Orders something with the broker's address; what is told, as JSON.
fn order(world: &World, command: &str) -> Value {
    let broker = [("AMQP_URL", world.amqp_url.as_str())];
    world.order_with(&broker, format!("dead-letters {command}"))
}

/// The same, where it is refused: the exit code, and why.
fn refusal(world: &World, command: &str) -> (i32, String) {
    let broker = [("AMQP_URL", world.amqp_url.as_str())];
    let output = world.letterbox_with(&broker, format!("dead-letters {command}"));
    let told = String::from_utf8(output.stderr).unwrap();
    (output.status.code().unwrap(), told)
}

/// Has the broker give up the first message of the queue, as after too many returns: it is
/// rejected, and not by us.
async fn give_up(world: &World) {
    let channel = world.channel().await;
    let (queue, options) = (QUEUE.into(), BasicGetOptions::default());
    let taken = channel.basic_get(queue, options).await.unwrap().unwrap();
    let rejecting = taken.delivery.reject(BasicRejectOptions { requeue: false });
    rejecting.await.unwrap();
    channel.close(200, "done".into()).await.unwrap();
}

/// Two dead letters of one delivery each. Gives the ids of these, which begin with `0190aaaa` and
/// `0190bbbb`, as do their bodies.
async fn two_dead_letters(world: &World, webhook: &Webhook) -> [String; 2] {
    let ids = ["0190aaaa", "0190bbbb"].map(|begin| format!("{begin}-0000-7000-8000-000000000001"));
    for id in &ids {
        let (delivery, body) = to(webhook, &id[..8]);
        let delivery = WebhookDelivery {
            delivery: id.parse().unwrap(),
            ..delivery
        };
        world.publish(message(&[(delivery, body)])).await;
        give_up(world).await;
    }
    world.await_messages(DEAD_LETTERS, 2).await;
    ids
}

/// The broker gives up a message as a whole, without a reason of ours. It is listed and shown all
/// the same, and everything in it is processed when it is redriven; a second time changes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_broker_gave_up_is_redriven_whole() {
    let world = World::new().await;
    let order = |command: &str| order(&world, command);
    assert_eq!(refusal(&world, "redrive").0, 2, "which?");
    let gateway = world.gateway().await;
    let webhook = world.webhook(&gateway).await;
    let entries = [to(&webhook, "0"), to(&webhook, "1"), to(&webhook, "2")];
    let id = entries[1].0.delivery;
    world.publish(message(&entries)).await;
    let other = to(&webhook, "3");
    let other_id = other.0.delivery;
    world.publish(message(&[other])).await;
    assert_eq!(order("list"), json!([]));
    give_up(&world).await;
    world.await_messages(DEAD_LETTERS, 1).await;

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
    let broker = [("AMQP_URL", world.amqp_url.as_str())];
    let (_, status) = world.judge(&broker, "status");
    let dead = one_of(&status["backlog"], "kind", DEAD_LETTERS);
    assert!(dead["oldest_seconds"].is_f64(), "{dead}");

    assert_eq!(order("list --reason expired"), json!([]));
    let [one, none] = [1, 0].map(|one| json!({"redriven": one, "left": 1 - one}));
    world.await_messages(DEAD_LETTERS, 1).await;
    assert_eq!(order("redrive --reason expired"), none);
    world.await_messages(DEAD_LETTERS, 1).await;
    let (code, told) = refusal(&world, &format!("redrive {other_id}"));
    assert_eq!(code, 1, "{told}");
    assert_tells(&told, &["no such dead letter"]);
    world.await_messages(DEAD_LETTERS, 1).await;
    assert_eq!(order(&format!("redrive {id} --rate 5")), one);
    assert_eq!(order("list"), json!([]));
    let _worker = world.worker().await;
    world.await_signals(4).await;
    world.await_messages(QUEUE, 0).await;
}

/// An id means one thing, or nothing is done.
#[tokio::test(flavor = "multi_thread")]
async fn only_what_is_meant_is_redriven() {
    let (world, _gateway, webhook) = World::with_webhook().await;
    let ids = two_dead_letters(&world, &webhook).await;
    for (command, said) in [
        ("redrive 0190", "matches more than one"),
        ("show 0190", &ids[1]),
        ("redrive 0191", "no such dead letter"),
        ("redrive 019", "at least 4 characters"),
        ("redrive ", "at least 4 characters"),
        ("show 019", "at least 4 characters"),
        ("discard 0190 --yes", "matches more than one"),
        ("redrive 0190bbbb --unclaimed", "leave out --unclaimed"),
    ] {
        let (code, told) = refusal(&world, command);
        assert!(code == 1 && told.contains(said), "{command}: {code} {told}");
        world.await_messages(DEAD_LETTERS, 2).await;
    }
    for command in ["redrive --reason=", "redrive --reason=\t", "list --reason="] {
        assert_eq!(refusal(&world, command).0, 2, "{command}");
    }
    let one = json!({"redriven": 1, "left": 1});
    assert_eq!(order(&world, "redrive 0190BBBB"), one);
    world.await_messages(DEAD_LETTERS, 1).await;
    let shown = order(&world, &format!("show {}", ids[0]));
    assert_eq!(shown["entries"][0]["body"], "0190aaaa");
    assert_eq!(shown["message_id"], "1");
}

/// What its queue does not take stays a dead letter.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_takes_no_dead_letters() {
    let (world, _gateway, webhook) = World::with_webhook().await;
    two_dead_letters(&world, &webhook).await;
    let full = r#"{"pattern":"^letterbox.v1.webhooks$","definition":{"max-length":1},
        "apply-to":"queues"}"#;
    world.set_queue_policy(Some(full)).await;
    assert!(webhook.send("\"fills\"").await.is_first());
    eventually("it is full", async || {
        !world.offer(message(&[to(&webhook, "9")])).await
    })
    .await;
    let filled = world.messages(QUEUE).await;
    let (code, told) = refusal(&world, "redrive 0190bbbb");
    assert!(code == 1 && told.contains("takes nothing now"), "{told}");
    world.await_messages(DEAD_LETTERS, 2).await;
    let none = json!({"redriven": 0, "left": 2});
    assert_eq!(order(&world, "redrive --all"), none);
    world.await_messages(DEAD_LETTERS, 2).await;
    assert_eq!(world.messages(QUEUE).await, filled);

    world.set_queue_policy(None).await;
    eventually("it takes some again", async || {
        world.offer(message(&[to(&webhook, "8")])).await
    })
    .await;
    let both = json!({"redriven": 2, "left": 0});
    assert_eq!(order(&world, "redrive --all"), both);
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
    let left = async |expected| world.await_messages(DEAD_LETTERS, expected).await;
    left(3).await;
    let order = |command: &str| order(&world, command);
    assert_eq!(
        order("discard foreign-2 --yes"),
        json!({"discarded": 1, "left": 2})
    );
    left(2).await;
    // What has no id is named by its content.
    let nameless = Message {
        properties: BasicProperties::default(),
        body: "nobody's".into(),
        ..foreign("")
    };
    world.publish_unclaimed(nameless).await;
    left(3).await;
    let listed = order("list");
    let ids = listed.as_array().unwrap().iter();
    let mut ids = ids.map(|letter| letter["message_id"].as_str().unwrap());
    let id = ids.find(|id| id.starts_with("sha256-")).unwrap();
    assert_eq!(id.len(), 23, "{id}");
    let one = order(&format!("show {}", &id[..12]));
    assert_eq!(one["entries"][0]["body"], "nobody's");
    let gone = order(&format!("discard {id} --yes"));
    assert_eq!(gone, json!({"discarded": 1, "left": 2}));
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
    world.await_messages(DEAD_LETTERS, 1).await;
    let order = |command: &str| order(&world, command);
    assert_eq!(order("list")[0]["queue"], unrouted);
    world.await_messages(DEAD_LETTERS, 1).await;
    let all = json!({"redriven": 1, "left": 0});
    assert_eq!(order("redrive --all --rate 10"), all);
    let tried = format!("letterbox_entries_total{{queue=\"{unrouted}\",outcome=\"rejected\"}}");
    eventually("tried again", async || worker.metric(&tried).await == 2.0).await;
    world.await_messages(DEAD_LETTERS, 1).await;
    assert_eq!(order("list")[0]["queue"], unrouted);
}

/// What was left is put back on the way, and seen once more; what came behind is not.
#[tokio::test]
async fn a_look_can_put_back_what_it_holds() {
    let world = World::new().await;
    let channel = world.channel().await;
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
        Some((letter.message_id.clone(), letter))
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
    world.await_messages(DEAD_LETTERS, 3).await;
    channel.close(200, "done".into()).await.unwrap();
}

/// A look that follows another one at once finds what that has held.
#[tokio::test]
async fn a_look_leaves_all_to_the_next() {
    let world = World::new().await;
    for _ in 0..5 {
        let message = Message {
            exchange: DEAD_EXCHANGE,
            routing_key: QUEUE.into(),
            properties: BasicProperties::default(),
            body: "{}".into(),
        };
        assert!(world.offer(message).await);
    }
    world.await_messages(DEAD_LETTERS, 5).await;
    let target: BrokerTarget = world.amqp_url.parse().unwrap();
    for look in 0..20 {
        let mut letters = DeadLetters::open(&target, "test").await.unwrap();
        while letters.next().await.unwrap().is_some() {}
        assert_eq!(letters.held(), 5, "{look}");
        letters.close().await;
    }
}
