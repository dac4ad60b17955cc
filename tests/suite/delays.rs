//! Time: a run that waits takes nobody's place. And what follows a failure.

use letterbox_common::states::{ActionState, RunState};
use letterbox_tests::{Peer, Reply, Scene, definition_with, eventually, post};
use letterbox_workflow::Steering;
use serde_json::{Value, json};

#[tokio::test]
async fn a_delay_takes_nobodys_place() {
    let peer = Peer::start(|_, _| Reply::Status(200)).await;
    let delay = json!({"id": "later", "type": "delay", "for": "PT2H"});
    let scene = Scene::new(&peer, json!([post("first"), delay, post("second")])).await;
    let world = &scene.world;
    scene.form.assert_accepts("k").await;
    let waiting = "SELECT count(*) FROM active_runs w JOIN run_actions a USING (run_id)
        WHERE w.state = 'scheduled' AND a.state = 'waiting'
          AND w.due_at BETWEEN now() + interval '119 min' AND now() + interval '121 min'";
    world.await_count("it waits", waiting, 1).await;
    assert_eq!(peer.received().len(), 1);

    // Woken too early, it waits for the rest.
    let early = "UPDATE active_runs SET due_at = clock_timestamp()";
    world.change(early).await;
    world.await_count("it waits on", waiting, 1).await;
    assert_eq!(peer.received().len(), 1);

    let two_hours = "
        UPDATE run_actions SET retry_at = clock_timestamp() WHERE state = 'waiting';
        UPDATE active_runs SET due_at = clock_timestamp()";
    world.change(two_hours).await;
    world.await_state("succeeded", 1).await;
    peer.await_received(2).await;
    let run = scene.the_run().await;
    assert_eq!(run.actions[1].state, ActionState::Succeeded);
}

/// A form with actions, and with actions that follow a failure.
async fn failing(peer: &Peer, on_failure: Value) -> Scene {
    let mut scene = Scene::new(peer, json!([])).await;
    let actions = json!([post("first"), post("second"), post("third")]);
    let mut definition: Value = serde_json::from_str(&definition_with(actions)).unwrap();
    definition["on_failure"] = on_failure;
    let (workspace, owner) = (scene.form.workspace, scene.form.owner);
    let definition = definition.to_string();
    let forming = scene
        .world
        .form_of(&scene.gateway, workspace, owner, &definition);
    scene.form = forming.await;
    scene
}

/// What follows a failure is done once, knows why, is marked as steered, and does not make the run
/// succeed.
#[tokio::test]
async fn what_follows_a_failure_is_done_once() {
    let peer = Peer::start(|request, _| match request.target.as_str() {
        "/second" => Reply::With(422, Vec::new(), r#"{"why":"no"}"#.into()),
        _ => Reply::Status(200),
    })
    .await;
    let alarm = json!({"id": "alarm", "type": "http.request", "account": "crm", "method": "POST",
        "path": "/alarm", "body": {"why": "{{ run.failure }}",
            "status": "{{ actions.second.status }}", "answer": "{{ actions.second.body.why }}"}});
    let scene = failing(&peer, json!([alarm])).await;
    let world = &scene.world;
    scene.submit_until("k", "failed", 1).await;
    let received = peer.await_received(3).await;
    let why = "second: answered with status 422";
    let told = json!({"why": why, "status": 422, "answer": "no"});
    assert_eq!(received[2].target.as_str(), "/alarm");
    assert_eq!(received[2].json(), told);
    let run = scene.the_run().await;
    assert_eq!(run.row.state, RunState::Failed);
    assert_eq!(run.row.failure.as_deref(), Some(why));
    assert_eq!(run.actions[2].steered_by, [Steering::Outcome]);

    let operator = world.operator().await;
    operator.retry_run(run.row.run_id).await.unwrap();
    peer.await_received(4).await;
    world.await_state("failed", 1).await;
    assert_eq!(peer.targets(), ["/first", "/second", "/alarm", "/second"]); // once
}

/// It goes through the policy like everything else, and its own failure is told beside the first.
#[tokio::test]
async fn what_follows_a_failure_is_under_the_policy_and_may_fail() {
    let peer = Peer::start(|request, _| match request.target.as_str() {
        "/second" => Reply::Status(400),
        "/alarm" => Reply::Status(404),
        _ => Reply::Status(200),
    })
    .await;
    let scene = failing(&peer, json!([post("alarm"), post("more")])).await;
    let when = json!({"untrusted": "control"});
    scene.set_rule(when, "approve").await;
    scene.form.assert_accepts("k").await;
    for action in ["second", "alarm"] {
        eventually("asked", async || {
            let waiting = scene.world.waiting(scene.form.workspace).await;
            waiting.first().is_some_and(|one| one.action_id == action)
        })
        .await;
        let approval = scene.the_approval().await.approval_id;
        scene.approve(approval).await;
    }
    scene.world.await_state("failed", 1).await;
    let failure = scene.the_run().await.row.failure.unwrap();
    assert_eq!(
        failure,
        "second: answered with status 400; after that, alarm: answered with status 404"
    );
}

/// A denied run has not failed.
#[tokio::test]
async fn nothing_follows_a_denial() {
    let peer = Peer::start(|_, _| Reply::Status(200)).await;
    let scene = failing(&peer, json!([post("alarm")])).await;
    scene.decide("deny").await;
    scene.submit_until("k", "denied", 1).await;
    assert_eq!(peer.received().len(), 0);
}
