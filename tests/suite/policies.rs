//! The workspace's policy: what it looks at, and when.

use letterbox_tests::{CHAT, Peer, Scene, asking, assert_holds, assert_tells, call, post, script};
use letterbox_workflow::{Decision, Steering};
use serde_json::json;

/// The policy is read at the moment of the action, and its version recorded.
#[tokio::test]
async fn the_current_policy_decides() {
    let peer = Peer::start(script("no")).await;
    let scene = Scene::new(&peer, json!([post("send")])).await;
    let rule = |decision: &str| {
        let when = json!({"account": "crm", "method": ["POST"], "untrusted": "data"});
        json!({"rules": [{"when": when, "decision": decision}], "default": "allow"})
    };
    assert_eq!(scene.set_policy(rule("deny")).await, 1);
    scene.submit_until("a", "denied", 1).await;
    let action = scene.the_run().await.actions.remove(0);
    assert_eq!(action.decision.map(Decision::as_str), Some("deny"));
    assert_eq!(action.decision_rule, Some(1));
    assert_eq!(action.policy_version, Some(1));
    assert_eq!(action.attempts, 0);

    assert_eq!(scene.set_policy(rule("approve")).await, 2);
    let approval = scene.submit_asked("b").await;
    assert_eq!(approval.policy_version, Some(2));
    // A policy that now denies is stronger than an approval that was asked for before.
    assert_eq!(scene.set_policy(rule("deny")).await, 3);
    scene.approve(approval.approval_id).await;
    scene.world.await_state("denied", 2).await;
    assert_eq!(peer.received().len(), 0);

    assert_eq!(scene.set_policy(rule("allow")).await, 4);
    scene.submit_until("c", "succeeded", 1).await;
    assert_eq!(scene.the_run().await.actions[0].policy_version, Some(4));
}

#[tokio::test]
async fn policies_tell_control_from_data() {
    let peer = Peer::start(script("no")).await;
    let fixed = call("fixed", "GET", "/fixed");
    let steered = call("steered", "GET", "/steered");
    let actions =
        json!([fixed, {"id": "if", "type": "condition", "if": "form.terms", "then": [steered]}]);
    let scene = Scene::new(&peer, actions).await;
    for (untrusted, expected) in [("data", "succeeded"), ("control", "denied")] {
        let when = json!({"untrusted": untrusted});
        scene.set_rule(when, "deny").await;
        scene.submit_until(untrusted, expected, 1).await;
    }
    peer.await_received(3).await;
    assert_eq!(peer.targets(), ["/fixed", "/steered", "/fixed"]);
}

#[tokio::test]
async fn a_model_must_answer_yes_or_no_and_can_be_forbidden() {
    let peer = Peer::start(script("perhaps")).await;
    let scene = Scene::new(&peer, asking()).await;
    scene.submit_until("a", "failed", 1).await;
    scene.assert_failed("neither yes nor no").await;
    let when = json!({"action": "ai.condition"});
    scene.set_rule(when, "deny").await;
    scene.submit_until("b", "denied", 1).await;
    assert_eq!(peer.received().len(), 1);
}

/// Before a policy is set: which of its rules are good for nothing, and what it would change.
#[tokio::test]
async fn a_new_policy_says_what_it_changes() {
    let peer = Peer::start(script("no")).await;
    let get = call("get", "GET", "/fixed");
    let scene = Scene::new(&peer, json!([get, post("send"), post("later")])).await;
    let workspace = scene.form.workspace;
    let policy = json!({"rules": [
        {"when": {"account": "CRM"}, "decision": "deny"},
        {"when": {"host": ["127.0.0.1"], "steered_by": "outcome"}, "decision": "approve"},
        {"when": {"method": ["GET"]}, "decision": "allow"}], "default": "deny"});
    let file = format!("{workspace}.policy.json");
    let file = letterbox_tests::command_file(&file, &policy.to_string());
    let order = format!("policy set {workspace} {file}");
    let told = scene.world.order(format!("{order} --dry-run"));
    assert_eq!(told["version"], 0, "nothing is set");
    let id = scene.form.workflow.to_string();
    let change = |action: &str, after: &str| {
        let before = "allow";
        json!({"workflow_id": id, "workflow_name": "Contact", "action_id": action,
            "before": before, "after": after})
    };
    let changes = json!([change("send", "deny"), change("later", "approve")]);
    assert_eq!(told["changes"], changes);
    let warnings = json!(["rules[0]: no connected account has the name \"CRM\""]);
    assert_eq!(told["warnings"], warnings);

    let set = scene.world.order(&order);
    assert_holds(&set, json!({"version": 1, "changes": changes}));
    let again = scene.world.order(format!("{order} --dry-run"));
    assert_holds(&again, json!({"version": 1, "changes": []}));
}

/// A policy that an earlier version took and this one does not read can be replaced.
#[tokio::test]
async fn a_policy_that_cant_be_read_can_be_replaced() {
    let peer = Peer::start(script("no")).await;
    let scene = Scene::new(&peer, json!([post("send")])).await;
    let workspace = scene.form.workspace;
    let old = "INSERT INTO policies (workspace_id, version, policy)
        VALUES ($1, 1, '{\"rules\":[{\"when\":{\"host\":null},\"decision\":\"deny\"}],
            \"default\":\"allow\"}')";
    let values: [&(dyn tokio_postgres::types::ToSql + Sync); 1] = [&workspace];
    scene.world.database.execute(old, &values).await.unwrap();
    let policy = json!({"rules": [], "default": "allow"}).to_string();
    let file = letterbox_tests::command_file(&format!("{workspace}.new.json"), &policy);
    let setting = format!("policy set {workspace} {file}");
    let set = scene.world.order(setting);
    assert_eq!(set["version"], 2);
    assert_tells(set["warnings"][0].as_str().unwrap(), &["can't be read"]);
    assert_eq!(set["changes"][0]["before"], "deny");
    // What PostgreSQL can't decode is not stored: it would fail when somebody answers.
    for worse in ["{", r#"{"rules": [], "default": "deny", "x": "\u0000"}"#] {
        let insert = format!(
            "INSERT INTO policies (workspace_id, version, policy) VALUES ($1, 3, '{worse}')"
        );
        let storing = scene.world.database.execute(&insert, &values).await;
        assert!(storing.is_err(), "{worse}");
    }
    let reset = scene.world.order(format!("policy reset {workspace}"));
    assert_eq!(reset["version"], 3);
}

/// What a rule allows, a model may not decide unless the rule names the steering.
#[tokio::test]
async fn a_rule_that_allows_keeps_the_safeguard_of_models() {
    let peer = Peer::start(script("yes")).await;
    let scene = Scene::new(&peer, asking()).await;
    let by_account = json!({"when": {"account": "crm"}, "decision": "allow"});
    let policy = json!({"rules": [&by_account], "default": "deny"});
    scene.set_policy(policy).await;
    let approval = scene.submit_asked("a").await;
    assert_eq!(approval.action_id, "steered");

    let when = json!({"account": "crm", "steered_by": "ai.condition"});
    let by_steering = json!({"when": when, "decision": "allow"});
    let policy = json!({"rules": [by_steering, by_account], "default": "deny"});
    scene.set_policy(policy).await;
    scene.submit_until("b", "succeeded", 1).await;
}

/// The model's answer decides whether the run goes on, whichever branch holds what ends it.
#[tokio::test]
async fn what_a_model_could_have_prevented_is_steered_by_it() {
    let peer = Peer::start(script("yes")).await;
    let stop = json!({"id": "stop", "type": "http.request", "account": "none", "method": "GET",
        "path": "/"});
    let ask = json!({"id": "ask", "type": "ai.condition", "account": "crm", "model": "m-1",
        "question": "Is it honest?", "input": "{{ form.message }}", "else": [stop]});
    let pay = call("pay", "POST", "/pay");
    let scene = Scene::new(&peer, json!([ask, pay])).await;
    let approval = scene.submit_asked("a").await;
    assert_eq!(approval.action_id, "pay");
    let steering = [Steering::AiCondition, Steering::Outcome];
    assert_eq!(approval.steered_by, steering);

    let when = json!({"steered_by": "ai.condition"});
    scene.set_rule(when, "deny").await;
    scene.submit_until("b", "denied", 1).await;
    assert!(peer.received().iter().all(|request| request.target == CHAT));
}
