//! What one tenant keeps locked stops nobody else: neither what comes in, nor what runs.
//!
//! Each test locks rows as a session of the desk in foreign hands can, for as long as it likes.

use std::time::Duration;

use futures_util::future::join_all;
use letterbox_common::{ids::WorkspaceId, sealing::KeyRing};
use letterbox_database::Role;
use letterbox_operator::Closing;
use letterbox_tests::{
    Answer, Form, Peer, Process, Reply, Scene, Webhook, World, eventually, payload, post, value,
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

fn signals_of(workspace: WorkspaceId) -> String {
    format!("signals WHERE workspace_id = '{workspace}'")
}

fn done_of(form: &Form) -> String {
    let workspace = form.workspace;
    format!("runs WHERE state = 'succeeded' AND workspace_id = '{workspace}'")
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
    world.await_rows(&signals_of(others.workspace), 3).await;
    // The queue goes on.
    assert!(other.send("[\"later\"]").await.is_first());
    world.await_rows(&signals_of(others.workspace), 4).await;
    world.assert_rows(&signals_of(its.workspace), 0).await;
    drop(lock);
    world.await_rows(&signals_of(its.workspace), 30).await;
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
    let secret = made.secret_text().unwrap();
    let successor = Webhook::new(&gateway.public_url(), made.address, secret);
    let lock = lock(&world, &format!("webhooks WHERE webhook_id = '{id}'")).await;
    assert!(successor.send("[1]").await.is_first());
    assert!(other.send("[1]").await.is_first());
    let ended = "SELECT count(*) FROM webhooks WHERE deleted_at IS NOT NULL";
    assert_eq!(world.count(ended).await, 0);
    // A connection that is only dropped may keep the lock for another moment.
    lock.batch_execute("ROLLBACK").await.unwrap();
    assert!(successor.send("[2]").await.is_first());
    world.await_count("the former has ended", ended, 1).await;
}

/// Also of what was spilled, of one batch and of more than is taken at once.
#[tokio::test(flavor = "multi_thread")]
async fn a_locked_webhook_holds_up_what_was_spilled_of_its_own_only() {
    let (world, broker, gateway) = World::with_broker_proxy(&[]).await;
    let away = ("AMQP_URL", broker.url.as_str());
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
    // Half of its own were taken before, so that each is tried by itself.
    let its_own = format!("workspace_id = '{}' AND spill_id % 2 = 0", its.workspace);
    let suspect = format!("UPDATE spilled_messages SET takes = 5 WHERE {its_own}");
    world.change(&suspect).await;
    let _worker = world.start("letterbox-worker", &[away]);
    world.await_rows(&signals_of(others.workspace), 20).await;
    assert!(other.send("[\"later\"]").await.is_first());
    assert!(second.send("[\"later\"]").await.is_first());
    world.await_rows(&signals_of(others.workspace), 21).await;
    // Its own of another door.
    world.await_rows(&signals_of(its.workspace), 1).await;
    drop(lock);
    world.await_signals(122).await;
    world.await_rows("spilled_messages", 0).await;
}

/// What is set aside has a bound: above its share of the spill nothing more is accepted for a
/// workspace until it is stored. Its batch is known, so that none of it counts as lost.
#[tokio::test(flavor = "multi_thread")]
async fn what_waits_for_a_lock_is_bounded() {
    let world = World::new().await;
    let gateway = world
        .gateway_with(&[("LETTERBOX_SPILL_MESSAGES", "8")])
        .await;
    let _worker = world.worker().await;
    let (locked, other) = (world.webhook(&gateway).await, world.webhook(&gateway).await);
    let its = locked.address;
    let row = format!("webhooks WHERE webhook_id = '{}'", its.webhook);
    let lock = lock(&world, &row).await;
    for number in 0..2 {
        assert!(locked.send(format!("[{number}]")).await.is_first());
    }
    let aside = format!(
        "spilled_messages s WHERE is_aside AND workspace_id = '{}'
            AND batch_id IN (SELECT d.batch_id FROM webhook_deliveries d)",
        its.workspace
    );
    world.await_rows(&aside, 2).await;
    let mut number = 2;
    eventually("its share is used up", async || {
        number += 1;
        locked.send(format!("[{number}]")).await.status == 503
    })
    .await;
    assert!(locked.send("[0]").await.is_duplicate());
    assert!(other.send("[0]").await.is_first());
    drop(lock);
    eventually("it has room again", async || {
        locked.send("[2]").await.status == 202
    })
    .await;
    world.await_rows("spilled_messages", 0).await;
}

/// What another worker has stored meanwhile holds up nothing that was taken with it, and what it
/// has taken meanwhile is left to it.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_is_late_holds_up_nothing_of_the_spill() {
    let (world, broker, gateway) = World::with_broker_proxy(&[]).await;
    broker.cut();
    eventually("noticed", async || !gateway.is_whole().await).await;
    let (webhook, locked) = (world.webhook(&gateway).await, world.webhook(&gateway).await);
    for number in 0..8 {
        assert!(webhook.send(format!("[{number}]")).await.is_first());
    }
    assert!(locked.send("[]").await.is_first());
    let row = format!("webhooks WHERE webhook_id = '{}'", locked.address.webhook);
    let _lock = lock(&world, &row).await;
    // One is gone when it is to be deleted.
    let gone =
        "CREATE FUNCTION is_gone() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
        CREATE TRIGGER is_gone BEFORE DELETE ON spilled_messages FOR EACH ROW
            WHEN (OLD.body LIKE '%[3]%') EXECUTE FUNCTION is_gone()";
    world.change(gone).await;
    let away = ("AMQP_URL", broker.url.as_str());
    let worker = world.start("letterbox-worker", &[away]);
    // One is taken by another worker before it is settled.
    let take_again = format!(
        "UPDATE spilled_messages SET takes = 2, lease_until = now() + interval '70 s'
        WHERE takes = 1 AND workspace_id = '{}'",
        locked.address.workspace
    );
    let take_again = async || world.database.execute(&take_again, &[]).await.unwrap() == 1;
    eventually("another one takes it", take_again).await;
    world.await_signals(7).await;
    let settled = "letterbox_statement_duration_seconds_count{statement=\"settle_spilled\"";
    eventually("what is locked is put off", async || {
        worker.metric(settled).await >= 2.0
    })
    .await;
    let taken = "spilled_messages WHERE takes = 2 AND lease_until > now() + interval '20 s'";
    world.assert_rows(taken, 1).await;
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
    let actions = json!([post("gated"), post("send")]);
    let other = world.acting_form(&scene.gateway, &peer.url, actions);
    let other = other.await;
    for number in 0..4 {
        locked.assert_accepts(&format!("k{number}")).await;
        other.assert_accepts(&format!("k{number}")).await;
    }
    peer.await_received(8).await;
    let rows = format!("active_runs WHERE workspace_id = '{}'", locked.workspace);
    let lock = lock(world, &rows).await;
    gate.add_permits(100);
    world.await_rows(&done_of(&other), 4).await;
    world.assert_rows(&done_of(locked), 0).await;
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
    let other = world.sending_form(&scene.gateway, &peer).await;
    let (its, others) = (locked.workspace, other.workspace);
    for (workspace, form) in [(its, locked), (others, &other)] {
        world.order(format!("workspace hold {workspace}"));
        form.assert_accepts("k").await;
    }
    world.await_runs(2).await;
    scene.worker.terminate();
    scene.worker.ended().await;
    let due = "now() - interval '2 minutes', 'scheduled'";
    world.copy_runs(1_200, its, "due_at, state", due).await;
    let due = format!(
        "UPDATE active_runs SET state = 'taken', turn = 1, due_at = now() - interval '1 second'
        WHERE workspace_id = '{others}'"
    );
    world.change(&due).await;
    for workspace in [its, others] {
        world.order(format!("workspace release {workspace}"));
    }
    let rows = format!("active_runs WHERE workspace_id = '{its}'");
    let _lock = lock(world, &rows).await;
    let _worker = world.worker().await;
    world.await_rows(&done_of(&other), 1).await;
    world.assert_rows(&done_of(locked), 0).await;
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
    let other = world.sending_form(gateway, &peer).await;
    let mut webhooks = Vec::new();
    // A replaced webhook of each, whose time is over; refusals of each; runs that are over.
    for form in [locked, &other] {
        webhooks.push(world.webhook_in(gateway, form.workspace).await);
        let granting = world.connect_by_grant(form.workspace, form.owner, "granted", &peer.url);
        granting.await;
        let former = world.webhook_in(gateway, form.workspace).await.address;
        world.order(format!("webhook replace {} --overlap 0s", former.webhook));
        form.assert_accepts("before").await;
    }
    world.await_state("succeeded", 2).await;
    let lockable = "SELECT relname::text FROM pg_class
        WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'
          AND has_any_column_privilege('letterbox_desk', oid, 'UPDATE')";
    let lockable: Vec<String> = world.column(lockable).await;
    assert!(lockable.contains(&"workspaces".to_owned()), "{lockable:?}");
    let mut locks = Vec::new();
    let others = ["runs", "run_usage"].map(str::to_owned);
    for table in lockable.into_iter().chain(others) {
        let rows = format!("{table} WHERE workspace_id = '{}'", locked.workspace);
        locks.push(lock(world, &rows).await);
    }
    // Both workspaces do the same; what is done of the locked one may wait.
    for one in &webhooks {
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
    let is_done = async |from: &str| {
        let done = format!("{from} AND workspace_id = '{workspace}'");
        eventually(&done, async || world.rows(&done).await > 0).await;
    };
    is_done("signals WHERE true").await;
    world.await_rows(&done_of(&other), 2).await;
    is_done("connected_accounts WHERE name = 'granted' AND waits_for IS NULL").await;
    is_done("stored_bytes WHERE bytes > 0").await;
    is_done("webhook_refusals WHERE reason = 'missing'").await;
    let worker = world.session(Role::Worker).await;
    let ending = "SELECT end_replaced_webhooks()";
    worker.query_one(ending, &[]).await.unwrap();
    is_done("webhooks WHERE deleted_at IS NOT NULL AND secret_sealed IS NULL").await;
    let aged = "SET session_replication_role = replica;
        UPDATE runs SET finished_at = finished_at - interval '9 days' WHERE workspace_id = ";
    let aged = format!("{aged} '{workspace}'; RESET ALL");
    world.change(&aged).await;
    worker
        .query_one("SELECT forget('inputs', 1, 100)", &[])
        .await
        .unwrap();
    is_done("runs WHERE input IS NULL").await;
    drop(locks);
    world.await_state("succeeded", 4).await;
    world.await_rows(&signals_of(locked.workspace), 1).await;
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
        while value::<i32>(&worker, piece).await > 0 {}
    };
    sweep().await;
    world.assert_rows("runs WHERE input IS NOT NULL", 1).await;
    sweep().await;
    world.assert_rows("runs WHERE input IS NOT NULL", 1).await; // as long as it is locked
    drop(lock);
    eventually("the lock is gone", async || {
        sweep().await;
        world.rows("runs WHERE input IS NOT NULL").await == 0
    })
    .await;
}
