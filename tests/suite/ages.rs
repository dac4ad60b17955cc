//! How old the oldest of everything is that waits, as metrics tell it.

use letterbox_common::ids::WorkspaceId;
use letterbox_tests::{Peer, Process, Proxy, Reply, Scene, World, eventually, post};
use serde_json::json;

use crate::status::status;

/// What can't be stored gets older, until it is stored.
#[tokio::test]
async fn an_entry_that_cannot_be_stored_is_the_oldest() {
    let (world, gateway, webhook) = World::with_webhook().await;
    let mut locking = world.session(letterbox_database::Role::Login).await;
    let lock = locking.transaction().await.unwrap();
    lock.batch_execute("LOCK TABLE signals").await.unwrap();
    let worker = world.worker().await;
    assert!(webhook.send("1").await.is_first());
    let oldest = "letterbox_oldest_spilled_seconds";
    eventually("it is old", async || gateway.metric(oldest).await > 4.0).await;
    lock.rollback().await.unwrap();
    world.await_signals(1).await;
    gateway.await_metric(oldest, 0.0).await;
    for process in [&gateway, &worker] {
        let most = process.metric("letterbox_database_connections_max");
        assert_eq!(most.await, 8.0);
        assert!(process.metric("letterbox_broker_connected").await >= 1.0);
    }
    let counted = "letterbox_intake_total{kind=\"deliveries\",outcome=\"first\"}";
    assert_eq!(gateway.metric(counted).await, 1.0);
    assert!(webhook.send("1").await.is_duplicate());
    let repeats = "letterbox_intake_total{kind=\"deliveries\",outcome=\"repeat\"}";
    assert_eq!(gateway.metric(repeats).await, 1.0);
}

/// All workers see the same: the oldest of them tells it, and another one when that is gone.
#[tokio::test]
async fn one_worker_tells_what_waits() {
    let world = World::new().await;
    a_run_is_late(&world).await;
    let worker = async || world.worker_with(&ONE_AT_A_TIME).await;
    let mut workers = [worker().await, worker().await];
    let age = async |worker: &Process| worker.metric("letterbox_oldest_due_run_seconds").await;
    let mut leads = 0;
    eventually("one tells", async || {
        let ages = [age(&workers[0]).await, age(&workers[1]).await];
        leads = usize::from(ages[1] > ages[0]);
        ages[leads] >= 7_200.0 && ages[1 - leads] == 0.0
    })
    .await;
    workers[leads].kill().await;
    eventually("the other one does", async || {
        age(&workers[1 - leads]).await >= 7_200.0
    })
    .await;
}

/// The broker is away: runs that were recorded go on all the same.
#[tokio::test(flavor = "multi_thread")]
async fn runs_go_on_without_the_broker() {
    let peer = Peer::start(|_, _| Reply::Status(200)).await;
    let (world, gateway) = World::with_gateway().await;
    let broker = Proxy::before(&world.amqp_url).await;
    let worker = world.worker_with(&[("AMQP_URL", &broker.url)]).await;
    let form = world.sending_form(&gateway, &peer).await;
    world.order(format!("workspace hold {}", form.workspace));
    world.submit_until(&form, "a", "queued", 1).await;
    broker.cut();
    eventually("noticed", async || !worker.is_ready().await).await;
    world.order(format!("workspace release {}", form.workspace));
    world.await_state("succeeded", 1).await;
    peer.await_received(1).await;
}

/// A run that is due and has no turn is late, unless it is held; a question is as old as it is.
#[tokio::test]
async fn due_runs_and_questions_have_an_age() {
    let world = World::new().await;
    let workspace = a_run_is_late(&world).await;
    let worker = world.worker_with(&ONE_AT_A_TIME).await;
    let age = async || worker.metric("letterbox_oldest_due_run_seconds").await;
    eventually("it is late", async || {
        (7_200.0..7_300.0).contains(&age().await)
    })
    .await;
    for (state, runs) in [("ready", 1.0), ("taken", 1.0), ("scheduled", 0.0)] {
        let waiting = format!("letterbox_waiting_runs{{state=\"{state}\"}}");
        assert_eq!(worker.metric(&waiting).await, runs, "{state}");
    }
    world.order(format!("workspace hold {workspace}"));
    eventually("held is not late", async || age().await == 0.0).await;

    world.decide(workspace, "approve").await;
    world.order(format!("workspace release {workspace}"));
    let due_now = "UPDATE active_runs SET state = 'scheduled', due_at = now()
        WHERE state = 'taken'";
    world.change(due_now).await;
    world.await_state("waiting_approval", 2).await;
    let long_ago = "UPDATE approvals SET created_at = now() - interval '2 days'";
    world.change(long_ago).await;
    let age = async || worker.metric("letterbox_oldest_approval_seconds").await;
    eventually("it is old", async || age().await > 172_000.0).await;
    assert_eq!(worker.metric("letterbox_pending_approvals").await, 2.0);
}

/// A run under way takes a place, and an action counts when it is done.
#[tokio::test(flavor = "multi_thread")]
async fn runs_take_places_and_actions_count() {
    let (peer, gate) = Peer::gated(200).await;
    let scene = Scene::new(&peer, json!([post("send")])).await;
    scene.form.assert_accepts("a").await;
    peer.await_received(1).await;
    let places = async || scene.worker.metric("letterbox_run_places_taken").await;
    assert_eq!(places().await, 1.0);
    let done = "letterbox_action_duration_seconds_count{outcome=\"done\"}";
    assert_eq!(scene.worker.metric(done).await, 0.0);
    gate.add_permits(1);
    eventually("it is let go", async || places().await == 0.0).await;
    assert_eq!(scene.worker.metric(done).await, 1.0);
}

const ONE_AT_A_TIME: [(&str, &str); 1] = [("LETTERBOX_RUNS_PER_WORKSPACE", "1")];

/// A workspace has two runs. One is in flight, and nothing comes of it for an hour; the other one
/// has been due for two. No worker is there to see that.
async fn a_run_is_late(world: &World) -> WorkspaceId {
    let peer = Peer::start(|_, _| Reply::Status(200)).await;
    let gateway = world.gateway().await;
    let mut worker = world.worker().await;
    let form = world.sending_form(&gateway, &peer).await;
    world.order(format!("workspace hold {}", form.workspace));
    form.assert_accepts("a").await;
    form.assert_accepts("b").await;
    let waiting = "SELECT count(*) FROM active_runs WHERE state = 'ready'";
    world.await_count("both wait", waiting, 2).await;
    worker.terminate();
    worker.ended().await;
    let long_ago = "UPDATE active_runs SET due_at = now() - interval '2 hours'";
    let in_flight = "UPDATE active_runs SET state = 'taken', due_at = now() + interval '1 hour'
        WHERE run_id = (SELECT run_id FROM active_runs LIMIT 1)";
    let its_worker = "INSERT INTO workers (worker_id, name, places, seen_at, workspaces, runs)
        SELECT gen_random_uuid(), 'silent', 1, now() - interval '20 seconds',
               ARRAY[workspace_id], ARRAY[run_id]
        FROM active_runs WHERE state = 'taken'";
    for change in [long_ago, in_flight, its_worker] {
        world.change(change).await;
    }
    world.order(format!("workspace release {}", form.workspace));
    form.workspace
}

/// The database's clock was set back, or a server took over whose clock is behind: what a worker
/// reported before that it is dead says nothing of what is alive now.
#[tokio::test]
async fn who_reported_in_the_future_is_not_alive() {
    let world = World::new().await;
    let workspace = a_run_is_late(&world).await;
    world.order(format!("workspace hold {workspace}"));
    let dead = "
        INSERT INTO workers (worker_id, name, places, seen_at) VALUES
            ('00000000-0000-7000-8000-000000000000', 'dead', 7, now() + interval '10 minutes');
        INSERT INTO processes (process_id, program, name, is_ready, key_id, public_key, settings,
            seen_at)
        VALUES ('00000000-0000-7000-8000-000000000000', 'gateway', 'dead', false, 'dead',
            sha256('dead'), '{}', now() + interval '10 minutes')";
    world.change(dead).await;
    let (_, seen) = status(&world);
    let gateways = seen["parts"][1]["detail"].as_str().unwrap();
    // One that has only just died.
    assert!(gateways.starts_with("1 alive"), "{gateways}");
    assert_eq!(seen["parts"][2]["detail"], "none is alive: runs wait");
    let worker = world.worker().await;
    let waiting = "letterbox_waiting_runs{state=\"ready\"}";
    worker.await_metric(waiting, 1.0).await;
    eventually("it is the only one", async || {
        status(&world).1["parts"][2]["detail"] == "1 alive, 256 places"
    })
    .await;
}
