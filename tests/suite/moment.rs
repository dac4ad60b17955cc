//! What must hold at the moment when a request is sent: not only when it was prepared, or approved.

use letterbox_common::{
    ids::{ApprovalId, UserId},
    states::{ActionState, ApprovalState, MemberRole},
};
use letterbox_operator::Operator;
use letterbox_tests::{
    CHAT, Peer, Received, Reply, Scene, agent, eventually, model_answer, results_in,
};
use serde_json::json;

/// Releases the workspace, and stops the worker that goes on there where it asks this table for
/// what holds: it has seen everything by then.
async fn stop_at_gate(scene: &Scene, table: &str) {
    let world = &scene.world;
    world.shut_gate(table).await;
    let operator = world.operator().await;
    operator.release(Some(scene.form.workspace)).await.unwrap();
    world.await_at_gate().await;
}

/// Another person who may answer.
async fn editor(scene: &Scene) -> UserId {
    let editor = MemberRole::Editor;
    scene
        .world
        .member(scene.form.workspace, "eve", editor)
        .await
}

async fn set_editor(scene: &Scene, user: UserId, deactivated: bool) {
    let operator = scene.world.operator().await;
    let (workspace, role) = (scene.form.workspace, MemberRole::Editor);
    let setting = operator.set_member(workspace, user, role, deactivated);
    setting.await.unwrap();
}

/// Waits until a question is asked that nobody has answered.
async fn asked_again(scene: &Scene) -> ApprovalId {
    let waiting = async || scene.world.waiting(scene.form.workspace).await;
    eventually("it is asked again", async || {
        let waiting = waiting().await;
        waiting.len() == 1 && waiting[0].decided_by.is_none()
    })
    .await;
    waiting().await.remove(0).approval_id
}

/// What holds is asked twice: with everything else, and by the statement that begins the attempt.
/// What changes between the two stops it.
#[tokio::test]
async fn what_changes_while_a_request_is_prepared_stops_it() {
    for (change, state, reason) in [
        ("policy", "denied", "denied by the policy"),
        ("right", "failed", "owner_cannot_run"),
        ("account", "failed", "no connected account"),
        ("order", "cancelled", "cancelled"),
    ] {
        let (peer, scene) = Scene::posting("send").await;
        let (world, form) = (&scene.world, &scene.form);
        let operator = world.operator().await;
        operator.hold(Some(form.workspace)).await.unwrap();
        scene.submit_until("k", "queued", 1).await;
        stop_at_gate(&scene, "members").await;
        match change {
            "policy" => scene.decide("deny").await,
            "right" => {
                let viewer = MemberRole::Viewer;
                world.set_owner_role(form, viewer).await;
            }
            "account" => {
                let accounts = operator.accounts(form.workspace).await.unwrap();
                world.disconnect(accounts[0].account_id).await;
            }
            _ => {
                let run = scene.the_run().await.row.run_id;
                operator.cancel_run(run).await.unwrap();
            }
        }
        world.open_gate().await;

        world.await_state(state, 1).await;
        scene.assert_failed(reason).await;
        assert_eq!(peer.received(), [], "{reason}");
    }
}

/// Approved, but not yet sent, by somebody who may not approve any more: it is asked again. Those
/// who ask for another pair of eyes later get it.
#[tokio::test]
async fn who_has_approved_must_still_may_when_it_is_sent() {
    let (peer, scene) = Scene::posting("send").await;
    let (world, form) = (&scene.world, &scene.form);
    scene.decide("approve").await;
    let operator = world.operator().await;
    let eve = editor(&scene).await;
    let set_eve = |deactivated| set_editor(&scene, eve, deactivated);
    let first = scene.submit_asked("k").await;
    let approve_again = async |operator: &Operator, approver| {
        let again = asked_again(&scene).await;
        assert_eq!(peer.received(), []);
        // By its new id.
        operator.approve(again, approver).await.unwrap();
    };

    // Held, so that nothing is sent while things change.
    operator.hold(Some(form.workspace)).await.unwrap();
    world.approve(first.approval_id, eve).await;
    set_eve(true).await;
    operator.release(Some(form.workspace)).await.unwrap();
    eventually("it is looked at", async || {
        let run = scene.the_run().await;
        run.actions[0].approval.as_ref().unwrap().state == ApprovalState::Pending
    })
    .await;

    operator.hold(Some(form.workspace)).await.unwrap();
    approve_again(&operator, form.owner).await;
    let another = json!({"rules": [], "default": "approve", "approve_by": "another"});
    scene.set_policy(another).await;
    operator.release(Some(form.workspace)).await.unwrap();
    set_eve(false).await;
    approve_again(&world.person(eve).await, eve).await;
    world.await_state("succeeded", 1).await;
    assert_eq!(peer.received().len(), 1);
}

/// A hold that begins while a request is prepared stops it, and its end lets it go.
#[tokio::test]
async fn a_hold_stops_what_is_prepared() {
    let (peer, scene) = Scene::posting("send").await;
    let (world, workspace) = (&scene.world, scene.form.workspace);
    let operator = world.operator().await;
    operator.hold(Some(workspace)).await.unwrap();
    scene.submit_until("k", "queued", 1).await;
    stop_at_gate(&scene, "members").await;
    operator.hold(Some(workspace)).await.unwrap();
    world.open_gate().await;
    let ready = "SELECT count(*) FROM active_runs WHERE state = 'ready'";
    world.await_count("it waits", ready, 1).await;
    assert_eq!(peer.received(), []);
    operator.release(Some(workspace)).await.unwrap();
    world.await_state("succeeded", 1).await;
    assert_eq!(peer.received().len(), 1);
}

/// Whoever has approved loses the right to while the request is prepared: it is asked again.
#[tokio::test]
async fn an_approval_that_is_lost_at_the_last_moment_is_asked_for_again() {
    let (peer, scene) = Scene::posting("send").await;
    let (world, form) = (&scene.world, &scene.form);
    scene.decide("approve").await;
    let operator = world.operator().await;
    let eve = editor(&scene).await;
    let set_eve = |deactivated| set_editor(&scene, eve, deactivated);
    let approval = scene.submit_asked("k").await.approval_id;
    operator.hold(Some(form.workspace)).await.unwrap();
    world.approve(approval, eve).await;
    stop_at_gate(&scene, "connected_accounts").await;
    set_eve(true).await;
    world.open_gate().await;
    let again = asked_again(&scene).await;
    assert_eq!(peer.received(), []);
    let former = operator.approve(approval, form.owner).await;
    assert!(former.is_err(), "the former question is not open");
    world.approve(again, form.owner).await;
    world.await_state("succeeded", 1).await;
    assert_eq!(peer.received().len(), 1);
}

/// A call that certainly was not done is told, and the agent goes on.
#[tokio::test]
async fn a_call_that_was_not_sent_is_told_as_failed() {
    let peer = Peer::start(|request, _| match results_in(request) {
        0 => Reply::With(
            200,
            Vec::new(),
            model_answer("", &[("note", json!({"text": "one"}))]),
        ),
        _ => Reply::With(200, Vec::new(), model_answer("Done.", &[])),
    })
    .await;
    let mut agent = agent();
    agent["tools"][1]["account"] = "closed".into();
    let scene = Scene::new(&peer, json!([agent])).await;
    let (world, form) = (&scene.world, &scene.form);
    // A port that nobody listens at.
    let closed = "http://127.0.0.1:1";
    world.connect_for(form, "closed", closed).await;
    scene.allow_agents().await;
    let pause = "--retry-attempts 2 --retry-first-milliseconds 10";
    world.order(format!("workspace settings {} {pause}", form.workspace));
    scene.submit_until("k", "succeeded", 1).await;
    let call = &scene.the_run().await.actions[2];
    assert_eq!(call.state, ActionState::Failed);
    assert!(call.is_told);
    assert_eq!(call.attempts, 2);
}

/// A model that calls a tool of this method, which takes the request and does not answer.
async fn calls_in_vain(method: &'static str) -> Peer {
    let say = |request: &Received, method: &str| match results_in(request) {
        0 if method == "GET" => model_answer("", &[("find", json!({"name": "Ada"}))]),
        0 => model_answer("", &[("note", json!({"text": "one"}))]),
        _ => model_answer("Done.", &[]),
    };
    Peer::start(move |request, _| match request.target.as_str() {
        CHAT => Reply::With(200, Vec::new(), say(request, method)),
        _ => Reply::HangUp,
    })
    .await
}

/// A call of which nobody knows whether it was done ends the run: a model that is told it had
/// failed would call again, under another key. To read may be done twice.
#[tokio::test]
async fn a_call_that_may_have_been_done_is_not_told_as_failed() {
    for (method, state, ends) in [
        ("POST", "failed", ActionState::Failed),
        ("GET", "succeeded", ActionState::Succeeded),
    ] {
        let peer = calls_in_vain(method).await;
        let scene = Scene::new(&peer, json!([agent()])).await;
        let (world, workspace) = (&scene.world, scene.form.workspace);
        scene.allow_agents().await;
        let pause = "--retry-attempts 2 --retry-first-milliseconds 10";
        let set = world.order(format!("workspace settings {workspace} {pause}"));
        assert_eq!(set["retry_first_milliseconds"], 10);
        scene.submit_until("k", state, 1).await;
        let run = scene.the_run().await;
        assert_eq!(run.actions[0].state, ends);
        let call = &run.actions[2];
        assert_eq!(call.state, ActionState::Failed);
        assert_eq!(call.is_told, method == "GET");
        // Both attempts went under one key, and that is all.
        let received = peer.received();
        let calls = received.iter().filter(|one| one.target != CHAT);
        let mut keys: Vec<_> = calls.map(|one| one.header("idempotency-key")).collect();
        assert_eq!(keys.len(), 2, "{method}");
        keys.dedup();
        assert_eq!(keys.len(), 1, "{method}");
    }
}

/// Nor is it told as denied, if the policy denies it before it is sent again.
#[tokio::test]
async fn a_call_that_may_have_been_done_is_not_told_as_denied() {
    for (method, state) in [("POST", "failed"), ("GET", "succeeded")] {
        let peer = calls_in_vain(method).await;
        let scene = Scene::new(&peer, json!([agent()])).await;
        let (world, workspace) = (&scene.world, scene.form.workspace);
        let policy = |decision: &str| {
            let calls = json!({"steered_by": "ai.agent", "action": "http.request"});
            let rule = json!({"when": calls, "decision": decision});
            json!({"rules": [rule], "default": "allow"})
        };
        scene.set_policy(policy("allow")).await;
        let pause = "--retry-attempts 9 --retry-first-milliseconds 2000";
        world.order(format!("workspace settings {workspace} {pause}"));
        scene.form.assert_accepts("k").await;
        let sent = "SELECT count(*) FROM run_actions WHERE state = 'retrying' AND attempts = 1";
        world.await_count("sent once", sent, 1).await;
        scene.set_policy(policy("deny")).await;
        world.await_state(state, 1).await;
        let call = &scene.the_run().await.actions[2];
        assert_eq!(call.state, ActionState::Denied);
        assert_eq!(call.is_told, method == "GET");
        assert_eq!(call.attempts, 1);
        let calls = peer.received().into_iter().filter(|one| one.target != CHAT);
        assert_eq!(calls.count(), 1, "{method}");
    }
}
