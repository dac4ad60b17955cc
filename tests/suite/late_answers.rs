//! Answers that come late, and steps that are written twice: a known answer is never thrown away,
//! and nothing counts twice.

use std::{collections::HashSet, sync::Arc};

use letterbox_common::states::ActionState;
use letterbox_database::Role;
use letterbox_operator::CancelOutcome;
use letterbox_tests::{EXPIRE, Peer, Proxy, Received, Reply, World, eventually, post};
use serde_json::json;
use tokio::sync::Semaphore;

/// A peer whose answers, all 200, come when the gate is opened.
async fn gated() -> (Peer, Arc<Semaphore>) {
    let gate = Arc::new(Semaphore::new(0));
    let held = gate.clone();
    let peer = Peer::start(move |_, _| Reply::When(held.clone(), 200));
    (peer.await, gate)
}

/// The database is away for longer than a lease, and comes back: the worker that knows the answers
/// records them, and sends nothing again.
#[tokio::test(flavor = "multi_thread")]
async fn an_outage_longer_than_a_lease_sends_nothing_again() {
    let world = World::new().await;
    let database = Proxy::before(&world.database_url).await;
    let (peer, gate) = gated().await;
    let gateway = world.gateway().await;
    let worker = world.worker_with(&[("DATABASE_URL", &database.url)]).await;
    let form = world
        .acting_form(&gateway, &peer.url, json!([post("send")]))
        .await;
    for n in 0..8 {
        form.assert_accepts(&n.to_string()).await;
    }
    peer.await_received(8).await;
    database.cut();
    gate.add_permits(8);
    eventually("answered while the database is away", async || {
        worker.log().matches("a step is not recorded yet").count() >= 8
    })
    .await;
    world.database.batch_execute(EXPIRE).await.unwrap();
    database.pass();
    world.await_state("succeeded", 8).await;
    assert_eq!(peer.received().len(), 8);
}

/// Another worker has taken the run, and has not begun yet: it sees the answer that the first one
/// records meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn who_takes_a_run_over_sees_an_answer_that_is_recorded_meanwhile() {
    let world = World::new().await;
    let database = Proxy::before(&world.database_url).await;
    let (peer, gate) = gated().await;
    let gateway = world.gateway().await;
    let knowing = world.worker_with(&[("DATABASE_URL", &database.url)]).await;
    let form = world
        .acting_form(&gateway, &peer.url, json!([post("send")]))
        .await;
    form.assert_accepts("k").await;
    peer.await_received(1).await;
    database.cut();
    gate.add_permits(1);
    eventually("answered while the database is away", async || {
        knowing.log().contains("a step is not recorded yet")
    })
    .await;

    // Whoever takes the run now stops while it is loaded.
    let stopping = "
        CREATE FUNCTION gate() RETURNS boolean LANGUAGE plpgsql AS $$
        BEGIN
            PERFORM pg_advisory_xact_lock_shared(42);
            RETURN true;
        END $$;
        CREATE POLICY gate ON members AS RESTRICTIVE TO letterbox_worker USING (gate());
        SELECT pg_advisory_lock(42)";
    world.database.batch_execute(stopping).await.unwrap();
    let _other = world.worker().await;
    world.database.batch_execute(EXPIRE).await.unwrap();
    let stopped = "SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database
        WHERE d.datname = current_database() AND locktype = 'advisory' AND objid = 42
          AND NOT granted";
    eventually("taken over", async || world.count(stopped).await > 0).await;
    database.pass();
    let known = "SELECT count(*) FROM run_actions WHERE state = 'succeeded' AND answered = 1";
    eventually("the answer is recorded", async || {
        world.count(known).await == 1
    })
    .await;
    let open = "SELECT pg_advisory_unlock(42)";
    world.database.batch_execute(open).await.unwrap();
    world.await_state("succeeded", 1).await;
    assert_eq!(peer.received().len(), 1);
}

/// The same, but the answer says that the action failed for good: it is not sent again, either.
#[tokio::test(flavor = "multi_thread")]
async fn a_late_failure_fails_the_run() {
    let world = World::new().await;
    let gate = Arc::new(Semaphore::new(0));
    let held = gate.clone();
    let peer = Peer::start(move |_, _| Reply::When(held.clone(), 422)).await;
    let database = Proxy::before(&world.database_url).await;
    let gateway = world.gateway().await;
    let worker = world.worker_with(&[("DATABASE_URL", &database.url)]).await;
    let form = world
        .acting_form(&gateway, &peer.url, json!([post("send")]))
        .await;
    form.assert_accepts("k").await;
    peer.await_received(1).await;
    database.cut();
    gate.add_permits(1);
    eventually("answered while the database is away", async || {
        worker.log().contains("a step is not recorded yet")
    })
    .await;
    // As if another worker had taken it, and had died before it began.
    let taken = "UPDATE active_runs SET turn = turn + 1, due_at = clock_timestamp()
        + interval '1 hour'";
    world.database.batch_execute(taken).await.unwrap();
    database.pass();
    let known = "SELECT count(*) FROM run_actions WHERE state = 'failed'";
    eventually("the answer is recorded", async || {
        world.count(known).await == 1
    })
    .await;
    world.database.batch_execute(EXPIRE).await.unwrap();
    world.await_state("failed", 1).await;
    let run = world.run_of(&form).await;
    let why = run.row.failure.unwrap();
    assert_eq!(why, "send: answered with status 422");
    assert_eq!(run.actions[0].state, ActionState::Failed);
    assert_eq!(peer.received().len(), 1);
}

/// The run is cancelled before the answer is recorded, which is 'not now'. Nothing was done:
/// retried, the action begins anew, by another approval, under another key, with all its attempts,
/// and without a pause.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_put_off_after_its_run_is_over_begins_anew() {
    let world = World::new().await;
    let gate = Arc::new(Semaphore::new(0));
    let held = gate.clone();
    let script = move |_: &Received, before| match before {
        0 => Reply::When(held.clone(), 429),
        _ => Reply::Status(200),
    };
    let peer = Peer::start(script).await;
    let database = Proxy::before(&world.database_url).await;
    let gateway = world.gateway().await;
    let worker = world
        .worker_with(&[
            ("DATABASE_URL", database.url.as_str()),
            ("LETTERBOX_RETRY_MILLISECONDS", "3600000"),
        ])
        .await;
    let form = world
        .acting_form(&gateway, &peer.url, json!([post("send")]))
        .await;
    let operator = world.operator().await;
    let policy = json!({"rules": [], "default": "approve"}).to_string();
    let setting = operator.set_policy(form.workspace, &policy);
    setting.await.unwrap();
    form.assert_accepts("k").await;
    world.await_state("waiting_approval", 1).await;
    let first = world.waiting(form.workspace).await.remove(0);
    let approving = operator.approve(first.approval_id, form.owner);
    approving.await.unwrap();
    peer.await_received(1).await;
    database.cut();
    gate.add_permits(1);
    eventually("answered while the database is away", async || {
        worker.log().contains("a step is not recorded yet")
    })
    .await;
    world.database.batch_execute(EXPIRE).await.unwrap();
    let outcome = operator.cancel_run(first.run_id).await.unwrap();
    assert_eq!(outcome, CancelOutcome::Cancelled);
    database.pass();
    let known = "SELECT count(*) FROM run_actions WHERE answered = 1 AND unanswered = 0";
    eventually("the answer is recorded", async || {
        world.count(known).await == 1
    })
    .await;

    operator.retry_run(first.run_id).await.unwrap();
    world.await_state("waiting_approval", 1).await;
    let second = world.waiting(form.workspace).await.remove(0);
    assert_ne!(second.approval_id, first.approval_id);
    let approving = operator.approve(second.approval_id, form.owner);
    approving.await.unwrap();
    world.await_state("succeeded", 1).await;
    let received = peer.await_received(2).await;
    let keys = received.iter().map(|one| one.header("idempotency-key"));
    let keys: HashSet<_> = keys.collect();
    assert_eq!(keys.len(), 2, "sent under a new key");
    assert_eq!(world.run_of(&form).await.actions[0].attempts, 1);
}

/// The answer to a commit is lost, and the step is written again. It counts once: what may have
/// been done under a key is still known, and a retry keeps the key.
#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_is_written_twice_counts_once() {
    let world = World::new().await;
    let script = |_: &Received, before| match before {
        // It may have been done; then two answers that say that they did nothing.
        0 => Reply::Status(502),
        1 => Reply::Status(429),
        2 => Reply::Status(404),
        _ => Reply::Status(200),
    };
    let peer = Peer::start(script).await;
    let database = Proxy::before(&world.database_url).await;
    let gateway = world.gateway().await;
    let worker = world
        .worker_with(&[
            ("DATABASE_URL", database.url.as_str()),
            ("LETTERBOX_RETRY_MILLISECONDS", "1000"),
        ])
        .await;
    let form = world
        .acting_form(&gateway, &peer.url, json!([post("send")]))
        .await;
    // The commit of the second answer waits.
    let waiting = "
        CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            PERFORM pg_advisory_xact_lock_shared(43);
            RETURN NULL;
        END $$;
        CREATE CONSTRAINT TRIGGER wait AFTER UPDATE ON run_actions DEFERRABLE INITIALLY DEFERRED
            FOR EACH ROW WHEN (NEW.attempts = 2 AND OLD.attempts = 1)
            EXECUTE FUNCTION wait()";
    world.database.batch_execute(waiting).await.unwrap();
    let holder = world.session(Role::Login).await;
    holder
        .batch_execute("SELECT pg_advisory_lock(43)")
        .await
        .unwrap();
    form.assert_accepts("k").await;
    let stopped = "SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database
        WHERE d.datname = current_database() AND locktype = 'advisory' AND objid = 43
          AND NOT granted";
    eventually("it commits", async || world.count(stopped).await > 0).await;
    // The worker never hears that it has committed.
    database.cut();
    holder
        .batch_execute("SELECT pg_advisory_unlock(43)")
        .await
        .unwrap();
    eventually("not known to be recorded", async || {
        worker.log().contains("a step is not recorded yet")
    })
    .await;
    let committed = "SELECT count(*) FROM run_actions WHERE attempts = 2";
    eventually("but it is", async || world.count(committed).await == 1).await;
    database.pass();
    world.await_state("failed", 1).await;
    let unanswered = "SELECT unanswered::bigint FROM run_actions";
    assert_eq!(
        world.count(unanswered).await,
        1,
        "the first may have been done"
    );
    let run = world.run_of(&form).await;
    assert_eq!(run.actions[0].attempts, 3);

    let operator = world.operator().await;
    operator.retry_run(run.row.run_id).await.unwrap();
    world.await_state("succeeded", 1).await;
    let received = peer.await_received(4).await;
    let keys = received.iter().map(|one| one.header("idempotency-key"));
    let keys: HashSet<_> = keys.collect();
    assert_eq!(keys.len(), 1, "sent again under its key");
}
