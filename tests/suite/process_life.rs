//! Processes: settings, readiness, orderly stops, and what their logs and metrics must not hold.

use std::process::Command;

use futures_util::future::join_all;
use letterbox_tests::{World, assert_tells, binary};

#[tokio::test]
async fn settings_are_listed_and_checked_without_quoting_secrets() {
    for (program, setting) in [
        ("letterbox-gateway", "LETTERBOX_WEBHOOK_KEYS"),
        ("letterbox-worker", "LETTERBOX_PREFETCH"),
        ("letterbox", "LETTERBOX_BASE_URL"),
    ] {
        let help = Command::new(binary(program))
            .arg("--help")
            .env("DATABASE_URL", "canary")
            .output()
            .unwrap();
        let text = String::from_utf8(help.stdout).unwrap();
        assert!(
            help.status.success() && text.contains("DATABASE_URL") && text.contains(setting),
            "{text}"
        );
        assert!(!text.contains("canary"), "{text}");
    }
    let good = [
        ("DATABASE_URL", "postgres://u:canary@127.0.0.1:1/d"),
        ("AMQP_URL", "amqp://u:canary@127.0.0.1:1/v"),
        (
            "LETTERBOX_WEBHOOK_KEYS",
            "a:000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f",
        ),
        ("LETTERBOX_LISTEN", "127.0.0.1:0"),
        ("LETTERBOX_ADMIN_LISTEN", "127.0.0.1:0"),
    ];
    for (name, value) in [
        ("DATABASE_URL", "canary"),
        ("AMQP_URL", "canary"),
        ("LETTERBOX_WEBHOOK_KEYS", "canary"),
        ("LETTERBOX_LISTEN", "x"),
        ("LETTERBOX_CLAIM_LEASE_SECONDS", "0"),
        ("LETTERBOX_CLAIM_LEASE_SECONDS", "2"),
        ("LETTERBOX_LOG", "a=b=c"),
        ("LETTERBOX_TRUSTED_PROXIES", "10.0.0.0/8,canary"),
        ("LETTERBOX_BASE_URL", "ftp://canary"),
    ] {
        let mut command = Command::new(binary("letterbox-gateway"));
        let output = command
            .env_clear()
            .envs(good)
            .env(name, value)
            .output()
            .unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success(), "{name}={value}");
        assert!(!error.contains("canary") && error.len() > 20, "{error}");
    }
}

#[tokio::test]
async fn an_old_schema_is_refused_until_it_is_migrated() {
    let world = World::new().await;
    let forget = "DELETE FROM refinery_schema_history
        WHERE version = (SELECT max(version) FROM refinery_schema_history)
        RETURNING version, name, applied_on, checksum";
    let row = world.database.query_one(forget, &[]).await.unwrap();
    let gateway = world.start("letterbox-gateway", &[]);
    gateway.await_not_ready_for("letterbox migrate").await;
    let restore = "INSERT INTO refinery_schema_history VALUES ($1, $2, $3, $4)";
    let (version, name, applied, checksum): (i32, String, String, String) =
        (row.get(0), row.get(1), row.get(2), row.get(3));
    world
        .database
        .execute(restore, &[&version, &name, &applied, &checksum])
        .await
        .unwrap();
    gateway.await_ready().await;
}

/// Told to stop while deliveries are under way: each is answered or refused, and what was accepted
/// is there.
#[tokio::test(flavor = "multi_thread")]
async fn a_stopping_gateway_finishes_what_it_has_begun() {
    let (world, broker, mut gateway) = World::with_broker_proxy(&[
        ("LETTERBOX_PUBLISH_TIMEOUT_MILLISECONDS", "10000"),
        // As many batches as deliveries: all of them can wait for the broker.
        ("LETTERBOX_LANES", "21"),
    ])
    .await;
    let webhook = world.webhook(&gateway).await;
    broker.stall();
    let sending: Vec<_> = (0..20)
        .map(|n| {
            let webhook = webhook.clone();
            tokio::spawn(async move { webhook.send(n.to_string()).await })
        })
        .collect();
    world.await_rows("webhook_deliveries", 20).await;
    gateway.terminate();
    gateway.await_not_ready_for("stopping").await;
    // It goes on listening until what it holds is safe, so that nobody finds a closed door.
    let meanwhile = {
        let webhook = webhook.clone();
        tokio::spawn(async move { webhook.send("\"meanwhile\"").await })
    };
    world.await_rows("webhook_deliveries", 21).await;
    broker.pass();
    for answer in join_all(sending.into_iter().chain([meanwhile])).await {
        assert!(answer.unwrap().is_first());
    }
    assert!(gateway.ended().await.success());
    assert!(
        gateway.log().contains("\"in_order\":true"),
        "{}",
        gateway.log().lines().last().unwrap_or_default()
    );
    world.assert_rows("open_batches", 0).await; // everything is settled
    let mut worker = world.worker().await;
    world.await_signals(21).await;
    worker.terminate();
    assert!(worker.ended().await.success());
    assert!(worker.log().contains("\"in_order\":true"));
    assert_eq!(world.messages("letterbox.v1.webhooks").await, 0); // nothing came back
}

/// With everything logged that can be, nothing of it is a secret, a signature or a body.
#[tokio::test]
async fn logs_and_metrics_hold_no_secrets() {
    let (world, gateway, worker, webhook) = World::with_recorded_webhook().await;
    // What is marked is searched for in all that processes say, as every secret of the tests is.
    let canary = uuid::Uuid::new_v4().simple().to_string();
    letterbox_tests::marks::mark(&canary);
    let (kind, entity) = ("client.created", &canary);
    let event = serde_json::json!({"type": kind, "entity": entity, "sourceTool": entity});
    assert!(webhook.send(event.to_string()).await.is_first());
    assert_eq!(webhook.send(format!("{{\"{canary}")).await.status, 400);
    let url = format!("{}?token={canary}", webhook.url);
    let unsigned = gateway
        .http
        .post(url)
        .header("x-service-signature", &canary);
    let refused = unsigned.body(canary).send().await.unwrap();
    assert_eq!(refused.status(), 401);
    world.await_signals(1).await;
    let mut said = gateway.log() + &worker.log();
    for process in [&gateway, &worker] {
        said += &process.admin("/metrics").await.unwrap().1;
    }
    assert!(said.lines().count() > 50); // there is something to look at
}

#[tokio::test]
async fn metrics_tell_what_happened() {
    let (world, gateway, worker, webhook) = World::with_recorded_webhook().await;
    assert!(webhook.send("1").await.is_first());
    world.await_signals(1).await;
    let (status, text) = gateway.admin("/metrics").await.unwrap();
    assert_eq!(status, 200);
    assert_tells(
        &text,
        &[r#"letterbox_request_duration_seconds_count{route="incoming_webhook",status="202"} 1"#],
    );
    assert_tells(
        &text,
        &[r#"letterbox_batch_size_count{batcher="deliveries"} 1"#],
    );
    assert_eq!(worker.metric("letterbox_signals_total").await, 1.0);
    assert_eq!(gateway.admin("/livez").await.unwrap().0, 200);
    assert_eq!(gateway.admin("/nothing").await.unwrap().0, 404);
}
