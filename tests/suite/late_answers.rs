//! Answers that come late, and steps that are written twice: a known answer is never thrown away,
//! and nothing counts twice.

use std::collections::HashSet;

use letterbox_common::states::ActionState;
use letterbox_database::Role;
use letterbox_operator::CancelOutcome;
use letterbox_tests::{
    EXPIRE, Form, Peer, Process, Proxy, Received, Reply, World, eventually, post,
};
use serde_json::json;
use tokio::sync::Semaphore;

/// A form that posts to a peer, and a worker whose database can go away.
struct Apart {
    world: World,
    _gateway: Process,
    worker: Process,
    database: Proxy,
    form: Form,
}

impl Apart {
    async fn posting_to(peer: &Peer, settings: &[(&str, &str)]) -> Self {
        let (world, gateway) = World::with_gateway().await;
        let database = Proxy::before(&world.database_url).await;
        let through = ("DATABASE_URL", database.url.as_str());
        let worker = world.worker_with(&[settings, &[through]].concat()).await;
        let actions = json!([post("send")]);
        let form = world.acting_form(&gateway, &peer.url, actions).await;
        Self {
            world,
            _gateway: gateway,
            worker,
            database,
            form,
        }
    }

    /// Has so many requests answered while the database is away.
    async fn answer_unrecorded(&self, peer: &Peer, gate: &Semaphore, requests: usize) {
        peer.await_received(requests).await;
        self.database.cut();
        gate.add_permits(requests);
        eventually("answered while the database is away", async || {
            let log = self.worker.log();
            log.matches("a step is not recorded yet").count() >= requests
        })
        .await;
    }

    /// Lets the database come back, until what is known is recorded.
    async fn record(&self, known: &str) {
        self.database.pass();
        let known = format!("SELECT count(*) FROM run_actions WHERE {known}");
        self.world.await_count("it is recorded", &known, 1).await;
    }
}

/// The database goes away while an action is being answered: the answer is written when it is back,
/// and the action is not sent again.
#[tokio::test(flavor = "multi_thread")]
async fn a_known_answer_outlasts_an_outage_of_the_database() {
    let (peer, gate) = Peer::gated(200).await;
    let apart = Apart::posting_to(&peer, &[]).await;
    let world = &apart.world;
    apart.form.assert_accepts("k").await;
    apart.answer_unrecorded(&peer, &gate, 1).await;
    let log = || apart.worker.log();
    eventually("tried again and again", async || {
        log().matches("a step is not recorded yet").count() >= 8
    })
    .await;
    apart.database.pass();
    world.await_state("succeeded", 1).await;
    assert_eq!(peer.received().len(), 1);
    // Lines that know nothing of runs name the run that they belong to.
    let (run, log) = (
        world.run_of(&apart.form).await.row.run_id.to_string(),
        log(),
    );
    let mut failed = log.lines().filter(|line| line.contains("write_step"));
    assert!(
        log.contains("write_step") && failed.all(|line| line.contains(&run)),
        "{log}"
    );
}

/// The database is away for longer than a lease, and comes back: the worker that knows the answers
/// records them, and sends nothing again.
#[tokio::test(flavor = "multi_thread")]
async fn an_outage_longer_than_a_lease_sends_nothing_again() {
    let (peer, gate) = Peer::gated(200).await;
    let apart = Apart::posting_to(&peer, &[]).await;
    let world = &apart.world;
    for n in 0..8 {
        apart.form.assert_accepts(&n.to_string()).await;
    }
    apart.answer_unrecorded(&peer, &gate, 8).await;
    world.change(EXPIRE).await;
    apart.database.pass();
    world.await_state("succeeded", 8).await;
    assert_eq!(peer.received().len(), 8);
}

/// Another worker has taken the run, and has not begun yet: it sees the answer that the first one
/// records meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn who_takes_a_run_over_sees_an_answer_that_is_recorded_meanwhile() {
    let (peer, gate) = Peer::gated(200).await;
    let apart = Apart::posting_to(&peer, &[]).await;
    let world = &apart.world;
    apart.form.assert_accepts("k").await;
    apart.answer_unrecorded(&peer, &gate, 1).await;

    // Whoever takes the run now stops while it is loaded.
    world.shut_gate("members").await;
    let _other = world.worker().await;
    world.change(EXPIRE).await;
    world.await_at_gate().await;
    apart.record("state = 'succeeded' AND answered = 1").await;
    world.open_gate().await;
    world.await_state("succeeded", 1).await;
    assert_eq!(peer.received().len(), 1);
}

/// The same, but the answer says that the action failed for good: it is not sent again, either.
#[tokio::test(flavor = "multi_thread")]
async fn a_late_failure_fails_the_run() {
    let (peer, gate) = Peer::gated(422).await;
    let apart = Apart::posting_to(&peer, &[]).await;
    let (world, form) = (&apart.world, &apart.form);
    form.assert_accepts("k").await;
    apart.answer_unrecorded(&peer, &gate, 1).await;
    // As if another worker had taken it, and had died before it began.
    let taken = "UPDATE active_runs SET turn = turn + 1, due_at = clock_timestamp()
        + interval '1 hour'";
    world.change(taken).await;
    apart.record("state = 'failed'").await;
    world.change(EXPIRE).await;
    world.await_state("failed", 1).await;
    let run = world.run_of(form).await;
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
    let (peer, gate) = Peer::gated_at_first(429).await;
    let pause = [("LETTERBOX_RETRY_MILLISECONDS", "3600000")];
    let apart = Apart::posting_to(&peer, &pause).await;
    let (world, form) = (&apart.world, &apart.form);
    let operator = world.operator().await;
    let policy = json!({"rules": [], "default": "approve"}).to_string();
    let setting = operator.set_policy(form.workspace, &policy);
    setting.await.unwrap();
    world.submit_until(form, "k", "waiting_approval", 1).await;
    let first = world.waiting(form.workspace).await.remove(0);
    world.approve(first.approval_id, form.owner).await;
    apart.answer_unrecorded(&peer, &gate, 1).await;
    world.change(EXPIRE).await;
    let outcome = operator.cancel_run(first.run_id).await.unwrap();
    assert_eq!(outcome, CancelOutcome::Cancelled);
    apart.record("answered = 1 AND unanswered = 0").await;

    operator.retry_run(first.run_id).await.unwrap();
    world.await_state("waiting_approval", 1).await;
    let second = world.waiting(form.workspace).await.remove(0);
    assert_ne!(second.approval_id, first.approval_id);
    world.approve(second.approval_id, form.owner).await;
    world.await_state("succeeded", 1).await;
    peer.await_received(2).await;
    let keys = HashSet::<_>::from_iter(peer.keys());
    assert_eq!(keys.len(), 2, "sent under a new key");
    assert_eq!(world.run_of(form).await.actions[0].attempts, 1);
}

/// The answer to a commit is lost, and the step is written again. It counts once: what may have
/// been done under a key is still known, and a retry keeps the key.
#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_is_written_twice_counts_once() {
    let script = |_: &Received, before| match before {
        // It may have been done; then two answers that say that they did nothing.
        0 => Reply::Status(502),
        1 => Reply::Status(429),
        2 => Reply::Status(404),
        _ => Reply::Status(200),
    };
    let peer = Peer::start(script).await;
    let pause = [("LETTERBOX_RETRY_MILLISECONDS", "1000")];
    let apart = Apart::posting_to(&peer, &pause).await;
    let (world, form) = (&apart.world, &apart.form);
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
    world.change(waiting).await;
    let holder = world.session(Role::Login).await;
    holder
        .batch_execute("SELECT pg_advisory_lock(43)")
        .await
        .unwrap();
    form.assert_accepts("k").await;
    world.await_at_gate().await;
    // The worker never hears that it has committed.
    apart.database.cut();
    holder
        .batch_execute("SELECT pg_advisory_unlock(43)")
        .await
        .unwrap();
    apart.worker.await_log("a step is not recorded yet").await;
    world.await_rows("run_actions WHERE attempts = 2", 1).await;
    apart.database.pass();
    world.await_state("failed", 1).await;
    let unanswered = "SELECT unanswered::bigint FROM run_actions";
    world.assert_count(unanswered, 1).await; // the first may have been done
    let run = world.run_of(form).await;
    assert_eq!(run.actions[0].attempts, 3);

    let operator = world.operator().await;
    operator.retry_run(run.row.run_id).await.unwrap();
    world.await_state("succeeded", 1).await;
    peer.await_received(4).await;
    let keys = HashSet::<_>::from_iter(peer.keys());
    assert_eq!(keys.len(), 1, "sent again under its key");
}
