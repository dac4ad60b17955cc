//! Runs act: what is sent, to whom, how often, and what the record says of it.

use letterbox_common::states::MemberRole;
use letterbox_tests::{
    CREDENTIAL, Peer, Reply, Scene, World, assert_hides, assert_tells, call, payload, post,
};
use letterbox_workflow::{Decision, Steering, Untrusted, actions::Branch};
use serde_json::json;

#[tokio::test]
async fn a_run_calls_its_owners_account_and_values_stay_in_their_places() {
    let peer = Peer::start(|_, _| Reply::Status(201)).await;
    let (world, gateway, worker) = World::with_both().await;
    let actions = json!([{
        "id": "create", "type": "http.request", "account": "crm", "method": "PUT",
        "path": "/people/{{ form.name }}/notes", "query": {"q": "{{ form.message }}", "fixed": "1"},
        "headers": {"X-Name": "{{ form.name }}"},
        "body": {"name": "{{ form.name }}", "note": "From {{ form.email }}: {{ form.message }}",
            "seats": "{{ form.seats }}", "terms": "{{ form.terms }}",
            "list": [1, null, "{{ run.id }}"]},
    }]);
    let base_url = format!("{}/api/v1/", peer.url);
    let form = world.acting_form(&gateway, &base_url, actions).await;
    let name = r#"../a//b@evil.example:1/?x=1#y%2e "'{{ run.id }}"#;
    let message = "a&q=2\"},\"x\":{{ form.name }}\u{0}\u{1f4ee}";
    let values =
        json!({"name": name, "email": "a@b", "message": message, "seats": 3, "terms": true});
    assert_eq!(form.submit("k", &values).await.status, 200);
    world.await_state("succeeded", 1).await;

    let received = &peer.await_received(1).await[0];
    let run = world.run_of(&form).await;
    let segment =
        "..%2Fa%2F%2Fb%40evil.example%3A1%2F%3Fx%3D1%23y%252e%20%22%27%7B%7B%20run.id%20%7D%7D";
    let (path, query) = received.target.split_once('?').unwrap();
    assert_eq!(received.method.as_str(), "PUT");
    assert_eq!(path, format!("/api/v1/people/{segment}/notes").as_str());
    let pairs = url::form_urlencoded::parse(query.as_bytes());
    let pairs: Vec<_> = pairs.collect();
    assert_eq!(
        pairs,
        [("fixed".into(), "1".into()), ("q".into(), message.into())]
    );
    assert_eq!(received.header("x-name"), Some(name));
    let shown = format!("Bearer {CREDENTIAL}");
    assert_eq!(received.header("authorization"), Some(&*shown));
    assert_eq!(received.header("content-type"), Some("application/json"));
    assert_eq!(received.header("idempotency-key").unwrap().len(), 36);
    let body = json!({"name": name, "note": format!("From a@b: {message}"), "seats": 3,
        "terms": true, "list": [1, null, run.row.run_id]});
    assert_eq!(received.json(), body);

    // The record tells the story, without the credential; the logs tell neither.
    let action = &run.actions[0];
    assert_eq!(action.state.as_str(), "succeeded");
    assert_eq!(action.response_status, Some(201));
    assert_eq!(action.attempts, 1);
    assert_eq!(action.untrusted.as_slice(), [Untrusted::Data].as_slice());
    assert_eq!(action.decision, Some(Decision::Allow));
    assert_eq!(action.policy_version, Some(0));
    assert_eq!(action.decision_rule, None);
    assert!(action.duration_milliseconds.is_some() && run.row.finished_at.is_some());
    let story = serde_json::to_string(&run).unwrap();
    assert!(story.contains("/people/") && !story.contains(CREDENTIAL));
    assert_hides(&worker.log(), &[CREDENTIAL, "evil.example", "From a@b"]);
    let kept = "SELECT count(*) FROM connected_accounts t WHERE t::text LIKE '%canary%'";
    world.assert_count(kept, 0).await; // sealed
}

#[tokio::test]
async fn a_value_that_does_not_fit_its_place_fails_the_run() {
    let peer = Peer::start(|_, _| Reply::Status(200)).await;
    let (world, gateway, _worker) = World::with_both().await;
    let path = json!([{"id": "get", "type": "http.request", "account": "crm", "method": "GET",
        "path": "/a/{{ form.message }}"}]);
    let form = world.acting_form(&gateway, &peer.url, path).await;
    for message in ["", ".", "..", "%2e%2e"] {
        let mut values = payload();
        values["message"] = message.into();
        assert_eq!(
            form.submit(&format!("key {message}"), &values).await.status,
            200,
            "nobody outside learns"
        );
    }
    let mut left_out = payload();
    left_out.as_object_mut().unwrap().remove("message");
    assert_eq!(form.submit("left out", &left_out).await.status, 200);
    world.await_state("failed", 4).await;
    world.await_state("succeeded", 1).await;
    let received = peer.await_received(1).await;
    assert_eq!(received[0].target, "/a/%252e%252e", "a value is no escape");

    let header = json!([{"id": "get", "type": "http.request", "account": "crm", "method": "GET",
        "path": "/", "headers": {"X-Note": "{{ form.message }}"}}]);
    let form = world.redeployed(&gateway, &form, header).await;
    form.assert_accepts_with("k", json!({"message": "a\r\nX-Other: b"}))
        .await;
    world.await_state("failed", 5).await;
    world.assert_failed(&form, "control characters").await;
    peer.await_received(1).await;
}

#[tokio::test]
async fn conditions_choose_a_branch_that_is_marked_as_steered() {
    let peer = Peer::start(|_, _| Reply::Status(200)).await;
    let actions = json!([
        {"id": "many", "type": "condition", "if": "form.seats > 10", "then": [post("large")],
            "else": [post("small")]},
        post("always"),
    ]);
    let scene = Scene::new(&peer, actions).await;
    let (world, form) = (&scene.world, &scene.form);
    for (key, seats) in [("a", 11), ("b", 10)] {
        form.assert_accepts_with(key, json!({"seats": seats})).await;
        world
            .await_state("succeeded", if key == "a" { 1 } else { 2 })
            .await;
    }
    peer.await_received(4).await;
    assert_eq!(peer.targets(), ["/large", "/always", "/small", "/always"]);
    let story = world.run_of(form).await;
    let told = story.actions.iter().map(|one| {
        let branch = one.branch.map(Branch::as_str);
        (&*one.action_id, branch, &*one.untrusted, &*one.steered_by)
    });
    let by_data = [Untrusted::Data, Untrusted::Control];
    let steered = [Steering::Condition, Steering::Outcome];
    let expected = [
        ("many", Some("else"), &by_data[..1], &[][..]),
        ("small", None, &by_data, &steered[..1]),
        ("always", None, &by_data, &steered),
    ];
    assert_eq!(told.collect::<Vec<_>>(), expected);
}

/// Whether an action comes at all is up to a submitter who can make an earlier one fail.
#[tokio::test]
async fn what_follows_an_action_that_a_submitter_can_make_fail_is_steered() {
    let peer = Peer::start(|request, _| match request.target.as_str() {
        "/coupons/no" => Reply::Status(404),
        _ => Reply::Status(200),
    })
    .await;
    let check = call("check", "GET", "/coupons/{{ form.name }}");
    let pay = call("pay", "POST", "/payouts/{{ run.id }}");
    let scene = Scene::new(
        &peer,
        json!([pay, check, {"id": "again", "type": "http.request",
        "account": "crm", "method": "POST", "path": "/payouts"}]),
    )
    .await;
    let when = json!({"untrusted": "control"});
    scene.set_rule(when, "deny").await;
    scene.submit_until("k", "denied", 1).await;
    let story = scene.world.run_of(&scene.form).await;
    let told = story
        .actions
        .iter()
        .map(|one| (&*one.action_id, &*one.steered_by));
    let outcome = [Steering::Outcome];
    let expected = [("pay", &[][..]), ("check", &[]), ("again", &outcome)];
    assert_eq!(told.collect::<Vec<_>>(), expected);
    assert_eq!(peer.received().len(), 2); // the last one is not sent
}

/// Only the owner's own accounts, and only while the owner may run.
#[tokio::test]
async fn only_the_owners_accounts_are_used() {
    let peer = Peer::start(|_, _| Reply::Status(200)).await;
    let (world, gateway, plain) = World::with_form().await;
    let owner = MemberRole::Owner;
    let other = world.member(plain.workspace, "other", owner).await;
    let elsewhere = world.form(&gateway).await.workspace;
    world.set_role(elsewhere, plain.owner, owner).await;
    for (workspace, user) in [(plain.workspace, other), (elsewhere, plain.owner)] {
        world.connect(workspace, user, "crm", &peer.url).await;
    }

    let actions = json!([post("send")]);
    let form = world.redeployed(&gateway, &plain, actions).await;
    let operator = world.operator().await;
    let deployed = operator.deploy(form.workflow, None).await;
    let warnings = deployed.unwrap().warnings;
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert_tells(&warnings[0], &["crm"]);
    let form = world.relink(&form).await;
    let _worker = world.worker().await;
    world.submit_until(&form, "a", "failed", 1).await;
    world.assert_failed(&form, "no connected account").await;

    let account = world.connect_for(&plain, "crm", &peer.url).await;
    world.submit_until(&form, "b", "succeeded", 1).await;
    world.disconnect(account.account_id).await;
    world.submit_until(&form, "c", "failed", 2).await;
    let rows = "connected_accounts WHERE credential_sealed IS NOT NULL";
    world.assert_rows(rows, 2).await;
    peer.await_received(1).await;
}

/// A run stores at most 16 MiB: the request with which it would store more is not sent, and the run
/// says why. What it has stored counts in its workspace's day.
#[tokio::test]
async fn a_run_stores_no_more_than_it_may() {
    let peer = Peer::start(|_, _| Reply::Status(200)).await;
    let (world, gateway, mut worker) = World::with_both().await;
    let large = "{{ form.message }}".repeat(190);
    let send = |n: usize| {
        let mut action = post(&format!("s{n}"));
        action["body"] = json!({"text": large});
        action
    };
    let actions: Vec<_> = (0..20).map(send).collect();
    let form = world.acting_form(&gateway, &peer.url, json!(actions)).await;
    form.assert_accepts_with("k", json!({"message": "x".repeat(5_000)}))
        .await;
    world.await_state("failed", 1).await;
    let run = world.run_of(&form).await;
    let reason = "the run would store more than 16 MiB";
    assert!(run.row.failure.unwrap().ends_with(reason));
    let sent = peer.received().len();
    assert!((10..20).contains(&sent), "{sent}");
    worker.terminate();
    worker.ended().await;
    let stored = "SELECT sum(bytes)::bigint FROM stored_bytes";
    let bytes = world.count(stored).await;
    assert!(bytes > 10_000_000, "{bytes}");
}
