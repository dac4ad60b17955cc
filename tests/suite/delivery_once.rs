//! Nothing accepted is lost or done twice: duplicates, hang-ups, crashes at each step of a
//! delivery.

use futures_util::future::join_all;
use letterbox_tests::{Proxy, World, eventually, sign};
use tokio::io::AsyncWriteExt;

const SHORT_LEASE: [(&str, &str); 2] = [
    ("LETTERBOX_CLAIM_LEASE_SECONDS", "2"),
    ("LETTERBOX_PUBLISH_TIMEOUT_MILLISECONDS", "1500"),
];
/// Nothing waits in the database for the broker.
const NO_SPILL: (&str, &str) = ("LETTERBOX_SPILL_MESSAGES", "0");
const CLAIMED: &str = "
    SELECT count(*) FROM webhook_deliveries JOIN open_batches USING (batch_id)
    WHERE lease_until > clock_timestamp()";

#[tokio::test(flavor = "multi_thread")]
async fn forty_concurrent_duplicates_over_two_gateways_are_one_signal() {
    let world = World::new().await;
    let (one, two) = (world.gateway().await, world.gateway().await);
    let _worker = world.worker().await;
    let webhook = world.webhook(&one).await;
    let doors = [webhook.clone(), webhook.at(&two)];
    for round in 0..5 {
        let body = format!("{{\"round\":{round}}}");
        let answers = join_all((0..40).map(|n| doors[n % 2].send(body.clone()))).await;
        let firsts = answers.iter().filter(|answer| answer.is_first()).count();
        assert_eq!(firsts, 1, "{answers:?}");
        for answer in answers.iter().filter(|answer| !answer.is_first()) {
            let in_progress = answer.status == 503 && answer.code() == "delivery_in_progress";
            assert!(answer.is_duplicate() || in_progress, "{answer:?}");
            if in_progress {
                assert_eq!(answer.header("retry-after"), Some("1"));
            }
        }
        // The other gateway may have yet to close the batch that it has answered.
        eventually("settled", async || {
            webhook.send(body.clone()).await.is_duplicate()
        })
        .await;
    }
    world.await_signals(5).await;
}

/// A sender hangs up between claim and confirm. The delivery is through all the same, once.
#[tokio::test]
async fn a_hang_up_does_not_split_claim_from_publish() {
    let (world, broker, gateway) = World::with_broker_proxy(&[]).await;
    let _worker = world.worker().await;
    let webhook = world.webhook(&gateway).await;

    broker.stall();
    let body = r#"{"hang":"up"}"#;
    let sender = tokio::net::TcpStream::connect(gateway.public_address());
    let mut sender = sender.await.unwrap();
    let request = format!(
        "POST /webhooks/incoming/{} HTTP/1.1\r\nhost: x\r\n\
         content-type: application/json\r\nx-service-signature: {}\r\n\
         content-length: {}\r\n\r\n{body}",
        webhook.address,
        sign(&webhook.secret, body.as_bytes()),
        body.len(),
    );
    sender.write_all(request.as_bytes()).await.unwrap();
    world.await_count("claimed", CLAIMED, 1).await;

    // While it is claimed and not confirmed, nobody hears that it was accepted.
    let duplicate = webhook.send(body).await;
    duplicate.assert_refused(503, "delivery_in_progress");

    drop(sender);
    broker.pass();
    world.await_signals(1).await;
    eventually("settled", async || webhook.send(body).await.is_duplicate()).await;
    world.await_signals(1).await;
}

/// The broker is known to be away, and there is no room to wait for it: 503, and nothing is
/// claimed that would stay open. What was recorded is a duplicate all the same.
#[tokio::test]
async fn what_has_no_way_out_is_not_claimed() {
    let (world, broker, gateway) = World::with_broker_proxy(&[NO_SPILL]).await;
    let webhook = world.webhook(&gateway).await;
    assert!(webhook.send("0").await.is_first());
    broker.cut();
    eventually("noticed", async || !gateway.is_whole().await).await;
    for n in 1..=5 {
        let answer = webhook.send(n.to_string()).await;
        answer.assert_refused(503, "temporarily_unavailable");
        assert_eq!(answer.header("retry-after"), Some("5"));
    }
    assert!(webhook.send("0").await.is_duplicate());
    gateway.await_not_ready().await;
    world.assert_rows("webhook_deliveries", 1).await;
    world.assert_count(CLAIMED, 0).await;

    broker.pass();
    gateway.await_ready().await;
    assert!(webhook.send("1").await.is_first());
    let _worker = world.worker().await;
    world.await_signals(2).await;
}

/// A gateway dies between claim and confirm: its lease ends, another gateway takes over, one
/// effect.
#[tokio::test]
async fn another_gateway_takes_over_from_one_that_was_killed() {
    let world = World::new().await;
    let broker = Proxy::before(&world.amqp_url).await;
    let mut settings = SHORT_LEASE.to_vec();
    settings.push(("AMQP_URL", &broker.url));
    let mut dying = world.gateway_with(&settings).await;
    let surviving = world.gateway_with(&SHORT_LEASE).await;
    let _worker = world.worker().await;
    let webhook = world.webhook(&dying).await;

    broker.stall();
    let sending = tokio::spawn(webhook.request("1").send());
    world.await_count("claimed", CLAIMED, 1).await;
    let batch = "SELECT batch_id FROM webhook_deliveries";
    let first = world.count(batch).await;
    dying.kill().await;
    assert!(sending.await.unwrap().is_err());

    let answer = webhook.at(&surviving).send_until_accepted("1").await;
    assert!(answer.is_first(), "{answer:?}");
    let taken_over = world.count(batch).await;
    assert_ne!(taken_over, first);
    // What the dead one had written may arrive yet.
    broker.pass();
    world.await_signals(1).await;
    assert!(webhook.at(&surviving).send("1").await.is_duplicate());
}

/// A publish that timed out is delivered late, after its retry: two messages, one id, one signal.
#[tokio::test]
async fn a_late_publish_and_its_retry_are_one_signal() {
    let (world, broker, stalling) =
        World::with_broker_proxy(&[("LETTERBOX_PUBLISH_TIMEOUT_MILLISECONDS", "500"), NO_SPILL])
            .await;
    let other = world.gateway().await;
    let webhook = world.webhook(&stalling).await;
    broker.stall_to_server();
    let answer = webhook.send("1").await;
    answer.assert_refused(503, "temporarily_unavailable");
    assert!(webhook.at(&other).send_until_accepted("1").await.is_first());
    broker.pass();
    world.await_messages("letterbox.v1.webhooks", 2).await;
    let worker = world.worker().await;
    world.await_signals(1).await;
    worker
        .await_metric("letterbox_signals_repeated_total", 1.0)
        .await;
    assert_eq!(world.signals().await, 1);
}

/// A worker dies between its commit and its acknowledgement: redelivered, one signal.
#[tokio::test]
async fn a_redelivery_after_a_killed_worker_changes_nothing() {
    let (world, _gateway, webhook) = World::with_webhook().await;
    let broker = Proxy::before(&world.amqp_url).await;
    let mut dying = world.worker_with(&[("AMQP_URL", &broker.url)]).await;

    // Messages reach the worker, its acknowledgements do not reach the broker.
    broker.stall_to_server();
    for n in 0..20 {
        assert!(webhook.send(n.to_string()).await.is_first());
    }
    world.await_signals(20).await;
    dying.kill().await;
    broker.cut();

    let worker = world.worker().await;
    worker
        .await_metric("letterbox_signals_repeated_total", 20.0)
        .await;
    assert_eq!(world.signals().await, 20);
    assert_eq!(worker.metric("letterbox_signals_total").await, 0.0);
}

/// The queue is full and refuses: what it refuses waits in the database, and senders do not notice.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_full_queue_refuses_waits() {
    let (world, _gateway, webhook) = World::with_webhook().await;
    let few = r#"{"pattern":"^letterbox.v1.webhooks$","definition":{"max-length":5},
        "apply-to":"queues"}"#;
    world.set_queue_policy(Some(few)).await;
    let mut sent = 0;
    while world.rows("spilled_messages").await < 20 {
        assert!(sent < 4_000, "the queue takes everything");
        let bodies = (sent..sent + 20).map(|n| webhook.send(n.to_string()));
        for answer in join_all(bodies).await {
            assert!(answer.is_first(), "{answer:?}");
        }
        sent += 20;
    }
    assert!(webhook.send("0").await.is_duplicate());
    let _worker = world.worker().await;
    world.await_signals(sent).await;
    world.await_rows("spilled_messages", 0).await;
    assert_eq!(world.signals().await, sent);
}

/// A worker dies over what was spilled: before it is stored, before that is committed, and after.
/// All of it is stored, and none of it is stored again.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_dies_over_the_spill_does_nothing_twice() {
    for (point, stored) in [
        ("statement.take_spilled.after", 0),
        ("commit.store_signals.before", 0),
        ("statement.store_signals.after", 5),
    ] {
        let world = World::new().await;
        let broker = Proxy::before(&world.amqp_url).await;
        let away = ("AMQP_URL", broker.url.as_str());
        let gateway = world.gateway_with(&[away]).await;
        broker.cut();
        eventually("noticed", async || !gateway.is_whole().await).await;
        let webhook = world.webhook(&gateway).await;
        for n in 0..5 {
            assert!(webhook.send(n.to_string()).await.is_first());
        }
        let fails = format!("{point}=1*return(crash)");
        let mut doomed = world.start("letterbox-worker", &[away, ("FAILPOINTS", &fails)]);
        assert!(!doomed.ended().await.success());
        assert_eq!(world.signals().await, stored, "{point}");
        let spilled = "SELECT count(*) FROM spilled_messages";
        assert_eq!(world.count(spilled).await, 5 - stored, "{point}");
        let over = "UPDATE spilled_messages SET lease_until = clock_timestamp()";
        world.database.execute(over, &[]).await.unwrap();
        let heir = world.start("letterbox-worker", &[away]);
        world.await_signals(5).await;
        eventually("nothing waits", async || world.count(spilled).await == 0).await;
        let has_looked =
            "letterbox_statement_duration_seconds_count{statement=\"spilling_workspaces\"";
        eventually("it looks", async || {
            let told = heir.admin("/metrics").await;
            told.is_some_and(|(_, text)| text.contains(has_looked))
        })
        .await;
        let repeated = heir.metric("letterbox_signals_repeated_total").await;
        assert_eq!(repeated, 0.0, "{point}");
    }
}

/// A broker that did not answer once is asked again, also where nothing may wait for it; what was
/// claimed keeps its id, and nothing more is claimed meanwhile.
#[tokio::test]
async fn a_silent_broker_is_asked_again() {
    let (world, broker, gateway) = World::with_broker_proxy(&[
        ("LETTERBOX_PUBLISH_TIMEOUT_MILLISECONDS", "300"),
        ("LETTERBOX_CLAIM_LEASE_SECONDS", "300"),
        NO_SPILL,
    ])
    .await;
    let webhook = world.webhook(&gateway).await;
    broker.stall();
    assert_eq!(webhook.send("1").await.status, 503);
    assert_eq!(webhook.send("2").await.status, 503);
    let id = "SELECT claim_id::text FROM webhook_deliveries";
    let claimed: String = world.value(id).await;
    broker.pass();
    assert!(webhook.send_until_accepted("1").await.is_first());
    let published: String = world.value(id).await;
    assert_eq!(claimed, published);
    let _worker = world.worker().await;
    world.await_signals(1).await;
}

/// The database goes away between the confirm and the settle: what was answered is a duplicate for
/// this gateway at once, and for every other one as soon as it is written.
#[tokio::test]
async fn a_confirmed_delivery_stays_a_duplicate_whatever_becomes_of_its_settle() {
    let world = World::new().await;
    let database = Proxy::before(&world.database_url).await;
    let broker = Proxy::before(&world.amqp_url).await;
    let gateway = world
        .gateway_with(&[
            // No heartbeat passes for what is published.
            ("AMQP_URL", &format!("{}?heartbeat=600", broker.url)),
            ("DATABASE_URL", &database.url),
            ("LETTERBOX_PUBLISH_TIMEOUT_MILLISECONDS", "10000"),
        ])
        .await;
    let webhook = world.webhook(&gateway).await;
    broker.stall();
    let held = broker.harmed();
    let sending = webhook.begin("1");
    // That its row is there does not say that the gateway knows it; that it publishes does.
    eventually("published", async || broker.harmed() > held).await;
    world.assert_count(CLAIMED, 1).await;
    database.cut();
    broker.pass();
    assert!(sending.await.unwrap().is_first());
    world.assert_count(CLAIMED, 1).await; // its row is there still
    database.pass();
    let mut answer = webhook.send("1").await;
    eventually("the database is back", async || {
        let is_back = answer.status != 503 || answer.code() != "temporarily_unavailable";
        if !is_back {
            answer = webhook.send("1").await;
        }
        is_back
    })
    .await;
    assert!(answer.is_duplicate(), "{answer:?}");
    world.await_count("settled", CLAIMED, 0).await;
    let other = world.gateway().await;
    assert!(webhook.at(&other).send("1").await.is_duplicate());
}
