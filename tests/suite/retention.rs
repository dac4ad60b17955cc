//! What is stored, and for how long: ceilings that strangers can't get past, and what is forgotten
//! when its owner wants that.

use letterbox_common::states::MemberRole;
use letterbox_database::Role;
use letterbox_tests::{Peer, Reply, Scene, World, assert_holds, post};
use serde_json::json;

/// Lets everything be so many days older.
async fn age(world: &World, days: i32) {
    let aging = format!(
        "UPDATE signals SET stored_at = stored_at - interval '{days} days';
         UPDATE runs SET finished_at = finished_at - interval '{days} days'"
    );
    world.change(&aging).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_run_keeps_no_input() {
    let (_peer, scene) = Scene::posting("send").await;
    let (world, workspace) = (&scene.world, scene.form.workspace);
    world.set_allowance(workspace, Some(0)).await;
    scene.submit_until("k", "refused", 1).await;
    let kept = "SELECT coalesce(sum(octet_length(input)), 0) FROM runs";
    world.assert_count(kept, 0).await;
    assert!(scene.the_run().await.input.is_none());
    // It is not a new one when it comes again.
    scene.form.assert_accepts("k").await;
    assert_eq!(world.runs().await, 1);
}

/// Beyond the ceiling of a webhook its sender hears 503; beyond that of the workspace runs are
/// refused, which no submitter learns.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_stored_in_a_day_has_a_ceiling() {
    let world = World::new().await;
    let ceilings = [
        ("LETTERBOX_WEBHOOK_DAILY_MEGABYTES", "1"),
        ("LETTERBOX_WORKSPACE_DAILY_MEGABYTES", "2"),
    ];
    let mut worker = world.worker_with(&ceilings[1..]).await;
    let first = world.gateway_with(&ceilings).await;
    let (webhook, form) = (world.webhook(&first).await, world.form(&first).await);
    let body = |n: usize| format!("[{n}, \"{}\"]", "x".repeat(60_000));
    for n in 0..18 {
        assert!(webhook.send(body(n)).await.is_first());
    }
    world.await_signals(18).await;
    // A stop notes what was counted; a new gateway knows it at once.
    worker.terminate();
    worker.ended().await;
    let stored = "SELECT bytes / 1000 FROM stored_bytes ORDER BY webhook_id DESC LIMIT 1";
    world.assert_count(stored, 1089).await; // and 512 for each row
    let gateway = world.gateway_with(&ceilings).await;
    let full = webhook.at(&gateway).send("\"more\"").await;
    full.assert_refused(503, "temporarily_unavailable");
    assert_eq!(full.header("retry-after"), Some("600"));
    assert!(webhook.at(&gateway).send(body(0)).await.is_duplicate());
    let wrong = webhook.at(&gateway).request("\"more\"");
    let wrong = wrong.header("x-service-signature", "0".repeat(64));
    let told = wrong.send().await.unwrap().status();
    assert_eq!(told, 401, "who can't sign learns nothing");
    let other = world.webhook(&gateway).await;
    assert!(other.send("\"more\"").await.is_first()); // of another workspace

    let fill = "INSERT INTO stored_bytes VALUES ($1, (now() AT TIME ZONE 'UTC')::date,
        NULL, 2 << 20)";
    world
        .database
        .execute(fill, &[&form.workspace])
        .await
        .unwrap();
    let _worker = world.worker_with(&ceilings[1..]).await;
    form.at(&gateway).assert_accepts("k").await;
    world.await_state("refused", 1).await;
    let reason = "SELECT count(*) FROM runs WHERE refused_reason = 'storage_exhausted'
        AND input IS NULL";
    world.assert_count(reason, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_old_is_forgotten_and_stays_known() {
    let peer = Peer::start(|_, _| Reply::Status(200)).await;
    let mut scene = Scene::new(&peer, json!([post("send")])).await;
    let webhook = scene.world.webhook(&scene.gateway).await;
    assert!(webhook.send("\"old\"").await.is_first());
    scene.submit_until("old", "succeeded", 1).await;
    scene.world.await_signals(1).await;
    scene.worker.kill().await;
    age(&scene.world, 10).await;

    let world = &scene.world;
    let repeated = "INSERT INTO changed_repeats SELECT workspace_id, run_id, 1 FROM runs";
    world.change(repeated).await;
    for (what, forgotten) in [
        ("BODIES", "signals WHERE body IS NULL"),
        ("INPUTS", "runs WHERE input IS NULL"),
        ("REQUESTS", "run_actions WHERE request IS NULL"),
        ("RUNS", "erased_runs"),
    ] {
        world.assert_rows(forgotten, 0).await;
        let setting = format!("LETTERBOX_KEEP_{what}_DAYS");
        let kept = world.worker_with(&[(&setting, "11")]).await;
        let _sweeping = world.worker_with(&[(&setting, "9")]).await;
        world.await_rows(forgotten, 1).await;
        drop(kept);
    }
    assert_eq!(world.runs().await, 0);
    world.assert_rows("changed_repeats", 0).await;
    assert_eq!(world.signals().await, 1);
    // Repeats are repeats.
    assert!(webhook.send("\"old\"").await.is_duplicate());
    scene.form.assert_accepts("old").await;
    scene.form.assert_accepts("new").await;
    let _worker = world.worker().await;
    world.await_state("succeeded", 1).await;
    assert_eq!((world.runs().await, peer.received().len()), (1, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_forgets_nothing_of_today_and_nothing_that_goes_on() {
    let (_peer, scene) = Scene::posting("send").await;
    scene.ask().await;
    let world = &scene.world;
    age(world, 10).await;
    let worker = world.session(Role::Worker).await;
    for what in ["bodies", "inputs", "requests", "runs"] {
        let forget = "SELECT forget($1, $2, 500)";
        for days in [0, -1, 36_501, i32::MAX] {
            let refused = worker.query_one(forget, &[&what, &days]).await.unwrap_err();
            assert_eq!(refused.code().unwrap().code(), "42501", "{what} {days}");
        }
        let looked_at = worker.query_one(forget, &[&what, &36_500]).await;
        assert_eq!(looked_at.unwrap().get::<_, i32>(0), 0, "{what}");
        let looked_at = worker.query_one(forget, &[&what, &1]).await;
        assert_eq!(looked_at.unwrap().get::<_, i32>(0), 0, "{what}");
    }
    let kept = "SELECT count(*) FROM runs JOIN run_actions USING (run_id)
        WHERE input IS NOT NULL AND request IS NOT NULL";
    world.assert_count(kept, 1).await;
    for request in ["NULL", "'another'"] {
        let change = format!("UPDATE run_actions SET request = {request}");
        let refused = worker.batch_execute(&change).await.unwrap_err();
        assert_eq!(refused.code().unwrap().code(), "23001", "{request}");
    }
}

/// Everything that a person has given away is gone, and the run is still known.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_erased_on_order() {
    let peer = Peer::start(|_, _| Reply::Status(200)).await;
    let body = json!({"id": "send", "type": "http.request", "account": "crm", "method": "POST",
        "path": "/x", "body": "{{ form.message }}"});
    let scene = Scene::new(&peer, json!([body])).await;
    scene.decide("approve").await;
    let person = json!({"message": "canary-person"});
    scene.form.assert_accepts_with("k", person).await;
    let approval = scene.the_approval().await;
    let world = &scene.world;
    let erase = format!("run erase {} --yes", approval.run_id);
    world.assert_refused(&erase, "not over");
    world.approve(approval.approval_id, scene.form.owner).await;
    world.await_state("succeeded", 1).await;
    let erased = world.order(&erase);
    assert_holds(&erased, json!({"state": "succeeded", "input": null}));
    let held = "SELECT count(*) FROM runs r JOIN run_actions a USING (run_id)
        WHERE r::text || a::text || coalesce(encode(r.input, 'escape'), '') LIKE '%canary%'";
    world.assert_count(held, 0).await;
    let unknown = "run erase 00000000-0000-7000-8000-000000000000 --yes";
    world.assert_refused(unknown, "no such run");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workspace_is_deleted_with_everything_in_it() {
    let (_peer, scene) = Scene::posting("send").await;
    let world = &scene.world;
    let operator = world.operator().await;
    let workspace = scene.form.workspace;
    let hook = world.webhook_in(&scene.gateway, workspace).await;
    assert!(hook.send("1").await.is_first());
    scene.submit_until("1", "succeeded", 1).await;
    scene.decide("approve").await;
    scene.form.assert_accepts("2").await;
    scene.the_approval().await;
    world.await_signals(1).await;
    // Of another workspace.
    let other = world.form(&scene.gateway).await;
    let (owner, viewer) = (scene.form.owner, MemberRole::Viewer);
    world.set_role(other.workspace, owner, viewer).await;
    world.submit_until(&other, "1", "succeeded", 2).await;

    // What else refers to its owner: a session, a link, and the word of an issuer.
    world.person(owner).await;
    operator.make_sign_in_link(owner).await.unwrap();
    let known = format!(
        "INSERT INTO issuers VALUES ('https://issuer.example');
        INSERT INTO subjects VALUES ('https://issuer.example', 'it', '{owner}')"
    );
    world.change(&known).await;

    let wrong = format!("workspace delete {workspace} --name Testing");
    world.assert_refused(&wrong, "no such workspace");
    scene.form.assert_lives().await;
    world.order(format!("workspace delete {workspace} --name Test"));
    scene.form.assert_dead().await;
    assert_eq!(hook.send("2").await.status, 401);
    let tables = "SELECT relname::text FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
        WHERE a.attname = 'workspace_id' AND c.relkind = 'r' AND c.relname <> 'audit_log'";
    let tables: Vec<String> = world.column(tables).await;
    assert!(tables.len() > 15);
    for table in tables {
        let left = format!("{table} WHERE workspace_id = '{workspace}'");
        world.assert_rows(&left, 0).await;
    }
    assert_eq!(world.runs().await, 1, "of the other workspace");
    let owner = format!("users WHERE user_id = '{owner}'");
    world.assert_rows(&owner, 1).await; // a member of the other workspace
    world.order(format!("workspace delete {} --name Test", other.workspace));
    let named = "SELECT count(*) FROM users WHERE name <> 'deleted' OR email NOT LIKE '%.invalid'";
    world.assert_count(named, 0).await;
    let of_users = "SELECT conrelid::regclass::text FROM pg_constraint
        WHERE confrelid = 'users'::regclass AND NOT EXISTS (SELECT FROM pg_attribute
            WHERE attrelid = conrelid AND attname = 'workspace_id')";
    let of_users: Vec<String> = world.column(of_users).await;
    assert!(of_users.len() >= 3);
    for table in of_users {
        world.assert_rows(&table, 0).await;
    }
    // What the worker has counted of them and not yet written.
    let Scene {
        world, mut worker, ..
    } = scene;
    worker.terminate();
    worker.ended().await;
    world.assert_rows("stored_bytes", 0).await;
}
