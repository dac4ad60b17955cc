//! More queues than one: their number changes under load, in both directions, and nothing is lost
//! or doubled.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicI64, Ordering::SeqCst},
};

use futures_util::future::join_all;
use letterbox_broker::decode;
use letterbox_tests::{Answer, PrivateBroker, Proxy, Webhook, World, assert_tells, eventually};

use crate::status::status;

const WORKSPACES: usize = 12;

/// Sends to every webhook in turn until told to stop; each body is accepted as a first.
fn send(
    webhooks: Vec<Webhook>,
    sent: &Arc<AtomicI64>,
    stop: &Arc<AtomicBool>,
) -> tokio::task::JoinHandle<()> {
    let (sent, stop) = (sent.clone(), stop.clone());
    tokio::spawn(async move {
        for webhook in webhooks.iter().cycle() {
            if stop.load(SeqCst) {
                return;
            }
            let answer = webhook.send(sent.fetch_add(1, SeqCst).to_string()).await;
            assert!(answer.is_first(), "{answer:?}");
        }
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn the_number_of_queues_changes_under_load() {
    let (world, mut gateway) = World::with_gateway().await;
    let mut webhooks = Vec::new();
    for _ in 0..WORKSPACES {
        webhooks.push(world.webhook(&gateway).await);
    }
    let sent = Arc::new(AtomicI64::new(0));
    let mut worker = world.worker().await;
    for queues in ["4", "1", "2"] {
        let stop = Arc::new(AtomicBool::new(false));
        let before = sent.load(SeqCst);
        let sending = send(webhooks.clone(), &sent, &stop);
        // The next gateway uses another number while this one still works.
        let settings = [("LETTERBOX_WORK_QUEUES", queues)];
        let next = world.gateway_with(&settings).await;
        let to_next: Vec<_> = webhooks.iter().map(|webhook| webhook.at(&next)).collect();
        let sending_too = send(to_next.clone(), &sent, &stop);
        eventually("many are sent", async || sent.load(SeqCst) > before + 100).await;
        stop.store(true, SeqCst);
        sending.await.unwrap();
        sending_too.await.unwrap();
        gateway.terminate();
        assert!(gateway.ended().await.success());
        (gateway, webhooks) = (next, to_next);
        world.await_signals(sent.load(SeqCst)).await;
    }
    // A worker that starts later consumes the queues of former gateways, too.
    worker.terminate();
    assert!(worker.ended().await.success());
    let _later = world.worker().await;
    for queue in [
        "webhooks",
        "webhooks.2",
        "webhooks.3",
        "webhooks.4",
        "forms.4",
    ] {
        let queue = format!("letterbox.v1.{queue}");
        eventually(&queue, async || world.consumers(&queue).await == 1).await;
    }
    assert_eq!(world.messages("letterbox.v1.webhooks.4").await, 0);
    assert_eq!(world.signals().await, sent.load(SeqCst));
}

#[tokio::test]
async fn nodes_of_the_broker_are_tried_in_turn() {
    let world = World::new().await;
    let nobody = "amqp://u:p@127.0.0.1:1/v";
    let urls = format!("{nobody},{}", world.amqp_url);
    let gateway = world.gateway_with(&[("AMQP_URL", &urls)]).await;
    let worker = world.worker_with(&[("AMQP_URL", &urls)]).await;
    gateway.await_ready().await;
    worker.await_ready().await;
    let webhook = world.webhook(&gateway).await;
    assert!(webhook.send("1").await.is_first());
    world.await_signals(1).await;
}

/// Much waits while the database is silent, and comes all at once: messages stay of bounded size.
#[tokio::test(flavor = "multi_thread")]
async fn what_has_piled_up_becomes_messages_of_bounded_size() {
    let world = World::new().await;
    let database = Proxy::before(&world.database_url).await;
    let gateway = world.gateway_with(&[("DATABASE_URL", &database.url)]).await;
    let webhook = world.webhook(&gateway).await;
    // Small ones are too many for one message before they are too large; large ones not.
    for padding in ["", &"x".repeat(8 << 10)] {
        // With connections of its own: those of the round before are not counted.
        let webhook = webhook.at(&gateway);
        eventually("few are there", async || {
            gateway.metric("letterbox_connections").await < 10.0
        })
        .await;
        assert!(webhook.send(format!("[\"{padding}\"]")).await.is_first());
        database.stall();
        let bodies = (1..=60).map(|number| format!("[{number}, \"{padding}\"]"));
        let sending = join_all(bodies.map(|body| webhook.send(body)));
        let all_there = async {
            let open = async || gateway.metric("letterbox_connections").await >= 60.0;
            eventually("all are there", open).await;
            database.pass();
        };
        let (answers, ()) = tokio::join!(sending, all_there);
        assert!(answers.iter().all(Answer::is_first), "{answers:?}");
        let mut sizes = Vec::new();
        while let Some(message) = world.take_message("letterbox.v1.webhooks").await {
            let entries = decode(&message.properties, message.data.clone().into());
            sizes.push((entries.len(), message.data.len()));
        }
        let entries = sizes.iter().map(|(entries, _)| entries);
        assert_eq!(entries.clone().sum::<usize>(), 61);
        assert!(
            *entries.max().unwrap() > 4,
            "nothing was batched: {sizes:?}"
        );
        for (entries, bytes) in &sizes {
            assert!(*entries <= 32 && *bytes <= 128 << 10, "{sizes:?}");
        }
    }
}

/// A queue whose process on the broker is down is not consumed; the others are, and it is again as
/// soon as it is back.
#[tokio::test(flavor = "multi_thread")]
async fn a_queue_that_is_down_stops_no_other() {
    let broker = PrivateBroker::start("");
    let world = World::new().await.with_broker(broker.url()).await;
    let gateway = world.gateway().await;
    let webhook = world.webhook(&gateway).await;
    let form = world.form(&gateway).await;
    assert!(webhook.send("1").await.is_first());
    let order = |verb: &str| {
        let queue = "{'%2F_letterbox.v1.webhooks', node()}";
        broker.ctl(&["eval", &format!("ra:{verb}(quorum_queues, {queue}).")])
    };
    assert_eq!(order("stop_server"), "ok");
    let worker = world.start("letterbox-worker", &[]);
    form.assert_accepts("a").await;
    world.await_runs(1).await;
    // It goes on without it, and says so.
    let why = "consumer: letterbox.v1.webhooks: ";
    eventually("it is degraded", async || {
        let workers = &status(&world).1["parts"][2];
        let told = workers["detail"].as_str().unwrap();
        workers["is_ready"] == true && told.contains(why) && !told.contains("starting")
    })
    .await;
    let (code, ready) = worker.admin("/readyz").await.unwrap();
    assert_eq!(code, 200, "{ready}");
    assert_tells(
        &ready,
        &[r#""degraded":{"consumer":"letterbox.v1.webhooks: "#],
    );
    form.assert_accepts("b").await;
    world.await_runs(2).await;
    assert_eq!(world.signals().await, 0);

    assert_eq!(order("restart_server"), "ok");
    world.await_signals(1).await;
    worker.await_ready().await;
}
