//! What an account answers can be used by later actions: marked as what it is, and kept sealed, no
//! longer than it is needed.

use letterbox_common::states::{MemberRole, RunState};
use letterbox_tests::{Desk, Peer, Received, Reply, Scene, assert_hides, assert_tells, post};
use letterbox_workflow::{Steering, Untrusted};
use serde_json::{Value, json};

const SEALED: &str = "SELECT count(*) FROM run_actions WHERE answer_sealed IS NOT NULL";

/// Looks up a customer, and tells the id; or, if there is none, something else.
fn lookup(path: &str) -> Value {
    json!([
        {"id": "look-up", "type": "http.request", "account": "crm", "method": "GET", "path": path},
        {"id": "known", "type": "condition",
         "if": "actions['look-up'].status == 200 and actions['look-up'].body.customers|length > 0",
         "then": [{"id": "tell", "type": "http.request", "account": "crm", "method": "POST",
                   "path": "/tell/{{ actions['look-up'].body.customers[0].id }}",
                   "body": {"id": "{{ actions['look-up'].body.customers[0].id }}",
                            "name": "{{ actions['look-up'].body.customers[0].name }}"}}],
         "else": [post("unknown")]},
    ])
}

fn script(request: &Received, _: usize) -> Reply {
    match request.target.as_str() {
        "/all" | "/of/Ada" => {
            let found = json!({"customers": [{"id": 7, "name": "A\"da{{ form.email }}"}]});
            Reply::With(200, Vec::new(), found.to_string())
        }
        _ => Reply::Status(200),
    }
}

#[tokio::test]
async fn later_actions_use_answers_and_are_marked() {
    let peer = Peer::start(script).await;
    let scene = Scene::new(&peer, lookup("/all")).await;
    scene.submit_until("k", "succeeded", 1).await;
    let received = peer.await_received(2).await;
    assert_eq!(received[1].target, "/tell/7");
    let told = json!({"id": 7, "name": "A\"da{{ form.email }}"});
    assert_eq!(received[1].json(), told);
    let run = scene.the_run().await;
    let tell = &run.actions[2];
    assert_eq!(tell.untrusted, [Untrusted::Account, Untrusted::Control]);
    assert_eq!(tell.steered_by, [Steering::Condition]);
    scene.world.assert_count(SEALED, 0).await; // dropped when the run had succeeded
}

/// What a submitter wrote went to the account: it may be in what it answers.
#[tokio::test]
async fn what_an_account_was_told_it_may_tell() {
    let peer = Peer::start(script).await;
    let scene = Scene::new(&peer, lookup("/of/{{ form.name }}")).await;
    scene.submit_until("k", "succeeded", 1).await;
    let run = scene.the_run().await;
    let tell = &run.actions[2];
    let all = [Untrusted::Data, Untrusted::Account, Untrusted::Control];
    assert_eq!(tell.untrusted, all);
    assert_eq!(tell.steered_by, [Steering::Condition, Steering::Outcome]);
}

/// A policy can ask a person for what an account's answer fills in.
#[tokio::test]
async fn a_policy_speaks_of_answers() {
    let peer = Peer::start(script).await;
    let mut scene = Scene::new(&peer, lookup("/all")).await;
    let when = json!({"untrusted": "account"});
    scene.set_rule(when, "approve").await;
    let approval = scene.submit_asked("k").await;
    assert_eq!(approval.action_id, "tell");
    scene.world.assert_count(SEALED, 1).await; // kept while the run may need it
    scene.worker.kill().await;
    let _heir = scene.world.worker().await;
    scene.approve(approval.approval_id).await;
    scene.world.await_state("succeeded", 1).await;
    assert_eq!(peer.received()[1].target, "/tell/7");
}

/// An answer that is no JSON, or has not what is looked for, fails the action that needs it.
#[tokio::test]
async fn an_answer_that_lacks_what_is_needed_fails_the_action() {
    for answer in [
        "no JSON",
        r#"{"customers":[{"id":{"a":1}}]}"#,
        r#"{"customers":[{"id":".."}]}"#,
    ] {
        let peer = Peer::start(move |_, _| Reply::With(200, Vec::new(), answer.into())).await;
        let mut actions = lookup("/all");
        actions[1]["if"] = "actions['look-up'].status == 200".into();
        let scene = Scene::new(&peer, actions).await;
        scene.submit_until("k", "failed", 1).await;
        let reason = scene.the_run().await.row.failure.unwrap();
        assert!(reason.starts_with("tell: "), "{answer}: {reason}");
        assert_eq!(peer.received().len(), 1);
    }
}

/// A 422 says why: to the owner of the workspace and the one as whom the run acts, until the input
/// is forgotten, without the credential. What was to be used is told to whoever has the keys.
#[tokio::test(flavor = "multi_thread")]
async fn the_beginning_of_a_failed_answer_is_kept() {
    let peer = Peer::start(|request, before| match before {
        0 => script(request, before),
        _ => {
            let sent = request.header("authorization").unwrap();
            let why = json!({"error": "<b>taken\u{7}", "sent": sent, "z": "x".repeat(9_000)});
            let media_type = ("content-type", "application/problem+json".to_owned());
            Reply::With(422, vec![media_type], why.to_string())
        }
    })
    .await;
    let scene = Scene::new(&peer, lookup("/all")).await;
    let world = &scene.world;
    scene.submit_until("k", "failed", 1).await;
    let id = scene.the_run().await.row.run_id;
    let shown = world.order(format!("run show {id}"));
    let failed = &shown["actions"][2]["failed_with"];
    assert_eq!(failed["type"], "application/problem+json");
    let body = failed["body"].as_str().unwrap();
    let beginning = r#"{"error":"<b>taken\u0007","sent":"[hidden]","z":"xxx"#;
    assert!(body.starts_with(beginning) && body.len() == 2048, "{body}");
    let (workspace, owner) = (scene.form.workspace, scene.form.owner);
    let boss = world.member(workspace, "boss", MemberRole::Owner).await;
    let ed = world.member(workspace, "ed", MemberRole::Editor).await;
    world.set_owner_role(&scene.form, MemberRole::Viewer).await;
    let desk = Desk::start(world).await;
    let path = format!("/runs/{id}");
    for (user, may_see) in [(owner, true), (boss, true), (ed, false)] {
        let page = desk.visitor(world, user).await.page(&path).await;
        assert_eq!(page.contains("application/problem+json"), may_see, "{page}");
        assert_tells(&page, &["status 422"]);
        assert_hides(&page, &["<b>taken"]);
    }
    // New keys open what is sealed, too.
    let other = format!("other:{}", "0123456789abcdef".repeat(4));
    let both = format!("{other},{}", world.account_keys);
    let opened = |keys: &str| {
        let keys = [("LETTERBOX_ACCOUNT_KEYS", keys)];
        world.order_with(&keys, format!("run show {id}"))["actions"][0]["answer"].clone()
    };
    let answer = opened(&world.account_keys);
    assert!(answer.as_str().unwrap().contains("customers"), "{answer}");
    assert_eq!(opened(&other), Value::Null);
    world.order_with(&[("LETTERBOX_ACCOUNT_KEYS", &both)], "keys rotate");
    assert_eq!(opened(&other), answer);
    let former = [("LETTERBOX_ACCOUNT_KEYS", &*world.account_keys)];
    let former = world.order_with(&former, format!("run show {id}"));
    assert_eq!(former["actions"][0]["answer"], Value::Null);
    assert_eq!(former["actions"][0]["is_answer_kept"], true);
    world.order(format!("run erase {id} --yes"));
    world.assert_count(SEALED, 0).await;
    let kept = "SELECT count(*) FROM run_actions WHERE failed_with IS NOT NULL";
    world.assert_count(kept, 0).await;
    let page = desk.visitor(world, boss).await.page(&path).await;
    assert!(!page.contains("application/problem+json"), "{page}");
}

/// A workspace can keep answers, and a run that failed keeps what it needs to go on.
#[tokio::test]
async fn answers_stay_where_somebody_may_need_them() {
    let peer = Peer::start(|request, before| match before {
        1 => Reply::Status(400),
        _ => script(request, before),
    })
    .await;
    let scene = Scene::new(&peer, lookup("/all")).await;
    let (world, workspace) = (&scene.world, scene.form.workspace);
    scene.submit_until("k", "failed", 1).await;
    let run = scene.the_run().await;
    assert_eq!(run.row.state, RunState::Failed);
    world.order(format!("workspace settings {workspace} --keep-answers on"));
    let operator = world.operator().await;
    operator.retry_run(run.row.run_id).await.unwrap();
    world.await_state("succeeded", 1).await;
    assert_eq!(peer.targets(), ["/all", "/tell/7", "/tell/7"]);
    world.assert_count(SEALED, 1).await; // kept
    world.order(format!("workspace settings {workspace} --keep-answers off"));
    scene.submit_until("another", "succeeded", 2).await;
    world.assert_count(SEALED, 1).await; // of the first run only
}
