//! RabbitMQ away, blocked, crashed, or tampered with.

use futures_util::future::join_all;
use lapin::options::QueueDeclareOptions;
use letterbox_tests::{Answer, Peer, PrivateBroker, Proxy, Reply, Scene, World, eventually, post};

const SPILLED: &str = "SELECT count(*) FROM spilled_messages";

/// RabbitMQ is away from the first to the last: what is accepted becomes signals, and runs that do
/// what they are there for.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_accepted_without_a_broker_is_processed() {
    let peer = Peer::start(|_, _| Reply::Status(200)).await;
    let (world, broker, gateway) = World::with_broker_proxy(&[]).await;
    broker.cut();
    eventually("noticed", async || !gateway.is_whole().await).await;
    let worker = world.start("letterbox-worker", &[("AMQP_URL", broker.url.as_str())]);
    let webhook = world.webhook(&gateway).await;
    let actions = serde_json::json!([post("send")]);
    let form = world.acting_form(&gateway, &peer.url, actions).await;
    let sending = (0..40).map(|n| webhook.send(n.to_string()));
    let sent = join_all(sending).await;
    assert!(sent.iter().all(Answer::is_first), "{sent:?}");
    form.assert_accepts("once").await;
    form.assert_accepts("once").await;
    world.await_signals(40).await;
    world.await_state("succeeded", 1).await;
    world.await_count("nothing waits", SPILLED, 0).await;
    assert!(webhook.send("7").await.is_duplicate());
    assert_eq!((world.signals().await, world.runs().await), (40, 1));
    assert_eq!(peer.received().len(), 1);
    assert!(!worker.is_ready().await);
}

/// A memory alarm blocks publishing, a crash loses the connection: senders do not notice either,
/// and everything is processed once.
#[tokio::test(flavor = "multi_thread")]
async fn senders_do_not_notice_alarms_and_crashes() {
    let broker = PrivateBroker::start("");
    let world = World::new().await.with_broker(broker.url()).await;
    let (gateway, worker) = (world.gateway().await, world.worker().await);
    let (webhook, form) = (world.webhook(&gateway).await, world.form(&gateway).await);
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let senders: Vec<_> = (0..8)
        .map(|sender| {
            let (webhook, stopped) = (webhook.clone(), stopped.clone());
            tokio::spawn(async move {
                let mut sent = 0;
                while !*stopped.borrow() {
                    let answer = webhook.send(format!("[{sender}, {sent}]")).await;
                    assert!(answer.is_first(), "{answer:?}");
                    sent += 1;
                }
                sent
            })
        })
        .collect();

    let spilled = async || gateway.metric("letterbox_spilled_total").await;
    broker.ctl(&["set_vm_memory_high_watermark", "absolute", "1MB"]);
    eventually("spilled", async || spilled().await > 20.0).await;
    form.assert_accepts("alarm").await;
    form.assert_accepts("alarm").await;
    let (status, blocked) = gateway.admin("/readyz").await.unwrap();
    assert_eq!(status, 200);
    assert!(blocked.contains("blocks publishing"), "{blocked}");
    broker.ctl(&["set_vm_memory_high_watermark", "0.4"]);
    gateway.await_ready().await;

    broker.kill();
    worker.await_not_ready().await;
    let before = spilled().await;
    eventually("spilled", async || spilled().await > before + 20.0).await;
    form.assert_accepts("crash").await;
    assert!(gateway.is_ready().await);
    broker.start_again();
    gateway.await_ready().await;
    worker.await_ready().await;

    stop.send_replace(true);
    let mut sent = 0;
    for sender in senders {
        sent += sender.await.unwrap();
    }
    world.await_signals(sent).await;
    world.await_runs(2).await;
    world.await_count("nothing waits", SPILLED, 0).await;
    assert!(webhook.send("[0, 0]").await.is_duplicate());
    assert_eq!((world.signals().await, world.runs().await), (sent, 2));
}

/// A broker that hangs costs one time-out, not one for each batch. Of what may wait a workspace has
/// a quarter: what it sends beyond is refused, what others send is not. Beyond the bound everybody
/// is refused. What waited is stored although the gateway is gone.
#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_broker_is_not_asked_again_and_the_wait_is_bounded() {
    let (world, broker, mut gateway) = World::with_broker_proxy(&[
        ("LETTERBOX_PUBLISH_TIMEOUT_MILLISECONDS", "1000"),
        ("LETTERBOX_SPILL_MESSAGES", "20"),
    ])
    .await;
    let webhook = world.webhook(&gateway).await;
    assert!(webhook.send("\"before\"").await.is_first());
    broker.stall();
    let timed_out = "letterbox_publish_failures_total{reason=\"timed_out\"}";
    for n in 0..5 {
        assert!(webhook.send(n.to_string()).await.is_first());
    }
    // Each of them alone would have taken a second.
    let refused = webhook.send("\"too much\"").await;
    refused.assert_refused(503, "temporarily_unavailable");
    assert!(webhook.send("3").await.is_duplicate());
    for _ in 0..3 {
        let other = world.webhook(&gateway).await;
        for n in 0..5 {
            assert!(other.send(n.to_string()).await.is_first());
        }
        assert!(gateway.is_ready().await);
    }
    let last = world.webhook(&gateway).await;
    let refused = last.send("\"too much\"").await;
    refused.assert_refused(503, "temporarily_unavailable");
    assert!(gateway.metric(timed_out).await < 10.0);
    gateway.await_not_ready_for("spill is full").await;
    let claimed = world.rows("webhook_deliveries").await;
    assert_eq!(webhook.send("\"more\"").await.status, 503);
    world.assert_rows("webhook_deliveries", claimed).await; // it would stay open
    assert!(webhook.send("3").await.is_duplicate());
    gateway.kill().await;

    let (other, _worker) = (world.gateway().await, world.worker().await);
    world.end_leases().await;
    world.await_signals(21).await;
    assert!(webhook.at(&other).send("3").await.is_duplicate());
    assert!(webhook.at(&other).send("\"too much\"").await.is_first());
    world.await_signals(22).await;
}

/// Somebody deletes the work queue: what is accepted meanwhile is processed all the same, and the
/// queue comes back.
#[tokio::test]
async fn a_deleted_queue_loses_nothing() {
    let (world, _gateway, worker, webhook) = World::with_recorded_webhook().await;
    let connection = world.broker().await;
    let channel = connection.create_channel().await.unwrap();
    let deleting = channel.queue_delete("letterbox.v1.webhooks".into(), Default::default());
    deleting.await.unwrap();
    for n in 0..10 {
        let answer = webhook.send_until_accepted(&n.to_string()).await;
        assert_eq!(answer.status, 202);
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

/// A queue stands there with other arguments: said clearly, the queue untouched, the others
/// consumed.
#[tokio::test]
async fn a_foreign_queue_is_reported_and_left_alone() {
    let world = World::new().await;
    let channel = world.channel().await;
    let durable = QueueDeclareOptions {
        durable: true,
        ..Default::default()
    };
    let name = "letterbox.v1.webhooks";
    let deleting = channel.queue_delete(name.into(), Default::default());
    deleting.await.unwrap();
    let declaring = channel.queue_declare(name.into(), durable, Default::default());
    declaring.await.unwrap();
    let worker = world.start("letterbox-worker", &[]);
    eventually("said", async || {
        let told = worker.admin("/readyz").await;
        let is_told = |told: &str| {
            told.contains(r#""degraded":{"consumer":"letterbox.v1.webhooks: "#)
                && told.contains("PRECONDITION")
        };
        matches!(told, Some((200, told)) if is_told(&told))
    })
    .await;
    assert_eq!(world.consumers("letterbox.v1.forms").await, 1);
    let passive = QueueDeclareOptions {
        passive: true,
        ..Default::default()
    };
    channel
        .queue_declare("letterbox.v1.webhooks".into(), passive, Default::default())
        .await
        .unwrap();
}

/// Somebody takes the queue of forms from the exchange, and then the exchange away: both come back,
/// and nothing is lost meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_unbound_or_deleted_comes_back() {
    let scene = Scene::recording().await;
    let world = &scene.world;
    let channel = world.channel().await;
    let (queue, exchange, key) = ("letterbox.v1.forms", "letterbox.v1", "forms");
    let none = Default::default();
    let unbinding = channel.queue_unbind(queue.into(), exchange.into(), key.into(), none);
    unbinding.await.unwrap();
    scene.submit_until("1", "succeeded", 1).await;

    let deleting = channel.exchange_delete(exchange.into(), Default::default());
    deleting.await.unwrap();
    scene.submit_until("2", "succeeded", 2).await;
    scene.gateway.await_ready().await;
}

#[tokio::test]
async fn connections_are_named_after_their_process() {
    let (world, _gateway, _worker) = World::with_both().await;
    let vhost = world.amqp_url.rsplit('/').next().unwrap();
    let dashboard = &letterbox_tests::Servers::shared().dashboard_url;
    let url = format!("{dashboard}api/vhosts/{vhost}/connections");
    eventually("the dashboard lists them", async || {
        let listed = letterbox_tests::http_client().get(&url).send().await;
        let text = listed.unwrap().text().await.unwrap();
        text.contains("letterbox-gateway@") && text.matches("letterbox-worker@").count() >= 2
    })
    .await;
}

/// Heartbeats come, confirms don't, as from a node that was frozen: the next node is asked.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_confirms_nothing_is_left_for_the_next() {
    let world = World::new().await;
    let hanging = Proxy::before(&world.amqp_url).await;
    // Neither side ends the connection for want of heartbeats.
    let urls = format!("{}?heartbeat=600,{}", hanging.url, world.amqp_url);
    let gateway = world.gateway_with(&[("AMQP_URL", &urls)]).await;
    let _worker = world.worker().await;
    let webhook = world.webhook(&gateway).await;
    assert!(webhook.send("\"before\"").await.is_first());
    world.await_signals(1).await;
    hanging.stall_to_server();
    for n in 0..5 {
        assert!(webhook.send(n.to_string()).await.is_first());
    }
    world.await_signals(6).await;
    gateway.await_log("confirms nothing").await;
    eventually("through the next node", async || gateway.is_whole().await).await;
    assert!(webhook.send("\"after\"").await.is_first());
    world.assert_count(SPILLED, 0).await;
    world.await_signals(7).await;
}

/// A gateway that stops does not wait for a silent broker: what it holds is in the database.
#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_stops_in_order_although_the_broker_is_silent() {
    let world = World::new().await;
    let broker = Proxy::before(&world.amqp_url).await;
    let url = format!("{}?heartbeat=600", broker.url);
    let mut gateway = world
        .gateway_with(&[
            ("AMQP_URL", &url),
            ("LETTERBOX_PUBLISH_TIMEOUT_MILLISECONDS", "1000"),
            ("LETTERBOX_SHUTDOWN_SECONDS", "8"),
        ])
        .await;
    let webhook = world.webhook(&gateway).await;
    broker.stall();
    for n in 0..3 {
        assert!(webhook.send(n.to_string()).await.is_first());
    }
    gateway.terminate();
    assert!(gateway.ended().await.success());
    let log = gateway.log();
    assert!(log.contains("\"in_order\":true"), "{log}");
    let (_other, _worker) = (world.gateway().await, world.worker().await);
    world.await_signals(3).await;
}

/// One queue does not answer: what is for it is processed all the same, and once.
#[tokio::test(flavor = "multi_thread")]
async fn a_silent_queue_holds_up_nothing() {
    let broker = PrivateBroker::start("");
    let world = World::new().await.with_broker(broker.url()).await;
    let (gateway, _worker) = (world.gateway().await, world.worker().await);
    let webhook = world.webhook(&gateway).await;
    assert!(webhook.send("\"before\"").await.is_first());
    world.await_signals(1).await;
    let process = r#"whereis(list_to_atom("%2F_letterbox.v1.webhooks"))"#;
    broker.ctl(&["eval", &format!("sys:suspend({process}).")]);
    let sending = (0..20).map(|n| webhook.send(n.to_string()));
    let sent = join_all(sending).await;
    assert!(sent.iter().all(Answer::is_first), "{sent:?}");
    world.await_signals(21).await;
    // What had timed out is in the queue as well.
    broker.ctl(&["eval", &format!("sys:resume({process}).")]);
    assert!(webhook.send("\"after\"").await.is_first());
    world.await_signals(22).await;
}

/// What goes wrong with the broker is told by Letterbox, once, not by the library as well.
#[tokio::test(flavor = "multi_thread")]
async fn an_outage_is_told_in_our_own_lines() {
    let world = World::new().await;
    let broker = Proxy::before(&world.amqp_url).await;
    let through = [("AMQP_URL", broker.url.as_str())];
    let processes = [
        world.gateway_with(&through).await,
        world.worker_with(&through).await,
    ];
    for _ in 0..3 {
        broker.cut();
        for process in &processes {
            eventually("noticed", async || !process.is_whole().await).await;
        }
        broker.pass();
        for process in &processes {
            process.await_ready().await;
        }
    }
    for process in &processes {
        let log = process.log();
        let lines = log.lines().map(|line| serde_json::from_str(line).unwrap());
        let lines: Vec<serde_json::Value> = lines.collect();
        let mut bad = lines.iter();
        bad.find(|line| line["message"] == "broker connection ended")
            .expect("it is told");
        let is_foreign = |line: &&serde_json::Value| {
            let target = line["target"].as_str().unwrap();
            ["ERROR", "WARN"].contains(&line["level"].as_str().unwrap())
                && !target.starts_with("letterbox")
        };
        let foreign: Vec<_> = lines.iter().filter(is_foreign).collect();
        assert_eq!(foreign, [&serde_json::Value::Null; 0]);
    }
}
