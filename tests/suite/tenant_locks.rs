//! What one tenant keeps locked stops nobody else: neither what comes in, nor what runs.
//!
//! Each test locks rows as a session of the desk in foreign hands can, for as long as it likes.

use letterbox_common::ids::WorkspaceId;
use letterbox_database::Role;
use letterbox_operator::Closing;
use letterbox_tests::{Form, Peer, Process, Reply, Scene, World, eventually, payload, post};
use serde_json::json;
use tokio_postgres::Client;

/// A transaction that keeps rows locked until it is dropped.
async fn lock(world: &World, rows: &str) -> Client {
    let session = world.session(Role::Login).await;
    let order = format!("BEGIN; SELECT FROM {rows} FOR UPDATE");
    session.batch_execute(&order).await.unwrap();
    session
}

async fn signals_of(world: &World, workspace: WorkspaceId) -> i64 {
    let signals = format!("SELECT count(*) FROM signals WHERE workspace_id = '{workspace}'");
    world.count(&signals).await
}

async fn runs_of(world: &World, form: &Form, state: &str) -> i64 {
    let workspace = form.workspace;
    let runs = format!(
        "SELECT count(*) FROM runs WHERE workspace_id = '{workspace}' AND state = '{state}'"
    );
    world.count(&runs).await
}

/// Also when more of the locked tenant's entries wait than a worker may hold.
#[tokio::test(flavor = "multi_thread")]
async fn a_locked_webhook_holds_up_its_own_deliveries_only() {
    let world = World::new().await;
    let gateway = world.gateway().await;
    let _worker = world.worker_with(&[("LETTERBOX_PREFETCH", "8")]).await;
    let (locked, other) = (world.webhook(&gateway).await, world.webhook(&gateway).await);
    let (its, others) = (locked.address, other.address);
    let row = format!("webhooks WHERE webhook_id = '{}'", its.webhook);
    let lock = lock(&world, &row).await;
    for number in 0..30 {
        assert!(locked.send(format!("[{number}]")).await.is_first());
        if number % 10 == 0 {
            assert!(other.send(format!("[{number}]")).await.is_first());
        }
    }
    eventually("the others are stored", async || {
        signals_of(&world, others.workspace).await == 3
    })
    .await;
    // The queue goes on.
    assert!(other.send("[\"later\"]").await.is_first());
    eventually("later ones are stored", async || {
        signals_of(&world, others.workspace).await == 4
    })
    .await;
    assert_eq!(signals_of(&world, its.workspace).await, 0);
    drop(lock);
    eventually("its own are stored once", async || {
        signals_of(&world, its.workspace).await == 30
    })
    .await;
    assert_eq!(world.signals().await, 34);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_locked_workspace_holds_up_its_own_runs_only() {
    let peer = Peer::start(|_, _| Reply::Status(200)).await;
    let scene = Scene::new(&peer, json!([post("send")])).await;
    let (world, locked) = (&scene.world, &scene.form);
    let other = world
        .acting_form(&scene.gateway, &peer.url, json!([post("send")]))
        .await;
    let row = format!("workspaces WHERE workspace_id = '{}'", locked.workspace);
    let lock = lock(world, &row).await;
    for number in 0..5 {
        locked.assert_accepts(&format!("k{number}")).await;
        other.assert_accepts(&format!("k{number}")).await;
    }
    eventually("the others' runs are over", async || {
        runs_of(world, &other, "succeeded").await == 5
    })
    .await;
    drop(lock);
    world.await_state("succeeded", 10).await;
    assert_eq!(peer.received().len(), 10);
}

/// A run that cannot be written keeps nobody else's from being written.
#[tokio::test(flavor = "multi_thread")]
async fn a_locked_run_holds_up_itself_only() {
    let gate = std::sync::Arc::new(tokio::sync::Semaphore::new(0));
    let opened = gate.clone();
    let peer = Peer::start(move |request, _| match request.target.as_str() {
        "/gated" => Reply::When(opened.clone(), 200),
        _ => Reply::Status(200),
    })
    .await;
    let scene = Scene::new(&peer, json!([post("gated"), post("send")])).await;
    let (world, locked) = (&scene.world, &scene.form);
    let other = world
        .acting_form(
            &scene.gateway,
            &peer.url,
            json!([post("gated"), post("send")]),
        )
        .await;
    for number in 0..4 {
        locked.assert_accepts(&format!("k{number}")).await;
        other.assert_accepts(&format!("k{number}")).await;
    }
    peer.await_received(8).await;
    let rows = format!("active_runs WHERE workspace_id = '{}'", locked.workspace);
    let lock = lock(world, &rows).await;
    gate.add_permits(100);
    eventually("the others' runs are over", async || {
        runs_of(world, &other, "succeeded").await == 4
    })
    .await;
    assert_eq!(runs_of(world, locked, "succeeded").await, 0);
    drop(lock);
    world.await_state("succeeded", 8).await;
    assert_eq!(peer.received().len(), 16, "nothing was sent twice");
}

async fn bounded(world: &World, gateway: &Process) -> Form {
    let form = world.form(gateway).await;
    let closing = Closing {
        after_answers: Some(1_000),
        ..Closing::default()
    };
    let operator = world.operator().await;
    let link = operator.create_form_link(form.workflow, closing).await;
    form.with_token(link.unwrap().token.expose())
}

/// Those who wait for it try again; nobody else waits.
#[tokio::test(flavor = "multi_thread")]
async fn a_locked_form_link_holds_up_its_own_submissions_only() {
    let world = World::new().await;
    let gateway = world.gateway().await;
    let (locked, other) = (bounded(&world, &gateway).await, world.form(&gateway).await);
    let counted = bounded(&world, &gateway).await;
    let row = format!(
        "form_links WHERE workspace_id = '{}' AND ended_at IS NULL",
        locked.workspace
    );
    let lock = lock(&world, &row).await;
    let waiting = (0..4).map(|number| {
        let form = locked.clone();
        tokio::spawn(async move { form.submit(&format!("k{number}"), &payload()).await.status })
    });
    let waiting: Vec<_> = waiting.collect();
    for number in 0..10 {
        other.assert_accepts(&format!("k{number}")).await;
        counted.assert_accepts(&format!("k{number}")).await;
    }
    for one in waiting {
        assert_eq!(one.await.unwrap(), 503);
    }
    drop(lock);
    for number in 0..4 {
        locked.assert_accepts(&format!("k{number}")).await;
    }
    let answers = "SELECT sum(answers)::bigint FROM form_links";
    assert_eq!(world.count(answers).await, 14);
}
