//! Turns of runs: what a holder knows is not forgotten, what it must not do any more it does not
//! do, and what comes to nothing ends.

use std::sync::Arc;

use letterbox_common::states::RunState;
use letterbox_database::Role;
use letterbox_tests::{EXPIRE, Peer, Proxy, Reply, Scene, World, eventually, post};
use serde_json::json;
use tokio::sync::Semaphore;

/// A peer whose first answer, 200, comes when the gate is opened.
async fn gated() -> (Peer, Arc<Semaphore>) {
    let gate = Arc::new(Semaphore::new(0));
    let held = gate.clone();
    let peer = Peer::start(move |_, before| match before {
        0 => Reply::When(held.clone(), 200),
        _ => Reply::Status(200),
    });
    (peer.await, gate)
}

/// The database goes away while an action is being answered: the answer is written when it is back,
/// and the action is not sent again.
#[tokio::test(flavor = "multi_thread")]
async fn a_known_answer_outlasts_an_outage_of_the_database() {
    let world = World::new().await;
    let database = Proxy::before(&world.database_url).await;
    let (peer, gate) = gated().await;
    let gateway = world.gateway().await;
    let worker = world.worker_with(&[("DATABASE_URL", &database.url)]).await;
    let form = world
        .acting_form(&gateway, &peer.url, json!([post("send")]))
        .await;
    form.assert_accepts("k").await;
    peer.await_received(1).await;
    database.cut();
    gate.add_permits(1);
    eventually("tried again and again", async || {
        worker.log().matches("a step is not recorded yet").count() >= 8
    })
    .await;
    database.pass();
    world.await_state("succeeded", 1).await;
    assert_eq!(peer.received().len(), 1);
    // Lines that know nothing of runs name the run that they belong to.
    let row = world
        .database
        .query_one("SELECT run_id::text FROM runs", &[])
        .await
        .unwrap();
    let (run, log): (String, _) = (row.get(0), worker.log());
    let mut failed = log.lines().filter(|line| line.contains("write_step"));
    assert!(
        log.contains("write_step") && failed.all(|line| line.contains(&run)),
        "{log}"
    );
}

/// A worker that is told to stop finishes the action that it has begun; another one goes on at
/// once.
#[tokio::test(flavor = "multi_thread")]
async fn a_stopping_worker_begins_nothing() {
    let world = World::new().await;
    let (peer, gate) = gated().await;
    let gateway = world.gateway().await;
    let mut stopping = world.worker().await;
    let actions = json!([post("first"), post("second"), post("third")]);
    let form = world.acting_form(&gateway, &peer.url, actions).await;
    form.assert_accepts("k").await;
    peer.await_received(1).await;
    stopping.terminate();
    eventually("stopping", async || !stopping.is_ready().await).await;
    gate.add_permits(1);
    assert!(stopping.ended().await.success());
    assert!(stopping.log().contains("\"in_order\":true"));
    assert_eq!(peer.received().len(), 1, "the others are not begun");
    let _other = world.worker().await;
    world.await_state("succeeded", 1).await;
    let received = peer.await_received(3).await;
    let targets: Vec<_> = received.iter().map(|one| one.target.as_str()).collect();
    assert_eq!(targets, ["/first", "/second", "/third"]);
}

/// The broker goes away, and then the worker is told to stop: it finishes the request that is in
/// flight all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_stops_without_a_broker_finishes_its_requests() {
    let world = World::new().await;
    let broker = Proxy::before(&world.amqp_url).await;
    let (peer, gate) = gated().await;
    let gateway = world.gateway().await;
    let mut stopping = world.worker_with(&[("AMQP_URL", &broker.url)]).await;
    let form = world
        .acting_form(&gateway, &peer.url, json!([post("send")]))
        .await;
    form.assert_accepts("k").await;
    peer.await_received(1).await;
    broker.cut();
    eventually("noticed", async || {
        stopping.log().contains("broker connection ended")
    })
    .await;
    stopping.terminate();
    eventually("stopping", async || {
        stopping.log().contains("\"reason\":\"stopping\"")
    })
    .await;
    // It waits, for as long as another one looks for runs a few times.
    let other = world.worker().await;
    eventually("a while", async || {
        let name = r#"letterbox_statement_duration_seconds_count{statement="take_runs"}"#;
        other.metric(name).await >= 8.0
    })
    .await;
    gate.add_permits(1);
    assert!(stopping.ended().await.success());
    world.await_state("succeeded", 1).await;
    assert_eq!(peer.received().len(), 1);
}

/// A table that every step needs is locked for as long as twenty turns would take: the runs wait,
/// and none is given up.
#[tokio::test(flavor = "multi_thread")]
async fn an_outage_of_one_table_fails_nothing() {
    let world = World::new().await;
    let (peer, gate) = gated().await;
    let gateway = world.gateway().await;
    let worker = world.worker().await;
    let form = world
        .acting_form(&gateway, &peer.url, json!([post("first"), post("second")]))
        .await;
    form.assert_accepts("k").await;
    peer.await_received(1).await;
    let locking = world.session(Role::Login).await;
    locking
        .batch_execute("BEGIN; LOCK TABLE run_actions IN ACCESS EXCLUSIVE MODE")
        .await
        .unwrap();
    gate.add_permits(1);
    let looks = async || {
        let name = r#"letterbox_statement_duration_seconds_count{statement="take_runs"}"#;
        worker.metric(name).await
    };
    for _ in 0..21 {
        world.database.batch_execute(EXPIRE).await.unwrap();
        let before = looks().await;
        eventually("looked for runs", async || looks().await >= before + 2.0).await;
    }
    locking.batch_execute("ROLLBACK").await.unwrap();
    world.await_state("succeeded", 1).await;
    let targets: Vec<_> = peer.received().into_iter().map(|one| one.target).collect();
    assert_eq!(targets, ["/first", "/second"]);
}

/// A run whose holders end without a word, over and over, is given up.
#[tokio::test(flavor = "multi_thread")]
async fn turns_that_come_to_nothing_end() {
    let world = World::new().await;
    let (peer, _gate) = gated().await;
    let gateway = world.gateway().await;
    let mut dying = world.worker().await;
    let form = world
        .acting_form(&gateway, &peer.url, json!([post("send")]))
        .await;
    form.assert_accepts("k").await;
    peer.await_received(1).await;
    dying.kill().await;
    let idle = "SELECT idle_turns::bigint FROM active_runs";
    assert_eq!(world.count(idle).await, 1);
    world
        .database
        .execute("UPDATE active_runs SET idle_turns = 20", &[])
        .await
        .unwrap();
    world.database.batch_execute(EXPIRE).await.unwrap();
    let _worker = world.worker().await;
    world.await_state("failed", 1).await;
    let run = world.run_of(&form).await.row;
    assert_eq!(run.state, RunState::Failed);
    assert!(run.failure.unwrap().contains("20 turns in a row"));
    assert_eq!(peer.received().len(), 1);
}

/// An action is denied at the moment at which it is about to be sent, because the policy lets it
/// through meanwhile: it is not sent.
#[tokio::test(flavor = "multi_thread")]
async fn a_denial_at_the_last_moment_counts() {
    let peer = Peer::start(|_, _| Reply::Status(200)).await;
    let scene = Scene::new(&peer, json!([post("send")])).await;
    scene
        .set_policy(json!({"rules": [], "default": "approve"}))
        .await;
    scene.form.assert_accepts("k").await;
    let world = &scene.world;
    world.await_state("waiting_approval", 1).await;
    eventually("nobody looks at it", async || {
        world
            .count("SELECT count(*) FROM active_runs WHERE state = 'taken'")
            .await
            == 0
    })
    .await;
    scene
        .set_policy(json!({"rules": [], "default": "allow"}))
        .await;

    // Whoever takes the run comes as far as the record of the action.
    let blocking = world.session(Role::Login).await;
    blocking
        .batch_execute("BEGIN; SELECT FROM run_actions FOR UPDATE")
        .await
        .unwrap();
    let wake = "UPDATE active_runs SET due_at = clock_timestamp()";
    world.database.batch_execute(wake).await.unwrap();
    let waits = "SELECT count(*) FROM pg_stat_activity
        WHERE wait_event_type = 'Lock' AND datname = current_database()";
    eventually("about to begin", async || world.count(waits).await > 0).await;
    let operator = world.operator().await;
    let approval = world.waiting(scene.form.workspace).await;
    operator
        .deny(approval[0].approval_id, scene.form.owner)
        .await
        .unwrap();
    blocking.batch_execute("ROLLBACK").await.unwrap();

    eventually("let go", async || world.count(waits).await == 0).await;
    world.database.batch_execute(EXPIRE).await.unwrap();
    world.await_state("denied", 1).await;
    assert_eq!(peer.received().len(), 0);
}

/// Very many runs come due at one moment, in a workspace that is held: they wait in their lanes
/// after a few looks, and who else is due is not kept waiting.
#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_due_runs_is_in_its_lanes_soon() {
    let world = World::new().await;
    let peer = Peer::start(|_, _| Reply::Status(200)).await;
    let gateway = world.gateway().await;
    let mut worker = world.worker().await;
    let actions = || json!([post("send")]);
    let theirs = world.acting_form(&gateway, &peer.url, actions()).await;
    let ours = world.acting_form(&gateway, &peer.url, actions()).await;
    world.order(format!("workspace hold {}", theirs.workspace));
    theirs.assert_accepts("k").await;
    world.await_runs(1).await;
    worker.terminate();
    worker.ended().await;
    let flood = "
        WITH added AS (
            INSERT INTO runs (workspace_id, run_id, workflow_id, release_id, run_as, state, input,
                received_at)
            SELECT workspace_id, gen_random_uuid(), workflow_id, release_id, run_as, state, input,
                received_at
            FROM runs, generate_series(1, 50000) RETURNING workspace_id, run_id)
        INSERT INTO active_runs (workspace_id, run_id, state) SELECT *, 'scheduled' FROM added";
    world.database.batch_execute(flood).await.unwrap();
    let worker = world.worker().await;
    ours.assert_accepts("k").await;
    world.await_state("succeeded", 1).await;
    let ready = "SELECT count(*) FROM active_runs WHERE state = 'ready'";
    eventually("all are", async || world.count(ready).await == 50_001).await;
    let looks = r#"letterbox_statement_duration_seconds_count{statement="take_runs"}"#;
    let looks = worker.metric(looks).await;
    assert!(looks < 35.0, "{looks} looks");
}
