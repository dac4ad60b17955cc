//! The confirm of one publish can't be taken for another's: a queue that refuses beside one that
//! accepts, many callers.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use lapin::{
    BasicProperties,
    types::{AMQPValue, FieldTable},
};
use letterbox_broker::{Message, PublishError, publisher, topology::EXCHANGE};
use letterbox_tests::{PrivateBroker, World, eventually};
use tokio_util::sync::CancellationToken;

use crate::broker_sessions::supervised;

const CALLERS: usize = 64;
const EACH: usize = 100;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_caller_gets_the_confirm_of_its_own_message() {
    let world = World::new().await;
    let channel = world.channel().await;
    let mut always_full = FieldTable::default();
    always_full.insert("x-max-length".into(), AMQPValue::LongInt(0));
    let overflow = AMQPValue::LongString("reject-publish".into());
    always_full.insert("x-overflow".into(), overflow);
    for (queue, arguments) in [("full", always_full), ("open", FieldTable::default())] {
        let declaring = channel.queue_declare(queue.into(), Default::default(), arguments);
        declaring.await.unwrap();
    }

    let (publisher, session) = publisher(4, Duration::from_secs(30));
    let stop = CancellationToken::new();
    let (readiness, supervised) = supervised(&world.amqp_url, session, &stop);
    eventually("connected", async || readiness.waiting().is_empty()).await;

    let callers = (0..CALLERS).map(|caller| {
        let publisher = publisher.clone();
        tokio::spawn(async move {
            for n in 0..EACH {
                let (queue, expected) = match (caller + n) % 2 {
                    0 => ("open", Ok(())),
                    _ => ("full", Err(PublishError::Refused)),
                };
                let message = Message {
                    exchange: "",
                    routing_key: queue.into(),
                    properties: BasicProperties::default(),
                    body: "x".into(),
                };
                let told = publisher.publish(message).await;
                assert_eq!(told, expected, "caller {caller}, message {n}");
            }
        })
    });
    for caller in join_all(callers).await {
        caller.unwrap();
    }
    assert_eq!(world.messages("open").await as usize, CALLERS * EACH / 2);
    assert_eq!(world.messages("full").await, 0);
    stop.cancel();
    supervised.await.unwrap();
}

/// One queue does not answer, another one has refused a message on the same channel: what comes
/// after goes through at once, on a new channel.
#[tokio::test(flavor = "multi_thread")]
async fn a_silent_queue_stops_no_other() {
    let broker = PrivateBroker::start("");
    let (publisher, session) = publisher(1, Duration::from_secs(2));
    let stop = CancellationToken::new();
    let (readiness, supervised) = supervised(&broker.url(), session, &stop);
    eventually("connected", async || readiness.waiting().is_empty()).await;
    let to = |key: &str| {
        publisher.publish(Message {
            exchange: EXCHANGE,
            routing_key: key.into(),
            properties: BasicProperties::default(),
            body: "x".into(),
        })
    };
    let opened = Instant::now();
    assert_eq!(to("forms").await, Ok(()));
    // The broker itself holds a channel whose first message to a queue that one does not answer.
    assert_eq!(to("webhooks").await, Ok(()));
    let process = r#"whereis(list_to_atom("%2F_letterbox.v1.webhooks"))"#;
    broker.ctl(&["eval", &format!("sys:suspend({process}).")]);
    let limit = r#"{"max-length": 1, "overflow": "reject-publish"}"#;
    broker.ctl(&["set_policy", "test", "forms", limit]);
    // On a channel that would be replaced.
    eventually("a refusal", async || {
        let (silent, refused) = tokio::join!(to("webhooks"), to("forms"));
        assert_eq!(silent, Err(PublishError::TimedOut));
        refused == Err(PublishError::Refused) && opened.elapsed() > Duration::from_secs(6)
    })
    .await;
    broker.ctl(&["clear_policy", "test"]);
    eventually("there is room", async || {
        let accepted = to("forms").await;
        assert_ne!(accepted, Err(PublishError::TimedOut)); // not held up by the silent one
        accepted == Ok(())
    })
    .await;
    broker.ctl(&["eval", &format!("sys:resume({process}).")]);
    eventually("it answers", async || to("webhooks").await == Ok(())).await;
    stop.cancel();
    supervised.await.unwrap();
}
