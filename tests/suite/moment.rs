//! What must hold at the moment when a request is sent: not only when it was prepared, or approved.

use letterbox_common::{
    ids::UserId,
    states::{ActionState, ApprovalState, MemberRole},
};
use letterbox_operator::Operator;
use letterbox_tests::{
    CHAT, Peer, Received, Reply, Scene, agent, eventually, model_answer, post, results_in,
};
use serde_json::json;

/// Something that is done by an operator between two steps of a worker.
type Meanwhile =
    for<'a> fn(&'a Operator, &'a Scene) -> std::pin::Pin<Box<dyn Future<Output = ()> + 'a>>;

/// Releases the workspace, and stops the worker that goes on there where it asks this table for
/// what holds: it has seen everything by then.
async fn stop_at_gate(scene: &Scene, table: &str) {
    let gate = format!(
        "CREATE FUNCTION gate() RETURNS boolean LANGUAGE plpgsql AS $$
        BEGIN
            PERFORM pg_advisory_xact_lock_shared(42);
            RETURN true;
        END $$;
        ALTER TABLE {table} ENABLE ROW LEVEL SECURITY;
        CREATE POLICY open ON {table} TO letterbox_worker, letterbox_operator USING (true);
        CREATE POLICY gate ON {table} AS RESTRICTIVE TO letterbox_worker USING (gate());
        SELECT pg_advisory_lock(42)"
    );
    let world = &scene.world;
    world.database.batch_execute(&gate).await.unwrap();
    let operator = world.operator().await;
    operator.release(Some(scene.form.workspace)).await.unwrap();
    let waiting = "SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database
        WHERE d.datname = current_database() AND locktype = 'advisory' AND objid = 42
          AND NOT granted";
    eventually("it stops", async || world.count(waiting).await > 0).await;
}

async fn open_gate(scene: &Scene) {
    let open = "SELECT pg_advisory_unlock(42)";
    scene.world.database.batch_execute(open).await.unwrap();
}

/// Another person who may answer.
async fn editor(scene: &Scene) -> UserId {
    let operator = scene.world.operator().await;
    let eve = operator.create_user("eve@example.com", "Eve").await;
    let eve = eve.unwrap().user_id;
    set_editor(scene, eve, false).await;
    eve
}

async fn set_editor(scene: &Scene, user: UserId, deactivated: bool) {
    let operator = scene.world.operator().await;
    let (workspace, role) = (scene.form.workspace, MemberRole::Editor);
    let setting = operator.set_member(workspace, user, role, deactivated);
    setting.await.unwrap();
}

/// What holds is asked twice: with everything else, and by the statement that begins the attempt.
/// What changes between the two stops it.
#[tokio::test]
async fn what_changes_while_a_request_is_prepared_stops_it() {
    let changes: [(Meanwhile, &str, &str); 4] = [
        (
            |operator, scene| {
                Box::pin(async {
                    let policy = r#"{"rules": [], "default": "deny"}"#;
                    let workspace = scene.form.workspace;
                    operator.set_policy(workspace, policy).await.unwrap();
                })
            },
            "denied",
            "denied by the policy",
        ),
        (
            |operator, scene| {
                Box::pin(async {
                    let (workspace, owner) = (scene.form.workspace, scene.form.owner);
                    let viewer = MemberRole::Viewer;
                    let setting = operator.set_member(workspace, owner, viewer, false);
                    setting.await.unwrap();
                })
            },
            "failed",
            "owner_cannot_run",
        ),
        (
            |operator, scene| {
                Box::pin(async {
                    let accounts = operator.accounts(scene.form.workspace).await.unwrap();
                    let account = accounts[0].account_id;
                    operator.disconnect_account(account).await.unwrap();
                })
            },
            "failed",
            "no connected account",
        ),
        (
            |operator, scene| {
                Box::pin(async {
                    let run = scene.the_run().await.row.run_id;
                    operator.cancel_run(run).await.unwrap();
                })
            },
            "cancelled",
            "cancelled",
        ),
    ];
    for (change, state, reason) in changes {
        let peer = Peer::start(|_, _| Reply::Status(200)).await;
        let scene = Scene::new(&peer, json!([post("send")])).await;
        let world = &scene.world;
        let operator = world.operator().await;
        operator.hold(Some(scene.form.workspace)).await.unwrap();
        scene.form.assert_accepts("k").await;
        world.await_state("queued", 1).await;
        stop_at_gate(&scene, "members").await;
        change(&operator, &scene).await;
        open_gate(&scene).await;

        world.await_state(state, 1).await;
        let failure = scene.the_run().await.row.failure.unwrap();
        assert!(failure.contains(reason), "{failure}");
        assert_eq!(peer.received(), [], "{reason}");
    }
}

/// Approved, but not yet sent, by somebody who may not approve any more: it is asked again. Those
/// who ask for another pair of eyes later get it.
#[tokio::test]
async fn who_has_approved_must_still_may_when_it_is_sent() {
    let peer = Peer::start(|_, _| Reply::Status(200)).await;
    let scene = Scene::new(&peer, json!([post("send")])).await;
    let (world, form) = (&scene.world, &scene.form);
    scene
        .set_policy(json!({"rules": [], "default": "approve"}))
        .await;
    let operator = world.operator().await;
    let eve = editor(&scene).await;
    let set_eve = |deactivated| set_editor(&scene, eve, deactivated);
    form.assert_accepts("k").await;
    let first = scene.the_approval().await;
    let asked_again = async |operator: &Operator, approver| {
        eventually("it is asked again", async || {
            let waiting = world.waiting(form.workspace).await;
            waiting.len() == 1 && waiting[0].decided_by.is_none()
        })
        .await;
        assert_eq!(peer.received(), []);
        // By its new id.
        let again = world.waiting(form.workspace).await.remove(0).approval_id;
        operator.approve(again, approver).await.unwrap();
    };

    // Held, so that nothing is sent while things change.
    operator.hold(Some(form.workspace)).await.unwrap();
    operator.approve(first.approval_id, eve).await.unwrap();
    set_eve(true).await;
    operator.release(Some(form.workspace)).await.unwrap();
    eventually("it is looked at", async || {
        let run = scene.the_run().await;
        run.actions[0].approval.as_ref().unwrap().state == ApprovalState::Pending
    })
    .await;

    operator.hold(Some(form.workspace)).await.unwrap();
    asked_again(&operator, form.owner).await;
    let another = json!({"rules": [], "default": "approve", "approve_by": "another"});
    scene.set_policy(another).await;
    operator.release(Some(form.workspace)).await.unwrap();
    set_eve(false).await;
    asked_again(&world.person(eve).await, eve).await;
    world.await_state("succeeded", 1).await;
    assert_eq!(peer.received().len(), 1);
}

/// A hold that begins while a request is prepared stops it, and its end lets it go.
#[tokio::test]
async fn a_hold_stops_what_is_prepared() {
    let peer = Peer::start(|_, _| Reply::Status(200)).await;
    let scene = Scene::new(&peer, json!([post("send")])).await;
    let (world, workspace) = (&scene.world, scene.form.workspace);
    let operator = world.operator().await;
    operator.hold(Some(workspace)).await.unwrap();
    scene.form.assert_accepts("k").await;
    world.await_state("queued", 1).await;
    stop_at_gate(&scene, "members").await;
    operator.hold(Some(workspace)).await.unwrap();
    open_gate(&scene).await;
    let ready = "SELECT count(*) FROM active_runs WHERE state = 'ready'";
    eventually("it waits", async || world.count(ready).await == 1).await;
    assert_eq!(peer.received(), []);
    operator.release(Some(workspace)).await.unwrap();
    world.await_state("succeeded", 1).await;
    assert_eq!(peer.received().len(), 1);
}

/// Whoever has approved loses the right to while the request is prepared: it is asked again.
#[tokio::test]
async fn an_approval_that_is_lost_at_the_last_moment_is_asked_for_again() {
    let peer = Peer::start(|_, _| Reply::Status(200)).await;
    let scene = Scene::new(&peer, json!([post("send")])).await;
    let (world, form) = (&scene.world, &scene.form);
    scene
        .set_policy(json!({"rules": [], "default": "approve"}))
        .await;
    let operator = world.operator().await;
    let eve = editor(&scene).await;
    let set_eve = |deactivated| set_editor(&scene, eve, deactivated);
    form.assert_accepts("k").await;
    let approval = scene.the_approval().await.approval_id;
    operator.hold(Some(form.workspace)).await.unwrap();
    operator.approve(approval, eve).await.unwrap();
    stop_at_gate(&scene, "connected_accounts").await;
    set_eve(true).await;
    open_gate(&scene).await;
    eventually("it is asked again", async || {
        let waiting = world.waiting(form.workspace).await;
        waiting.len() == 1 && waiting[0].decided_by.is_none()
    })
    .await;
    assert_eq!(peer.received(), []);
    let former = operator.approve(approval, form.owner).await;
    assert!(former.is_err(), "the former question is not open");
    let again = world.waiting(form.workspace).await.remove(0).approval_id;
    operator.approve(again, form.owner).await.unwrap();
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
    world
        .connect(form.workspace, form.owner, "closed", closed)
        .await;
    let agents = json!({"when": {"steered_by": "ai.agent"}, "decision": "allow"});
    let policy = json!({"rules": [agents], "default": "allow"});
    scene.set_policy(policy).await;
    let pause = "--attempts 2 --first-pause-milliseconds 10";
    world.order(format!("workspace retries {} {pause}", form.workspace));
    form.assert_accepts("k").await;
    world.await_state("succeeded", 1).await;
    let call = &scene.the_run().await.actions[2];
    assert_eq!(
        (call.state, call.is_told, call.attempts),
        (ActionState::Failed, true, 2)
    );
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
        let agents = json!({"when": {"steered_by": "ai.agent"}, "decision": "allow"});
        scene
            .set_policy(json!({"rules": [agents], "default": "allow"}))
            .await;
        let pause = "--attempts 2 --first-pause-milliseconds 10";
        let set = world.order(format!("workspace retries {workspace} {pause}"));
        assert_eq!(set["first_pause_milliseconds"], 10);
        scene.form.assert_accepts("k").await;
        world.await_state(state, 1).await;
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
        let pause = "--attempts 9 --first-pause-milliseconds 2000";
        world.order(format!("workspace retries {workspace} {pause}"));
        scene.form.assert_accepts("k").await;
        let sent = "SELECT count(*) FROM run_actions WHERE state = 'retrying' AND attempts = 1";
        eventually("sent once", async || world.count(sent).await == 1).await;
        scene.set_policy(policy("deny")).await;
        world.await_state(state, 1).await;
        let call = &scene.the_run().await.actions[2];
        assert_eq!(
            (call.state, call.is_told, call.attempts),
            (ActionState::Denied, method == "GET", 1)
        );
        let calls = peer.received().into_iter().filter(|one| one.target != CHAT);
        assert_eq!(calls.count(), 1, "{method}");
    }
}
