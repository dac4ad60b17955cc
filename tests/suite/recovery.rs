//! Runs go on: retries, killed workers, lost leases and wakes; each action is sent once, or again
//! under the same key.

use std::{collections::HashSet, sync::Arc};

use letterbox_broker::BatchBody;
use letterbox_tests::{EXPIRE, Peer, Reply, World, eventually, payload, post, submission_to};
use serde_json::json;
use tokio::sync::Semaphore;

#[tokio::test]
async fn retries_send_the_same_under_the_same_key() {
    let world = World::new().await;
    let peer = Peer::start(|request, before| match (request.target.as_str(), before) {
        ("/gone", _) => Reply::Status(404),
        ("/never", _) => Reply::Status(500),
        (_, 0) => Reply::Status(503),
        (_, 1) => Reply::With(429, vec![("retry-after", "1".into())], String::new()),
        _ => Reply::Status(200),
    })
    .await;
    let quick = [("LETTERBOX_RETRY_MILLISECONDS", "5")];
    let (gateway, _worker) = (world.gateway().await, world.worker_with(&quick).await);
    let form = world.sending_form(&gateway, &peer).await;
    world.submit_until(&form, "k", "succeeded", 1).await;
    let received = peer.await_received(3).await;
    assert!(
        received.iter().all(|request| request == &received[0]),
        "{received:#?}"
    );
    let action = &world.run_of(&form).await.actions[0];
    assert_eq!(action.attempts, 3);
    assert_eq!(action.response_status, Some(200));
    assert_eq!(action.error.as_deref(), None);

    for (failed, (id, attempts)) in (1..).zip([("gone", 1), ("never", 11)]) {
        let actions = json!([post(id), post("after")]);
        let form = world.redeployed(&gateway, &form, actions).await;
        form.assert_accepts("k").await;
        // It is recorded after it was accepted.
        world.await_state("failed", failed).await;
        let run = world.run_of(&form).await;
        assert_eq!(
            (run.actions.len(), run.actions[0].attempts),
            (1, attempts),
            "{id}: nothing comes after a failure"
        );
    }
    // Two actions of one run, and two runs, have keys of their own.
    let actions = json!([post("x"), post("y")]);
    let both = world.redeployed(&gateway, &form, actions).await;
    both.assert_accepts("k").await;
    world.await_state("succeeded", 2).await;
    let keys = HashSet::<_>::from_iter(peer.keys());
    assert_eq!(keys.len(), 5);
}

/// A worker dies after it has sent and before it has recorded the answer.
#[tokio::test]
async fn a_killed_workers_run_goes_on_from_the_record() {
    let peer = Peer::start(|_, before| match before {
        1 => Reply::Silence,
        _ => Reply::Status(200),
    })
    .await;
    let (world, gateway, mut doomed) = World::with_both().await;
    let actions = json!([post("first"), post("second"), post("third")]);
    let form = world.acting_form(&gateway, &peer.url, actions).await;
    form.assert_accepts("k").await;
    peer.await_received(2).await;
    doomed.kill().await;
    let heir = world.worker().await;
    heir.await_ready().await;
    // Nobody touches it while its lease lasts, however often they look.
    let looks = async || heir.calls("take_runs").await;
    let before = looks().await;
    eventually("looked for runs", async || looks().await >= before + 3.0).await;
    assert_eq!(peer.received().len(), 2);
    world.change(EXPIRE).await;
    world.await_state("succeeded", 1).await;
    let received = peer.await_received(4).await;
    assert_eq!(peer.targets(), ["/first", "/second", "/second", "/third"]);
    assert_eq!(received[1], received[2]); // the same request under the same key
    let actions = world.run_of(&form).await.actions;
    let attempts: Vec<_> = actions.iter().map(|one| one.attempts).collect();
    assert_eq!(attempts, [1, 1, 1]); // a worker that dies is no failed attempt
}

/// A holder whose lease is over can't write any more.
#[tokio::test]
async fn a_worker_that_lost_its_lease_writes_nothing() {
    let (peer, gate) = Peer::gated_at_first(404).await;
    let (world, gateway, mut slow) = World::with_both().await;
    let form = world.sending_form(&gateway, &peer).await;
    form.assert_accepts("k").await;
    peer.await_received(1).await;
    let _other = world.worker().await;
    world.change(EXPIRE).await;
    world.await_state("succeeded", 1).await;
    let before = serde_json::to_value(world.run_of(&form).await).unwrap();
    // The slow one hears of a failure now, and finishes what it has begun before it stops.
    gate.add_permits(1);
    slow.terminate();
    assert!(slow.ended().await.success());
    assert_eq!(
        serde_json::to_value(world.run_of(&form).await).unwrap(),
        before
    );
}

/// A holder that fails when its lease is over does not end the run that somebody else has now.
#[tokio::test]
async fn a_worker_that_lost_its_lease_ends_nothing() {
    let [first, second] = [(); 2].map(|()| Arc::new(Semaphore::new(0)));
    let gates = [first.clone(), second.clone()];
    let peer = Peer::start(move |_, before| Reply::When(gates[before].clone(), 200)).await;
    let (world, gateway, _slow) = World::with_both().await;
    let form = world.sending_form(&gateway, &peer).await;
    form.assert_accepts("k").await;
    peer.await_received(1).await;
    let _other = world.worker().await;
    world.change(EXPIRE).await;
    peer.await_received(2).await;
    // The first answer that is recorded now is refused by the database, which is nobody's outage.
    let refuse = "
        CREATE SEQUENCE refusals;
        GRANT USAGE ON SEQUENCE refusals TO PUBLIC;
        CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF nextval('refusals') = 1 THEN
                RAISE EXCEPTION 'no' USING ERRCODE = 'data_exception';
            END IF;
            RETURN NULL;
        END $$;
        CREATE TRIGGER refuse BEFORE UPDATE ON runs FOR EACH STATEMENT EXECUTE FUNCTION refuse();";
    world.change(refuse).await;
    first.add_permits(1);
    // Refused, and then it tries to end the run.
    eventually("refused", async || {
        world.count("SELECT last_value FROM refusals").await >= 2
    })
    .await;
    second.add_permits(1);
    world.await_state("succeeded", 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn five_hundred_runs_over_two_workers_are_each_executed_once() {
    let peer = Peer::start(|_, _| Reply::Status(200)).await;
    let (world, gateway) = World::with_gateway().await;
    let actions = json!([post("one"), post("two")]);
    let form = world.acting_form(&gateway, &peer.url, actions).await;
    let workflow = world.operator().await.workflow(form.workflow).await;
    let release = workflow.unwrap().row.release_id.unwrap();
    let body = payload().to_string();
    let submissions = (0..500).map(|_| (submission_to(&form, release), body.clone().into()));
    let submissions: Vec<_> = submissions.collect();
    for message in submissions.chunks(10).map(BatchBody::encode) {
        let message = message.into_message("forms".into(), "test".into(), "test");
        world.publish(message).await;
    }
    let _workers = [world.worker().await, world.worker().await];
    world.await_state("succeeded", 500).await;
    let received = peer.received();
    let asked: HashSet<_> = received
        .iter()
        .map(|request| (request.target.clone(), request.json()["run"].clone()))
        .collect();
    assert_eq!((received.len(), asked.len()), (1000, 1000));
    world
        .assert_rows("run_actions WHERE attempts <> 1 OR state <> 'succeeded'", 0)
        .await;
    world.assert_rows("active_runs", 0).await;
}

/// The database's clock is set back by an hour after a worker has died: its runs do not wait for
/// an hour, nor does a claim of a gateway that died.
#[tokio::test]
async fn leases_of_the_future_are_over() {
    let peer = Peer::start(|_, before| match before {
        0..4 => Reply::Silence,
        _ => Reply::Status(200),
    })
    .await;
    let (world, gateway, mut doomed) = World::with_both().await;
    let form = world.sending_form(&gateway, &peer).await;
    for key in ["k", "l", "m", "n"] {
        form.assert_accepts(key).await;
    }
    peer.await_received(4).await;
    doomed.kill().await;
    let webhook = world.webhook(&gateway).await;
    assert!(webhook.send("1").await.is_first());
    world.await_rows("open_batches", 0).await;
    world
        .change(
            "UPDATE workers SET seen_at = seen_at + interval '1 hour';
             UPDATE active_runs SET due_at = due_at + interval '1 hour';
             INSERT INTO open_batches (batch_id, lease_until)
             SELECT batch_id, clock_timestamp() + interval '1 hour' FROM webhook_deliveries
             ON CONFLICT (batch_id) DO UPDATE SET lease_until = EXCLUDED.lease_until",
        )
        .await;
    let other = world.gateway().await;
    assert!(webhook.at(&other).send("1").await.is_first());
    // Neither heir takes from the other what it has taken.
    let _heirs = (world.worker().await, world.worker().await);
    world.await_state("succeeded", 4).await;
    assert_eq!(peer.received().len(), 8);
    world.await_signals(1).await;
}
