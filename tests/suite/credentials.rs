//! Where credentials go: to the account that they were connected for, whatever is written into the
//! database afterwards, and opened by the worker alone.

use letterbox_tests::{CREDENTIAL, Peer, Reply, Scene, World, assert_tells, post};
use serde_json::json;

/// A peer that must not be reached.
async fn thief() -> Peer {
    Peer::start(|_, _| Reply::Status(200)).await
}

/// A scene whose run waits for a person to approve its one action.
async fn waiting(peer: &Peer) -> Scene {
    let scene = Scene::new(peer, json!([post("send")])).await;
    scene.ask().await;
    scene
}

/// The user approves, and the run fails for this reason.
async fn assert_fails(scene: &Scene, because: &str) {
    let approval = scene.the_approval().await;
    scene.approve(approval.approval_id).await;
    scene.world.await_state("failed", 1).await;
    scene.assert_failed(because).await;
}

#[tokio::test]
async fn a_credential_opens_for_what_it_was_connected_to() {
    let (peer, thief) = (thief().await, thief().await);
    let scene = Scene::new(&peer, json!([post("send")])).await;
    let other = scene.world.user("other").await;
    let changes = [
        format!("base_url = '{}'", thief.url),
        "header_name = 'x-token'".to_owned(),
        "credential_sealed = credential_sealed || '\\x00'".to_owned(),
    ];
    let database = &scene.world.database;
    let before = "CREATE TABLE before AS SELECT * FROM connected_accounts";
    database.batch_execute(before).await.unwrap();
    for (number, change) in (1..).zip(changes) {
        let change = format!(
            "UPDATE connected_accounts a SET (base_url, header_name, credential_sealed) =
                (b.base_url, b.header_name, b.credential_sealed) FROM before b;
             UPDATE connected_accounts SET {change}"
        );
        database.batch_execute(&change).await.unwrap();
        scene.form.assert_accepts(&number.to_string()).await;
        scene.world.await_state("failed", number).await;
        scene.assert_failed("can't be decrypted").await;
    }
    // An account of the same kind under another user.
    let give = "UPDATE workflows SET owner_id = $1";
    let moving = "INSERT INTO members (workspace_id, user_id, role)
        SELECT workspace_id, $1, 'owner' FROM workspaces";
    database.execute(moving, &[&other]).await.unwrap();
    database.execute(give, &[&other]).await.unwrap();
    let steal = "UPDATE connected_accounts a SET user_id = $1, base_url = b.base_url,
        header_name = b.header_name, credential_sealed = b.credential_sealed FROM before b";
    database.execute(steal, &[&other]).await.unwrap();
    let form = scene.world.relink(&scene.form).await;
    scene.world.submit_until(&form, "other", "failed", 4).await;
    assert!(peer.received().is_empty() && thief.received().is_empty());
}

#[tokio::test]
async fn an_approved_request_is_what_is_sent() {
    let (peer, thief) = (thief().await, thief().await);
    let scene = waiting(&peer).await;
    let database = &scene.world.database;
    let rewriting = format!(
        "UPDATE run_actions SET request = replace(request, '{}', '{}')",
        peer.url, thief.url
    );
    let refused = database.batch_execute(&rewriting).await.unwrap_err();
    assert_tells(&format!("{refused:?}"), &["recorded once"]);

    let unguarded = format!("SET session_replication_role = replica; {rewriting}");
    database.batch_execute(&unguarded).await.unwrap();
    assert_fails(&scene, "does not go to the account").await;
    assert!(peer.received().is_empty() && thief.received().is_empty());
}

#[tokio::test]
async fn an_address_that_changes_while_a_run_waits_gets_nothing() {
    let (peer, thief) = (thief().await, thief().await);
    let scene = waiting(&peer).await;
    let moving = "UPDATE connected_accounts SET base_url = $1";
    let database = &scene.world.database;
    database.execute(moving, &[&thief.url]).await.unwrap();
    assert_fails(&scene, "does not go to the account").await;
    assert!(peer.received().is_empty() && thief.received().is_empty());
}

/// One set of keys for everything still works, where the settings of their own are missing; and no
/// process is given what the other's keys open.
#[tokio::test]
async fn each_process_has_the_keys_that_it_needs() {
    let mut world = World::new().await;
    let peer = thief().await;
    let all = [("LETTERBOX_SEALING_KEYS", world.webhook_keys.as_str())];
    let none = [
        ("LETTERBOX_WEBHOOK_KEYS", ""),
        ("LETTERBOX_ACCOUNT_KEYS", ""),
    ];
    let settings = [all.as_slice(), &none].concat();
    let gateway = world.gateway_with(&settings).await;
    let worker = world.worker_with(&settings).await;
    assert!(gateway.log().contains("set LETTERBOX_WEBHOOK_KEYS"));
    assert!(worker.log().contains("set LETTERBOX_ACCOUNT_KEYS"));
    let webhook = world.webhook(&gateway).await;
    assert!(webhook.send("1").await.is_first());

    let keys_apart = std::mem::replace(&mut world.account_keys, world.webhook_keys.clone());
    let form = world.sending_form(&gateway, &peer).await;
    world.submit_until(&form, "1", "succeeded", 1).await;
    let shown = format!("Bearer {CREDENTIAL}");
    let received = peer.received();
    assert_eq!(received[0].header("authorization"), Some(&*shown));
    drop(worker);

    world.account_keys = keys_apart;
    let worker = world.worker().await;
    world.submit_until(&form, "2", "failed", 1).await;
    worker.await_log("a credential can't be decrypted").await;
}
