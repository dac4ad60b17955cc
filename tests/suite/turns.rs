//! Turns of runs: what a holder knows is not forgotten, what it must not do any more it does not
//! do, and what comes to nothing ends.

use letterbox_database::Role;
use letterbox_tests::{EXPIRE, Peer, Process, Proxy, Reply, Scene, World, eventually, post};
use serde_json::json;

/// Runs that the transaction has taken, and begun, that has recorded them, and nobody since.
const ALONG: &str = "
    SELECT count(*) FROM runs r JOIN active_runs a USING (workspace_id, run_id)
    JOIN run_actions b USING (workspace_id, run_id)
    WHERE a.state = 'taken' AND r.xmin = a.xmin AND r.xmin = b.xmin";

/// How many runs may be recorded while somebody looks; a link takes as many in a minute.
const TRIES: i64 = 12;

/// Waits until a worker has looked for runs twice.
async fn await_looks(worker: &Process) {
    let looks = async || worker.calls("take_runs").await;
    let before = looks().await;
    eventually("looked", async || looks().await >= before + 2.0).await;
}

/// A worker that is told to stop finishes the action that it has begun; another one goes on at
/// once.
#[tokio::test(flavor = "multi_thread")]
async fn a_stopping_worker_begins_nothing() {
    let (peer, gate) = Peer::gated(200).await;
    let actions = json!([post("first"), post("second"), post("third")]);
    let Scene {
        world,
        form,
        worker: mut stopping,
        gateway: _gateway,
    } = Scene::new(&peer, actions).await;
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
    peer.await_received(3).await;
    assert_eq!(peer.targets(), ["/first", "/second", "/third"]);
}

/// The broker goes away, and then the worker is told to stop: it finishes the request that is in
/// flight all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_stops_without_a_broker_finishes_its_requests() {
    let (world, gateway) = World::with_gateway().await;
    let broker = Proxy::before(&world.amqp_url).await;
    let (peer, gate) = Peer::gated(200).await;
    let mut stopping = world.worker_with(&[("AMQP_URL", &broker.url)]).await;
    let form = world.sending_form(&gateway, &peer).await;
    form.assert_accepts("k").await;
    peer.await_received(1).await;
    broker.cut();
    stopping.await_log("broker connection ended").await;
    stopping.terminate();
    stopping.await_log("\"reason\":\"stopping\"").await;
    // It waits, for as long as another one looks for runs a few times.
    let other = world.worker().await;
    eventually("a while", async || other.calls("take_runs").await >= 8.0).await;
    gate.add_permits(1);
    assert!(stopping.ended().await.success());
    world.await_state("succeeded", 1).await;
    assert_eq!(peer.received().len(), 1);
}

/// A table that every step needs is locked for as long as twenty turns would take: the runs wait,
/// and none is given up.
#[tokio::test(flavor = "multi_thread")]
async fn an_outage_of_one_table_fails_nothing() {
    let (peer, gate) = Peer::gated(200).await;
    let scene = Scene::new(&peer, json!([post("first"), post("second")])).await;
    let (world, worker) = (&scene.world, &scene.worker);
    scene.form.assert_accepts("k").await;
    peer.await_received(1).await;
    let locking = world.session(Role::Login).await;
    let lock = "BEGIN; LOCK TABLE run_actions IN ACCESS EXCLUSIVE MODE";
    locking.batch_execute(lock).await.unwrap();
    gate.add_permits(1);
    for _ in 0..21 {
        world.change(EXPIRE).await;
        await_looks(worker).await;
    }
    locking.batch_execute("ROLLBACK").await.unwrap();
    world.await_state("succeeded", 1).await;
    assert_eq!(peer.targets(), ["/first", "/second"]);
}

/// A run whose holders end without a word, over and over, is given up.
#[tokio::test(flavor = "multi_thread")]
async fn turns_that_come_to_nothing_end() {
    let (peer, _gate) = Peer::gated(200).await;
    let mut scene = Scene::new(&peer, json!([post("send")])).await;
    scene.form.assert_accepts("k").await;
    peer.await_received(1).await;
    scene.worker.kill().await;
    let world = &scene.world;
    let idle = "SELECT idle_turns::bigint FROM active_runs";
    world.assert_count(idle, 1).await;
    world.change("UPDATE active_runs SET idle_turns = 20").await;
    world.change(EXPIRE).await;
    let _worker = world.worker().await;
    world.await_state("failed", 1).await;
    scene.assert_failed("20 turns in a row").await;
    assert_eq!(peer.received().len(), 1);
}

/// An action is denied at the moment at which it is about to be sent, because the policy lets it
/// through meanwhile: it is not sent.
#[tokio::test(flavor = "multi_thread")]
async fn a_denial_at_the_last_moment_counts() {
    let (peer, scene) = Scene::posting("send").await;
    let approval = scene.ask().await;
    let world = &scene.world;
    world.await_idle().await;
    scene.decide("allow").await;

    // Whoever takes the run comes as far as the record of the action.
    let blocking = world.session(Role::Login).await;
    let lock = "BEGIN; SELECT FROM run_actions FOR UPDATE";
    blocking.batch_execute(lock).await.unwrap();
    world.change(EXPIRE).await;
    eventually("about to begin", async || world.locks_out().await).await;
    world.deny(approval.approval_id, scene.form.owner).await;
    blocking.batch_execute("ROLLBACK").await.unwrap();

    eventually("let go", async || !world.locks_out().await).await;
    world.change(EXPIRE).await;
    world.await_state("denied", 1).await;
    assert_eq!(peer.received().len(), 0);
}

/// Very many runs come due at one moment, in a workspace that is held: they wait in their lanes
/// after a few looks, and who else is due is not kept waiting.
#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_due_runs_is_in_its_lanes_soon() {
    let peer = Peer::start(|_, _| Reply::Status(200)).await;
    let (world, gateway, mut worker) = World::with_both().await;
    let theirs = world.sending_form(&gateway, &peer).await;
    let ours = world.sending_form(&gateway, &peer).await;
    world.order(format!("workspace hold {}", theirs.workspace));
    theirs.assert_accepts("k").await;
    world.await_runs(1).await;
    worker.terminate();
    worker.ended().await;
    world
        .copy_runs(50_000, theirs.workspace, "state", "'scheduled'")
        .await;
    let worker = world.worker().await;
    world.submit_until(&ours, "k", "succeeded", 1).await;
    let ready = "SELECT count(*) FROM active_runs WHERE state = 'ready'";
    world.await_count("all are", ready, 50_001).await;
    let looks = worker.calls("take_runs").await;
    assert!(looks < 35.0, "{looks} looks");
}

/// A run is taken, and its first attempt begins, with the transaction that records it, unless
/// somebody looks just then.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_recorded_is_taken_along() {
    let (peer, gate) = Peer::gated(200).await;
    let scene = Scene::new(&peer, json!([post("send")])).await;
    let world = &scene.world;
    for number in 1..=TRIES {
        scene.form.assert_accepts(&format!("k{number}")).await;
        peer.await_received(number as usize).await;
        let is_along = world.count(ALONG).await > 0;
        gate.add_permits(1);
        world.await_state("succeeded", number).await;
        if is_along {
            return;
        }
        gate.forget_permits(1);
        // One that has taken it may not know that nothing else waits.
        await_looks(&scene.worker).await;
    }
    panic!("no run was taken along");
}

/// The message of a run comes once more when its turn has, and people have its row locked: who
/// records what came with it does not wait for them.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_recorded_before_is_not_taken_along() {
    let peer = Peer::start(|_, _| Reply::Status(200)).await;
    let (world, gateway) = World::with_gateway().await;
    let form = world.sending_form(&gateway, &peer).await;
    form.assert_accepts("k").await;
    let message = world.take_submissions().await;
    let worker = world.worker().await;
    // What is executed before the commit is of a known release.
    form.assert_accepts("known").await;
    world.await_state("succeeded", 1).await;
    world.order(format!("workspace hold {}", form.workspace));
    world.publish_unclaimed(message.clone()).await;
    world.await_runs(2).await;
    let later = "UPDATE active_runs SET state = 'scheduled', due_at = now() + interval '1 hour'";
    world.change(later).await;
    world.order(format!("workspace release {}", form.workspace));
    await_looks(&worker).await;

    let people = world.session(Role::Login).await;
    let locked = "BEGIN; SELECT FROM runs FOR UPDATE";
    people.batch_execute(locked).await.unwrap();
    let gate = world.session(Role::Login).await;
    let shut = "BEGIN; SELECT FROM run_usage FOR UPDATE";
    gate.batch_execute(shut).await.unwrap();
    world.publish_unclaimed(message).await;
    eventually("it is recorded", async || world.locks_out().await).await;
    let due = format!("{EXPIRE}, state = 'ready'; COMMIT");
    gate.batch_execute(&due).await.unwrap();
    let repeated = "letterbox_runs_total{outcome=\"repeated\"}";
    worker.await_metric(repeated, 1.0).await;
    assert!(!worker.log().contains("\"statement\":\"record_runs\""));
    people.batch_execute("ROLLBACK").await.unwrap();
    world.await_state("succeeded", 2).await;
}

/// Somebody has locked the turns, or what this worker reports of itself: it can't look, but what is
/// submitted is recorded all the same, and at once.
#[tokio::test(flavor = "multi_thread")]
async fn recording_fails_for_no_look() {
    let (peer, scene) = Scene::posting("send").await;
    let (world, worker) = (&scene.world, &scene.worker);
    let failures = |statement: &str| {
        let failed = format!("\"statement\":\"{statement}\"");
        worker.log().matches(&failed).count()
    };
    let mut submitted = 0;
    // Between two looks, which wait for the lock.
    let mut submit = async || {
        let before = failures("take_runs");
        eventually("a look fails", async || failures("take_runs") > before).await;
        submitted += 1;
        scene.form.assert_accepts(&format!("k{submitted}")).await;
        world.await_runs(submitted).await;
        submitted
    };
    let locking = world.session(Role::Login).await;
    let lock = "BEGIN; LOCK TABLE turn_lock IN EXCLUSIVE MODE";
    locking.batch_execute(lock).await.unwrap();
    submit().await;
    locking.batch_execute("ROLLBACK").await.unwrap();
    world.await_state("succeeded", 1).await;

    let mut runs = 1;
    while failures("record_runs") == 0 && runs < 6 {
        await_looks(worker).await;
        let lock = "BEGIN; SELECT FROM workers FOR UPDATE";
        locking.batch_execute(lock).await.unwrap();
        runs = submit().await;
        locking.batch_execute("ROLLBACK").await.unwrap();
        world.await_state("succeeded", runs).await;
    }
    assert_eq!(failures("record_runs"), 1);
    assert_eq!(worker.calls("put_aside").await, 0.0, "at once");
    assert_eq!(peer.received().len(), runs as usize);
}

/// The answer to a commit is lost by which a run was recorded, taken and begun: it is let go of,
/// nobody waits for the end of its lease, and what was not sent does not count as sent.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_taken_unseen_is_let_go_of() {
    let (peer, gate) = Peer::gated(200).await;
    let (world, gateway) = World::with_gateway().await;
    // The first answer of each submission.
    let loses = ["1*return(fail)"; TRIES as usize].join("->1*off->");
    let loses = format!("statement.record_runs.after={loses}");
    let loses = ("FAILPOINTS", &*loses);
    let lease = ("LETTERBOX_RUN_LEASE_SECONDS", "600");
    let worker = world.worker_with(&[loses, lease]).await;
    let form = world.sending_form(&gateway, &peer).await;
    for number in 1..=TRIES {
        form.assert_accepts(&format!("k{number}")).await;
        let mut is_taken = false;
        eventually("taken, or sent", async || {
            is_taken = world.count(ALONG).await > 0;
            is_taken || peer.received().len() as i64 == number
        })
        .await;
        let received = peer.await_received(number as usize).await;
        assert_eq!(received.len() as i64, number);
        if is_taken {
            let second = "SELECT count(*) FROM run_actions WHERE begun = 2 AND unanswered = 1";
            world.assert_count(second, 1).await;
        }
        gate.add_permits(1);
        world.await_state("succeeded", number).await;
        if is_taken {
            return;
        }
        gate.forget_permits(1);
        await_looks(&worker).await;
    }
    panic!("no run was taken along");
}

/// A run that is executed before its recording is committed sends nothing if that fails, and counts
/// nothing as stored; it is recorded again.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_recorded_has_not_happened() {
    let peer = Peer::start(|_, _| Reply::Status(200)).await;
    let (world, gateway) = World::with_gateway().await;
    let fails = ["1*return(fail)"; TRIES as usize].join("->1*off->");
    let fails = format!("commit.record_runs.before={fails}");
    let mut worker = world.worker_with(&[("FAILPOINTS", &*fails)]).await;
    let forms = [
        world.sending_form(&gateway, &peer).await,
        world.sending_form(&gateway, &peer).await,
    ];
    let [sends, asks] = &forms;
    world.decide(asks.workspace, "approve").await;
    for number in 1..=4 {
        sends.assert_accepts(&format!("k{number}")).await;
        world.await_state("succeeded", number).await;
        asks.assert_accepts(&format!("k{number}")).await;
        world.await_state("waiting_approval", number).await;
        await_looks(&worker).await;
    }
    assert_eq!(peer.received().len(), 4);
    let once = "SELECT count(*) FROM run_actions WHERE begun = 1 AND answered = 1";
    world.assert_count(once, 4).await;
    worker.terminate();
    worker.ended().await;
    let stored = "SELECT sum(bytes)::bigint FROM stored_bytes WHERE webhook_id IS NULL";
    let each = "SELECT (SELECT sum(octet_length(input) + 512) FROM runs)
        + (SELECT sum(octet_length(request) + 512) FROM run_actions)";
    assert_eq!(world.count(stored).await, world.count(each).await);
}

/// A run that ends without a request ends once it is recorded, not when its lease is over.
#[tokio::test(flavor = "multi_thread")]
async fn what_sends_nothing_ends_once_it_is_recorded() {
    let peer = Peer::start(|_, _| Reply::Status(200)).await;
    let (world, gateway) = World::with_gateway().await;
    let slow = "commit.record_runs.before=1*off->return(slow)";
    let slow = ("FAILPOINTS", slow);
    let lease = ("LETTERBOX_RUN_LEASE_SECONDS", "600");
    let worker = world.worker_with(&[slow, lease]).await;
    let fails = json!([{"id": "no", "type": "fail", "reason": "no"}]);
    let form = world.acting_form(&gateway, &peer.url, fails).await;
    for number in 1..=3 {
        form.assert_accepts(&format!("k{number}")).await;
        world.await_state("failed", number).await;
        await_looks(&worker).await;
    }
}

/// More lanes are held than two looks consider: who waits behind them has a turn.
#[tokio::test(flavor = "multi_thread")]
async fn held_lanes_hide_nobody() {
    let peer = Peer::start(|_, _| Reply::Status(200)).await;
    let (world, gateway, mut worker) = World::with_both().await;
    let mut forms = [
        world.sending_form(&gateway, &peer).await,
        world.sending_form(&gateway, &peer).await,
    ];
    forms.sort_by_key(|form| form.workspace);
    let [held, open] = &forms;
    world.order(format!("workspace hold {}", held.workspace));
    held.assert_accepts("k").await;
    world.await_runs(1).await;
    worker.terminate();
    worker.ended().await;
    world
        .copy_runs(600, held.workspace, "account_id", "gen_random_uuid()")
        .await;
    let _worker = world.worker().await;
    open.assert_accepts("k").await;
    world.await_state("succeeded", 1).await;
}
