//! PostgreSQL away, for either process.

use futures_util::future::join_all;
use letterbox_database::{Database, DatabaseSettings, Role, health::schema_version};
use letterbox_tests::{Proxy, World, eventually};

/// The worker waits an outage out: nothing is dead-lettered, nothing returned, everything stored
/// afterwards.
#[tokio::test]
async fn the_worker_waits_for_the_database() {
    let (world, _gateway, webhook) = World::with_webhook().await;
    let database = Proxy::before(&world.database_url).await;
    let worker = world.worker_with(&[("DATABASE_URL", &database.url)]).await;
    assert!(webhook.send("\"before\"").await.is_first());
    world.await_signals(1).await;

    database.cut();
    worker.await_not_ready().await;
    for n in 0..30 {
        assert!(webhook.send(n.to_string()).await.is_first());
    }
    eventually("the worker has tried", async || {
        worker.metric("letterbox_entries_total").await >= 3.0
    })
    .await;
    assert_eq!(world.signals().await, 1);

    database.pass();
    worker.await_ready().await;
    world.await_signals(31).await;
    assert_eq!(world.messages("letterbox.v1.dead-letters").await, 0);
}

/// A read-only database is an outage, too: a worker does not even subscribe.
#[tokio::test]
async fn a_read_only_database_is_waited_out() {
    let (world, _gateway, webhook) = World::with_webhook().await;
    assert!(webhook.send("1").await.is_first());
    let name = world.database_url.rsplit('/').next().unwrap();
    let read_only = format!("ALTER DATABASE {name} SET default_transaction_read_only = on");
    world.change(&read_only).await;
    let worker = world.start("letterbox-worker", &[]);
    worker.await_not_ready_for("read-only").await;
    assert_eq!(world.consumers("letterbox.v1.webhooks").await, 0);
    let writable = format!("ALTER DATABASE {name} RESET default_transaction_read_only");
    world.change(&writable).await;
    // Sessions keep their setting; the worker has closed those.
    world.await_signals(1).await;
    assert_eq!(world.messages("letterbox.v1.dead-letters").await, 0);
}

/// The gateway answers 503 while the database is away or stuck, and works again by itself.
#[tokio::test]
async fn the_gateway_refuses_and_recovers() {
    let world = World::new().await;
    let database = Proxy::before(&world.database_url).await;
    let gateway = world.gateway_with(&[("DATABASE_URL", &database.url)]).await;
    let _worker = world.worker().await;
    let webhook = world.webhook(&gateway).await;
    assert!(webhook.send("\"before\"").await.is_first());

    database.cut();
    let answer = webhook.send("1").await;
    answer.assert_refused(503, "temporarily_unavailable");
    let wrongly_signed = letterbox_tests::http_client()
        .post(&webhook.url)
        .header("x-service-signature", "x")
        .body("1");
    // Not 401: that would be a guess.
    assert_eq!(wrongly_signed.send().await.unwrap().status(), 503);
    gateway.await_not_ready().await;
    database.pass();
    gateway.await_ready().await;
    assert!(webhook.send_until_accepted("1").await.is_first());

    database.stall();
    let answer = webhook.send("2").await;
    answer.assert_refused(503, "temporarily_unavailable");
    gateway.await_not_ready().await;
    // Others are not held until their time limits, too: the database is not asked for them.
    gateway.await_log("calls fail at once").await;
    let asked = async || {
        gateway
            .metric("letterbox_statement_duration_seconds_count")
            .await
    };
    let before = asked().await;
    for n in 10..30 {
        assert_eq!(webhook.send(n.to_string()).await.status, 503);
    }
    assert_eq!(asked().await, before);
    database.pass();
    gateway.await_ready().await;
    assert_eq!(webhook.send_until_accepted("2").await.status, 202);
    world.await_signals(3).await;
}

/// A server that has no connection left is asked for one now and then, not by every call: each
/// attempt would take the place of somebody else's.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_a_free_connection_is_left_alone() {
    let world = World::new().await;
    let (url, login) = world.login_in("letterbox_gateway").await;
    let proxy = Proxy::before(&url).await;
    let settings = DatabaseSettings {
        database_pool_size: 8,
    };
    let target = proxy.url.parse().unwrap();
    let database = Database::new(&target, &settings, Role::Gateway, "test").unwrap();
    let limit = async |connections: i32| {
        let limit = format!("ALTER ROLE {login} CONNECTION LIMIT {connections}");
        world.change(&limit).await;
    };
    limit(0).await;
    let calls = (0..8).map(|_| async {
        for _ in 0..50 {
            let error = schema_version(&database).await.unwrap_err();
            assert!(error.to_string().contains("53300"), "{error}");
        }
    });
    join_all(calls).await;
    // Those that were under way when the first one was refused.
    assert!(proxy.opened() <= 20, "{} attempts", proxy.opened());
    limit(-1).await;
    let is_back = async || schema_version(&database).await.is_ok();
    eventually("it is asked again", is_back).await;
}
