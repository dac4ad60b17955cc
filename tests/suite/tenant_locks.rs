//! What one tenant keeps locked stops nobody else: neither what comes in, nor what runs.
//!
//! Each test locks rows as a session of the desk in foreign hands can, for as long as it likes.

use std::time::Duration;

use futures_util::future::join_all;
use letterbox_common::{ids::WorkspaceId, sealing::KeyRing};
use letterbox_database::Role;
use letterbox_operator::Closing;
use letterbox_tests::{
    Answer, Form, Peer, Process, Proxy, Reply, Scene, Webhook, World, eventually, payload, post,
};
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
    let (world, gateway) = World::with_gateway().await;
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

/// A claim that fails because its tenant keeps it waiting is divided: nobody else's is refused with
/// it, however many are claimed together.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_waits_holds_up_its_own_deliveries_only() {
    let (world, gateway) = World::with_gateway().await;
    let (locked, other) = (world.webhook(&gateway).await, world.webhook(&gateway).await);
    let waits = format!(
        "CREATE FUNCTION wait_here() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN PERFORM pg_advisory_xact_lock(7); RETURN NEW; END $$;
        CREATE TRIGGER waits BEFORE INSERT ON webhook_deliveries FOR EACH ROW
            WHEN (NEW.workspace_id = '{}') EXECUTE FUNCTION wait_here();
        SELECT pg_advisory_lock(7)",
        locked.address.workspace
    );
    world.change(&waits).await;
    let sending = (0..20).map(|number| {
        let (locked, other) = (locked.clone(), other.clone());
        tokio::spawn(async move {
            let body = format!("[{number}]");
            tokio::join!(locked.send(body.clone()), other.send(body))
        })
    });
    for both in sending.collect::<Vec<_>>() {
        let (its, others) = both.await.unwrap();
        assert_eq!(its.status, 503);
        assert!(others.is_first(), "{others:?}");
    }
}

/// With the first delivery to a successor the former webhook ends, unless that is locked: then with
/// a later one.
#[tokio::test(flavor = "multi_thread")]
async fn a_locked_former_webhook_holds_up_no_delivery() {
    let (world, gateway) = World::with_gateway().await;
    let (former, other) = (world.webhook(&gateway).await, world.webhook(&gateway).await);
    let keys: KeyRing = world.webhook_keys.parse().unwrap();
    let operator = world.operator().await;
    let (id, overlap) = (former.address.webhook, Duration::from_secs(3_600));
    let made = operator
        .replace_webhook(&keys, id, None, overlap)
        .await
        .unwrap();
    let secret = String::from_utf8(made.secret.expose().to_vec()).unwrap();
    let successor = Webhook::new(&gateway.public_url(), made.address, secret);
    let lock = lock(&world, &format!("webhooks WHERE webhook_id = '{id}'")).await;
    assert!(successor.send("[1]").await.is_first());
    assert!(other.send("[1]").await.is_first());
    let ended = "SELECT count(*) FROM webhooks WHERE deleted_at IS NOT NULL";
    assert_eq!(world.count(ended).await, 0);
    drop(lock);
    assert!(successor.send("[2]").await.is_first());
    world.await_count("the former has ended", ended, 1).await;
}

/// Also of what was spilled, of one batch and of more than is taken at once.
#[tokio::test(flavor = "multi_thread")]
async fn a_locked_webhook_holds_up_what_was_spilled_of_its_own_only() {
    let world = World::new().await;
    let broker = Proxy::before(&world.amqp_url).await;
    let away = ("AMQP_URL", broker.url.as_str());
    let gateway = world.gateway_with(&[away]).await;
    broker.cut();
    eventually("noticed", async || !gateway.is_whole().await).await;
    let (locked, other) = (world.webhook(&gateway).await, world.webhook(&gateway).await);
    let (its, others) = (locked.address, other.address);
    let second = world.webhook_in(&gateway, its.workspace).await;
    let row = format!("webhooks WHERE webhook_id = '{}'", its.webhook);
    let lock = lock(&world, &row).await;
    let sending = (0..120).map(|n| {
        let door = if n % 6 == 5 { &other } else { &locked };
        door.send(format!("[{n}]"))
    });
    let sent = join_all(sending).await;
    assert!(sent.iter().all(Answer::is_first), "{sent:?}");
    let _worker = world.start("letterbox-worker", &[away]);
    eventually("the others are stored", async || {
        signals_of(&world, others.workspace).await == 20
    })
    .await;
    assert!(other.send("[\"later\"]").await.is_first());
    assert!(second.send("[\"later\"]").await.is_first());
    eventually(
        "later ones are stored, and its own of another door",
        async || {
            let of = async |one| signals_of(&world, one).await;
            (of(others.workspace).await, of(its.workspace).await) == (21, 1)
        },
    )
    .await;
    drop(lock);
    world.await_signals(122).await;
    let spilled = "SELECT count(*) FROM spilled_messages";
    world.await_count("nothing waits", spilled, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_locked_workspace_holds_up_its_own_runs_only() {
    let (peer, scene) = Scene::posting("send").await;
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

/// Also if it has more of them locked than one look takes up: what a worker that died had in hand
/// goes on.
#[tokio::test(flavor = "multi_thread")]
async fn locked_due_runs_hold_up_no_run_of_a_dead_worker() {
    let peer = Peer::start(|_, _| Reply::Status(200)).await;
    let mut scene = Scene::new(&peer, json!([post("send")])).await;
    let (world, locked) = (&scene.world, &scene.form);
    let other = world
        .acting_form(&scene.gateway, &peer.url, json!([post("send")]))
        .await;
    let (its, others) = (locked.workspace, other.workspace);
    for (workspace, form) in [(its, locked), (others, &other)] {
        world.order(format!("workspace hold {workspace}"));
        form.assert_accepts("k").await;
    }
    world.await_runs(2).await;
    scene.worker.terminate();
    scene.worker.ended().await;
    let due = format!(
        "WITH added AS (
            INSERT INTO runs (workspace_id, run_id, workflow_id, release_id, run_as, state, input,
                received_at)
            SELECT workspace_id, gen_random_uuid(), workflow_id, release_id, run_as, state, input,
                received_at
            FROM runs, generate_series(1, 1200) WHERE workspace_id = '{its}'
            RETURNING workspace_id, run_id)
        INSERT INTO active_runs (workspace_id, run_id, due_at, state)
        SELECT *, now() - interval '2 minutes', 'scheduled' FROM added;
        UPDATE active_runs SET state = 'taken', turn = 1, due_at = now() - interval '1 second'
        WHERE workspace_id = '{others}'"
    );
    world.database.batch_execute(&due).await.unwrap();
    for workspace in [its, others] {
        world.order(format!("workspace release {workspace}"));
    }
    let rows = format!("active_runs WHERE workspace_id = '{its}'");
    let _lock = lock(world, &rows).await;
    let _worker = world.worker().await;
    eventually("the other's run is over", async || {
        runs_of(world, &other, "succeeded").await == 1
    })
    .await;
    assert_eq!(runs_of(world, locked, "succeeded").await, 0);
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
    let (world, gateway) = World::with_gateway().await;
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
    world.assert_count(answers, 14).await;
}

/// Everything that people of a workspace may lock, all at once: nothing that is done for all
/// workspaces waits for it.
#[tokio::test(flavor = "multi_thread")]
async fn what_people_may_lock_stops_nothing_of_others() {
    let peer = Peer::start(|request, _| match request.target.as_str() {
        "/token" => {
            let token = r#"{"access_token":"t","token_type":"bearer","expires_in":3600}"#;
            Reply::With(200, Vec::new(), token.to_owned())
        }
        _ => Reply::Status(200),
    })
    .await;
    let scene = Scene::new(&peer, json!([post("send")])).await;
    let (world, locked, gateway) = (&scene.world, &scene.form, &scene.gateway);
    let other = world
        .acting_form(gateway, &peer.url, json!([post("send")]))
        .await;
    let (its, others) = (
        world.webhook_in(gateway, locked.workspace).await,
        world.webhook_in(gateway, other.workspace).await,
    );
    for form in [locked, &other] {
        let (workspace, owner) = (form.workspace, form.owner);
        world
            .connect_by_grant(workspace, owner, "granted", &peer.url)
            .await;
    }
    // A replaced webhook of each, whose time is over; refusals of each; runs that are over.
    for form in [locked, &other] {
        let former = world.webhook_in(gateway, form.workspace).await.address;
        world.order(format!("webhook replace {} --overlap 0s", former.webhook));
        form.assert_accepts("before").await;
    }
    world.await_state("succeeded", 2).await;
    let lockable = "SELECT relname::text FROM pg_class
        WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'
          AND has_any_column_privilege('letterbox_desk', oid, 'UPDATE')";
    let lockable = world.database.query(lockable, &[]).await.unwrap();
    let lockable: Vec<String> = lockable.iter().map(|row| row.get(0)).collect();
    assert!(lockable.contains(&"workspaces".to_owned()), "{lockable:?}");
    let mut locks = Vec::new();
    for table in lockable
        .iter()
        .map(String::as_str)
        .chain(["runs", "run_usage"])
    {
        let rows = format!("{table} WHERE workspace_id = '{}'", locked.workspace);
        locks.push(lock(world, &rows).await);
    }
    // Both workspaces do the same; what is done of the locked one may wait.
    for one in [&its, &others] {
        assert!(one.send("[]").await.is_first());
        let refused = gateway.http.post(&one.url).body("[]").send().await;
        assert_eq!(refused.unwrap().status(), 401);
    }
    for form in [locked, &other] {
        form.assert_accepts("k").await;
    }
    let due = "UPDATE grants SET renew_at = now(), client_secret_sealed = NULL,
        authorize_url = NULL";
    world.change(due).await;
    let workspace = other.workspace;
    let is_done = async |what: &str, from: &str| {
        let counted = format!("SELECT count(*) FROM {from} AND workspace_id = '{workspace}'");
        eventually(what, async || world.count(&counted).await > 0).await;
    };
    is_done("signals", "signals WHERE true").await;
    is_done(
        "runs",
        "runs WHERE state = 'succeeded' AND received_at > now() - interval '1 hour'",
    )
    .await;
    eventually("its second run is over", async || {
        runs_of(world, &other, "succeeded").await == 2
    })
    .await;
    is_done(
        "tokens",
        "connected_accounts WHERE name = 'granted' AND waits_for IS NULL",
    )
    .await;
    is_done("stored bytes", "stored_bytes WHERE bytes > 0").await;
    is_done("refusals", "webhook_refusals WHERE reason = 'missing'").await;
    let worker = world.session(Role::Worker).await;
    let ending = "SELECT end_replaced_webhooks()";
    worker.query_one(ending, &[]).await.unwrap();
    is_done(
        "ended webhooks",
        "webhooks WHERE deleted_at IS NOT NULL AND secret_sealed IS NULL",
    )
    .await;
    let aged = "SET session_replication_role = replica;
        UPDATE runs SET finished_at = finished_at - interval '9 days' WHERE workspace_id = ";
    let aged = format!("{aged} '{workspace}'; RESET ALL");
    world.change(&aged).await;
    worker
        .query_one("SELECT forget('inputs', 1, 100)", &[])
        .await
        .unwrap();
    is_done("forgotten inputs", "runs WHERE input IS NULL").await;
    drop(locks);
    world.await_state("succeeded", 4).await;
    eventually("its own signal is stored", async || {
        signals_of(world, locked.workspace).await == 1
    })
    .await;
}

/// What retention has left because it was locked, it comes back to.
#[tokio::test(flavor = "multi_thread")]
async fn retention_comes_back_to_what_was_locked() {
    let (_peer, scene) = Scene::posting("send").await;
    let world = &scene.world;
    for number in 0..3 {
        scene.form.assert_accepts(&format!("k{number}")).await;
    }
    world.await_state("succeeded", 3).await;
    let aged = "SET session_replication_role = replica;
        UPDATE runs SET finished_at = finished_at - interval '9 days'; RESET ALL";
    world.change(aged).await;
    let first = "runs WHERE run_id = (SELECT run_id FROM runs ORDER BY finished_at LIMIT 1)";
    let lock = lock(world, first).await;
    let worker = world.session(Role::Worker).await;
    let sweep = async || {
        let piece = "SELECT forget('inputs', 1, 2)";
        while worker.query_one(piece, &[]).await.unwrap().get::<_, i32>(0) > 0 {}
    };
    let left = "SELECT count(*) FROM runs WHERE input IS NOT NULL";
    sweep().await;
    world.assert_count(left, 1).await;
    sweep().await;
    world.assert_count(left, 1).await; // as long as it is locked
    drop(lock);
    eventually("the lock is gone", async || {
        sweep().await;
        world.count(left).await == 0
    })
    .await;
}
