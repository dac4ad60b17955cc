//! Accounts, policies, approvals and sealing keys on the command line.

use std::collections::BTreeSet;

use letterbox_tests::{
    Peer, Received, Reply, Scene, World, assert_hides, assert_holds, command_file, one_of, post,
    sign,
};
use serde_json::json;

const NEW_KEY: &str = "next:f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff000102030405060708090a0b0c0d0e0f";

#[tokio::test]
async fn accounts_policies_and_approvals() {
    let world = World::new().await;
    let peer = Peer::start(|_, _| Reply::Status(200)).await;
    let (gateway, _worker) = (world.gateway().await, world.worker().await);
    let plain = world.form(&gateway).await;
    let (workspace, user) = (plain.workspace.to_string(), plain.owner.to_string());
    let token = command_file(&format!("{workspace}.token"), "canary-token\n");
    let connect = |name: &str, credential: &str| {
        let who = format!("--workspace {workspace} --user {user}");
        let url = &peer.url;
        format!("account connect {who} --name {name} --base-url {url} {credential}")
    };
    let bearer = connect("crm", &format!("--bearer-file {token}"));
    let account = world.order(&bearer);
    world.assert_refused(&bearer, "of this name");
    let empty = command_file(&format!("{workspace}.empty"), "\n");
    let nothing = connect("empty", &format!("--bearer-file {empty}"));
    world.assert_refused(&nothing, "empty");
    let scheme = connect("scheme", &format!("--header X-Key --bearer-file {token}"));
    world.assert_refused(&scheme, "goes into Authorization");
    let header = connect("other", &format!("--header X-Key --value-file {token}"));
    assert_eq!(world.order(&header)["header"], "X-Key");
    let listed = world.order(format!("account list --workspace {workspace}"));
    assert_eq!(listed.as_array().unwrap().len(), 2);
    assert_hides(&listed.to_string(), &["canary"]); // a credential is never shown

    let policy = world.order(format!("policy show {workspace}"));
    assert_eq!(policy["default"], "allow");
    let history = world.order(format!("policy history {workspace}"));
    assert_eq!(history, json!([]), "version 0 is the default");
    let policy = |default: &str| {
        let policy = json!({"rules": [], "default": default}).to_string();
        command_file(&format!("{workspace}.{default}"), &policy)
    };
    let (file, wrong) = (policy("approve"), policy("perhaps"));
    let set = world.order(format!("policy set {workspace} {file}"));
    assert_eq!(set["version"], 1);
    world.assert_refused(format!("policy set {workspace} {wrong}"), "perhaps");

    let send = json!({"id": "send", "type": "http.request", "account": "crm",
        "method": "GET", "path": "/{{ form.name }}"});
    let form = world.redeployed(&gateway, &plain, json!([send])).await;
    // A new sealing key, while a run waits: credentials are sealed again as well.
    world.submit_until(&form, "k", "waiting_approval", 1).await;
    let both = format!("{NEW_KEY},{}", world.account_keys);
    let rotated = world.order_with(&[("LETTERBOX_ACCOUNT_KEYS", &both)], "keys rotate");
    assert_holds(&rotated, json!({"resealed": 2, "current": 0}));
    let new = [("LETTERBOX_ACCOUNT_KEYS", NEW_KEY)];
    let _new = world.worker_with(&new).await;
    drop(_worker);

    let waiting = world.order(format!("approval list --workspace {workspace}"));
    assert_eq!(waiting[0]["request"]["url"], format!("{}/Ada", peer.url));
    let id = waiting[0]["approval_id"].as_str().unwrap();
    let stranger = world.order("user create --email stranger@example.com --name Stranger");
    let stranger = stranger["user_id"].as_str().unwrap();
    for (by, refusal) in [
        (String::new(), "give --by USER"),
        (format!("--by {id}"), "no such user"),
        (format!("--by {stranger}"), "owner or editor"),
        ("--by Stranger@example.com".into(), "owner or editor"),
    ] {
        let (_, message) = world.refusal(format!("approval approve {id} {by}").trim());
        assert!(message.contains(refusal), "{by}: {message}");
    }
    let approved = world.order(format!("approval approve {id} --by {user}"));
    assert_eq!(approved["state"], "approved");
    world.assert_refused(format!("approval deny {id} --by {user}"), "already");
    world.await_state("succeeded", 1).await;
    let received = peer.await_received(1).await.remove(0);
    let bearer = received.header("authorization");
    assert_eq!(bearer, Some("Bearer canary-token"));
    let runs = world.order(format!("run list --workspace {workspace}"));
    let show = format!("run show {}", runs[0]["run_id"].as_str().unwrap());
    let story = world.order(&show);
    let action = &story["actions"][0];
    let key = received.header("idempotency-key");
    let expected = json!({"decision": "approve", "policy_version": 1, "attempts": 1,
        "idempotency_key": key});
    assert_holds(action, expected);
    assert!(action["duration_milliseconds"].is_number() && !story.to_string().contains("canary"));
    let table = world.letterbox(&show);
    assert!(String::from_utf8_lossy(&table.stdout).contains("/Ada"));

    let account = account["account_id"].as_str().unwrap();
    let disconnect = format!("account disconnect {account} --yes");
    world.order(&disconnect);
    world.assert_refused(disconnect, "");
}

/// Keys rotate while deliveries come in: none is refused, and the old key is not needed any more.
#[tokio::test(flavor = "multi_thread")]
async fn keys_rotate_under_load() {
    let world = World::new().await;
    let (old, both, both_new) = (
        world.webhook_keys.clone(),
        format!("{},{NEW_KEY}", world.webhook_keys),
        format!("{NEW_KEY},{}", world.webhook_keys),
    );
    let keys = |keys| [("LETTERBOX_WEBHOOK_KEYS", keys)];
    let first = world.gateway_with(&keys(&*both)).await;
    let mut webhooks = Vec::new();
    for _ in 0..20 {
        webhooks.push(world.webhook(&first).await);
    }
    let sending = tokio::spawn({
        let webhooks = webhooks.clone();
        async move {
            for n in 0..400_usize {
                let answer = webhooks[n % 20].send(n.to_string()).await;
                assert!(answer.is_first(), "{answer:?}");
            }
        }
    });
    let rotated = world.order_with(&keys(&*both_new), "keys rotate");
    assert_holds(&rotated, json!({"resealed": 20, "current": 0}));
    sending.await.unwrap();
    let again = world.order_with(&keys(&*both_new), "keys rotate");
    assert_holds(&again, json!({"resealed": 0, "current": 20}));

    let new_only = world.gateway_with(&keys(NEW_KEY)).await;
    assert!(webhooks[0].at(&new_only).send("\"new\"").await.is_first());
    let old_only = world.gateway_with(&keys(&*old)).await;
    let refused = webhooks[0].at(&old_only).send("\"old\"").await;
    assert_eq!(refused.status, 503, "not 401: the sender is not to blame");
    assert_eq!(sign(&webhooks[0].secret, b"").len(), 64);
}

/// A credential that changes breaks nothing that was rendered with the former: neither what waits
/// for a person nor what waits for its next attempt.
#[tokio::test]
async fn a_new_credential_serves_what_waits() {
    let is_new = |request: &Received| request.header("authorization") == Some("Bearer second");
    let peer = Peer::start(move |request, _| match is_new(request) {
        true => Reply::Status(200),
        false => Reply::Status(503),
    });
    let peer = peer.await;
    let scene = Scene::new(&peer, json!([post("send")])).await;
    let (world, form) = (&scene.world, &scene.form);
    let approve = json!({"rules": [], "default": "approve"});
    scene.set_policy(approve).await;
    for number in 0..50 {
        if number % 20 == 0 {
            world.forget_hits().await;
        }
        form.assert_accepts(&format!("k{number}")).await;
    }
    world.await_state("waiting_approval", 50).await;
    let operator = world.operator().await;
    let waiting = world.waiting(form.workspace).await;
    for question in &waiting[..25] {
        world.approve(question.approval_id, form.owner).await;
    }
    // Half of them wait for their next attempt.
    let retrying = "run_actions WHERE state = 'retrying'";
    world.await_rows(retrying, 25).await;
    let token = command_file(&format!("{}.second", form.workspace), "second\n");
    let account = world.order(format!("account list --workspace {}", form.workspace));
    let account = account[0]["account_id"].as_str().unwrap().to_owned();
    let rotated = world.order(format!("account rotate {account} --bearer-file {token}"));
    assert_eq!(rotated["account_id"], *account);
    for question in &waiting[25..] {
        world.approve(question.approval_id, form.owner).await;
    }
    let hurrying = operator.hurry_runs(form.workspace, None, None);
    hurrying.await.unwrap();
    world.await_state("succeeded", 50).await;
    let received = peer.received();
    let done = received.iter().filter(|one| is_new(one));
    let keys: BTreeSet<_> = done.map(|one| one.header("idempotency-key")).collect();
    assert_eq!(keys.len(), 50, "each under a key of its own, once");
    let log = world.order("audit list");
    let rotation = one_of(&log, "command", "account rotate");
    let hidden = json!({"credential_sealed": "(hidden)"});
    assert_eq!(rotation["after"], hidden);

    world.order(format!("account disconnect {account} --yes"));
    let rotate = format!("account rotate {account} --bearer-file {token}");
    world.assert_refused(rotate, "no such connected account");
}
