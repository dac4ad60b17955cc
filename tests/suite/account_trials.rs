//! An owner tries an account before a workflow calls it: it is called as an action would call it,
//! and the answer is shown to the owner alone.

use letterbox_common::states::MemberRole;
use letterbox_database::Role;
use letterbox_tests::{CREDENTIAL, Desk, Peer, Received, Reply, World, assert_hides, assert_tells};
use serde_json::Value;

fn script(request: &Received, _: usize) -> Reply {
    let authorization = request.header("authorization").unwrap_or_default();
    match request.target.as_str() {
        "/me?full=1" => Reply::With(200, Vec::new(), format!("{{\"by\": {authorization:?}}}")),
        "/gone" => Reply::Status(404),
        _ => Reply::Status(500),
    }
}

/// Lets an account be tried again at once.
async fn forget(world: &World) {
    world
        .change("UPDATE account_trials SET asked_at = now() - interval '10 seconds'")
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_is_tried_as_an_action_calls_it() {
    let peer = Peer::start(script).await;
    let (world, _gateway, _worker, form) = World::with_recorded_form().await;
    let account = world.connect_for(&form, "api", &peer.url).await.account_id;
    let attempt = async |path: &str| -> Value {
        let tried = world.order(format!("account try {account} --path {path}"));
        forget(&world).await;
        tried
    };
    let tried = attempt("/me?full=1").await;
    assert_eq!(
        (&tried["status"], &tried["error"]),
        (&200.into(), &Value::Null)
    );
    assert_eq!(tried["answer"]["body"], r#"{"by": "[hidden]"}"#);
    let received = peer.received().remove(0);
    assert_eq!(received.method, "GET");
    assert!(
        received
            .header("authorization")
            .unwrap()
            .ends_with(CREDENTIAL)
    );
    for (path, status, error) in [
        ("/gone", Value::from(404), "answered with status 404"),
        ("/other", 500.into(), "answered with status 500"),
        ("/../admin", Value::Null, "write the path as it is sent"),
        ("/a#b", Value::Null, "write the path as it is sent"),
    ] {
        let tried = attempt(path).await;
        assert_eq!(tried["status"], status, "{path}");
        assert_tells(tried["error"].as_str().unwrap(), &[error]);
    }
    let sent = peer.received().len();
    for (decision, told) in [
        ("deny", "the policy denies"),
        ("approve", "wants an approval"),
    ] {
        world.decide(form.workspace, decision).await;
        assert_tells(attempt("/me").await["error"].as_str().unwrap(), &[told]);
    }
    world.decide(form.workspace, "allow").await;
    world.order(format!("workspace hold {}", form.workspace));
    assert_tells(
        attempt("/me").await["error"].as_str().unwrap(),
        &["is held"],
    );
    world.order(format!("workspace release {}", form.workspace));
    assert_eq!(peer.received().len(), sent);

    // What was answered is not kept with who asked, nor for longer than an hour.
    let entries = world.order("audit list --limit 50").to_string();
    assert_tells(&entries, &["account_trials"]);
    assert_hides(&entries, &["full=1", "[hidden]", "/gone"]);
    world
        .change("UPDATE account_trials SET asked_at = now() - interval '2 hours'")
        .await;
    world.await_rows("account_trials", 0).await;
    let try_it = format!("account try {account}");
    world.order(&try_it);
    world.assert_refused(try_it, "less than five seconds ago");
}

/// Others, and an owner of the workspace is another, neither try it nor see what it has answered.
#[tokio::test(flavor = "multi_thread")]
async fn only_the_owner_of_an_account_sees_what_it_answers() {
    let peer =
        Peer::start(|_, _| Reply::With(200, vec![], "CANARY of the account".to_owned())).await;
    let (world, _gateway, _worker, form) = World::with_recorded_form().await;
    let account = world.connect_for(&form, "api", &peer.url).await.account_id;
    let (desk, owner) = Desk::with_visitor(&world, form.owner).await;
    let boss = desk
        .member(&world, form.workspace, "boss", MemberRole::Owner)
        .await;
    let place = format!("/accounts/{account}/try");
    let list = format!("/accounts?workspace={}", form.workspace);
    let refused = boss.order(&place, &[("path", "/me")]).await;
    assert!(refused.status().is_client_error(), "{refused:?}");
    assert_eq!(peer.received().len(), 0);
    let tried = owner.order(&place, &[("path", "/me")]).await;
    assert_eq!(tried.status(), 303);
    assert_tells(&owner.page(&list).await, &["answered 200", "CANARY", "/me"]);
    assert_hides(&boss.page(&list).await, &["CANARY", "answered 200"]);
    // Whoever may not run workflows any more calls no account.
    forget(&world).await;
    world.set_owner_role(&form, MemberRole::Viewer).await;
    let refused = owner.order(&place, &[("path", "/me")]).await;
    assert!(refused.status().is_client_error(), "{refused:?}");
    assert_eq!(peer.received().len(), 1);
}

/// Accounts that never answer, and a person who locks a trial, hold up nobody else's.
#[tokio::test(flavor = "multi_thread")]
async fn the_trials_of_others_go_on() {
    let (silent, _gate) = Peer::gated(200).await;
    let peer = Peer::start(|_, _| Reply::Status(200)).await;
    let (world, gateway, _worker) = World::with_both().await;
    let (first, second) = (world.form(&gateway).await, world.form(&gateway).await);
    for number in 0..20 {
        let name = format!("silent-{number}");
        world.connect_for(&first, &name, &silent.url).await;
    }
    let locked = world.connect_for(&first, "locked", &silent.url).await;
    let account = world.connect_for(&second, "api", &peer.url).await;
    world
        .change(
            "INSERT INTO account_trials (workspace_id, account_id, user_id, path)
            SELECT workspace_id, account_id, user_id, '/' FROM connected_accounts
            WHERE name ~ '^silent|^locked'",
        )
        .await;
    let its = format!("account_id = '{}'", locked.account_id);
    let long_ago = "UPDATE account_trials SET asked_at = now() - interval '2 hours'";
    world.change(&format!("{long_ago} WHERE {its}")).await;
    let session = world.session(Role::Login).await;
    let lock = format!("BEGIN; SELECT FROM account_trials WHERE {its} FOR UPDATE");
    session.batch_execute(&lock).await.unwrap();
    silent.await_received(1).await;
    let tried = world.order(format!("account try {}", account.account_id));
    assert_eq!(tried["status"], 200, "{tried}");
    let in_hand = "SELECT count(*) FROM account_trials
        WHERE answered_at IS NULL AND taken_until > now()";
    assert!(
        world.count(in_hand).await <= 1,
        "one of a workspace at a time"
    );
}

/// What has begun may have been sent: it is not sent again, and nobody says what came of it.
#[tokio::test(flavor = "multi_thread")]
async fn what_has_begun_is_not_sent_again() {
    let (silent, _gate) = Peer::gated(200).await;
    let (world, _gateway, mut worker, form) = World::with_recorded_form().await;
    let account = world
        .connect_for(&form, "api", &silent.url)
        .await
        .account_id;
    world
        .change(
            "INSERT INTO account_trials (workspace_id, account_id, user_id, path)
            SELECT workspace_id, account_id, user_id, '/' FROM connected_accounts",
        )
        .await;
    silent.await_received(1).await;
    forget(&world).await;
    world.assert_refused(format!("account try {account}"), "is being tried");
    worker.kill().await;
    world
        .change("UPDATE account_trials SET taken_until = now() - interval '1 second'")
        .await;
    let _next = world.worker().await;
    // One that is asked for later is sent, so this one was looked at.
    let peer = Peer::start(|_, _| Reply::Status(200)).await;
    let other = world.connect_for(&form, "other", &peer.url).await;
    world
        .change("UPDATE account_trials SET begun_at = begun_at - interval '3 minutes'")
        .await;
    let tried = world.order(format!("account try {}", other.account_id));
    assert_eq!(tried["status"], 200, "{tried}");
    assert_eq!(silent.received().len(), 1);
    let (_desk, owner) = Desk::with_visitor(&world, form.owner).await;
    let list = format!("/accounts?workspace={}", form.workspace);
    assert_tells(&owner.page(&list).await, &["nobody knows what came of it"]);
}
