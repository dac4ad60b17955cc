//! The check: finds data that do not agree, and says what to do about it.

use letterbox_tests::{Peer, Reply, Scene, World, assert_tells, command_file, one_of, post};
use serde_json::Value;

const MINUTES_AGO: &str =
    "SELECT (lpad(to_hex((extract(epoch FROM clock_timestamp()) * 1000)::bigint
    - 300000), 12, '0') || '7000800000000000beef')::uuid";

fn check(world: &World, settings: &[(&str, &str)], more: &str) -> (i32, Value) {
    world.judge(settings, format!("check {more}").trim_end())
}

fn one<'f>(found: &'f Value, about: &str) -> &'f Value {
    one_of(found, "about", about)
}

/// A key that has sealed nothing.
fn other_key() -> String {
    let halves = [(); 2].map(|()| uuid::Uuid::new_v4().simple().to_string());
    halves.concat()
}

/// All that is wrong, by what it is about.
fn wrong(found: &Value) -> Vec<&str> {
    let all = found.as_array().unwrap().iter();
    let wrong = all.filter(|one| one["verdict"] != "fine");
    wrong.map(|one| one["about"].as_str().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_agree_is_found_with_its_mend() {
    let peer = Peer::start(|_, _| Reply::Status(200)).await;
    let scene = Scene::new(&peer, serde_json::json!([post("one")])).await;
    let world = &scene.world;
    let settings = [("AMQP_URL", world.amqp_url.as_str())];
    let webhook = world.webhook(&scene.gateway).await;
    webhook.send("[1]").await;
    world.await_signals(1).await;
    scene.submit_until("done", "succeeded", 1).await;
    let question = scene.ask().await;
    let (code, found) = check(world, &settings, "");
    assert_eq!((code, wrong(&found)), (0, vec![]), "{found:#}");

    // Nothing of this can happen while the program is right.
    let sql = async |statements: &str| world.change(statements).await;
    sql(
        "INSERT INTO signals (workspace_id, signal_id, webhook_id, kind, generic_reason, body,
            received_at)
        SELECT workspace_id, gen_random_uuid(), webhook_id, kind, generic_reason, body, received_at
        FROM signals",
    )
    .await;
    // Of a batch that was published, and of one whose gateway ended.
    sql("INSERT INTO open_batches (batch_id, lease_until) VALUES (7, clock_timestamp())").await;
    for batch in [0, 7] {
        sql(&format!(
            "INSERT INTO claims SELECT {batch}, '{}', gen_random_uuid(), gen_random_uuid(),
                ({MINUTES_AGO}), NULL, filled
            FROM claim_halves WHERE source = 'deliveries'",
            webhook.address.workspace
        ))
        .await;
    }
    sql("DELETE FROM active_runs").await;
    let finished = "INSERT INTO active_runs (workspace_id, run_id, state, due_at)
        SELECT workspace_id, run_id, 'scheduled', 'infinity' FROM runs
        WHERE finished_at IS NOT NULL";
    sql(finished).await;
    let (code, found) = check(world, &settings, "");
    assert_eq!(code, 1);
    let expected = ["deliveries", "signals", "runs", "finished runs"];
    assert_eq!(wrong(&found), expected, "{found:#}");
    for (about, count) in expected.into_iter().zip([1, 1, 1, 1]) {
        let detail = one(&found, about)["detail"].as_str().unwrap();
        assert!(detail.starts_with(&count.to_string()), "{about}: {detail}");
    }

    let open = one(&found, "claims")["detail"].as_str().unwrap();
    let told = "1 batches were claimed and perhaps not published";
    assert!(open.starts_with(told), "{open}");

    // As it says, by hand, both are mended.
    let cancelled = "UPDATE runs SET cancel_reason = 'test' WHERE state = 'waiting_approval'";
    sql(cancelled).await;
    for about in ["runs", "finished runs"] {
        let mend = one(&found, about)["mend"].as_str().unwrap();
        sql(mend.split_once(" after: ").unwrap().1).await;
    }
    let (_, found) = check(world, &settings, "");
    assert_eq!(wrong(&found), ["deliveries", "signals"], "{found:#}");
    // It was to be cancelled, and is: nothing that was asked about is sent.
    world.await_state("cancelled", 1).await;
    assert_eq!(peer.received().len(), 1);
    drop(question);

    // Keys that open nothing, and no broker.
    let other = format!("test:{}", other_key());
    let keys = [("LETTERBOX_WEBHOOK_KEYS", other.as_str())];
    let (code, found) = check(world, &keys, "");
    assert_eq!(code, 1);
    let closed = one(&found, "secrets")["detail"].as_str().unwrap();
    assert!(closed.starts_with('1'), "{closed}");
    assert_tells(closed, &["webhooks"]);
    assert_eq!(one(&found, "queues")["detail"], "not looked at");
}

/// A batch whose claims were all taken over is of no more use: nobody counts it, and it is deleted.
/// Where a claim is left, its sender may come back.
#[tokio::test]
async fn a_batch_without_claims_is_forgotten() {
    let (world, gateway, webhook) = World::with_webhook().await;
    let form = world.form(&gateway).await;
    let sql = async |statements: &str| world.change(statements).await;
    assert!(webhook.send("1").await.is_first());
    form.assert_accepts("k").await;
    world.await_rows("open_batches", 0).await;
    // As if their gateway had died; a repeat takes the only claim of the first batch over.
    let reopened = "INSERT INTO open_batches (batch_id, lease_until)
        SELECT batch_id, clock_timestamp() - interval '2 hours' FROM";
    sql(&format!("{reopened} webhook_deliveries")).await;
    assert!(webhook.send("1").await.is_first());
    sql(&format!("{reopened} form_submissions")).await;
    let left = "SELECT count(*) FROM open_batches WHERE lease_until < now()";
    world.assert_count(left, 2).await;
    let (_, found) = check(&world, &[], "");
    let open = one(&found, "claims")["detail"].as_str().unwrap();
    assert!(open.starts_with("1 batches were claimed"), "{open}");
    let interrupted = || {
        let (_, status) = crate::status::status(&world);
        one_of(&status["backlog"], "kind", "interrupted batches")["count"].clone()
    };
    assert_eq!(interrupted(), 1);
    let _worker = world.worker().await;
    world.await_count("the other one is deleted", left, 1).await;
    let named = "SELECT count(*) FROM open_batches JOIN form_submissions USING (batch_id)";
    assert_eq!((world.count(named).await, interrupted()), (1, 1.into()));
}

/// Where the keys are lost, every command that the check names is accepted for what it names.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_check_recommends_is_accepted() {
    let answer = r#"{"id": 7}"#;
    let peer = Peer::start(|_, _| Reply::With(200, Vec::new(), answer.to_owned())).await;
    // An answer is kept that another action uses.
    let mut using = post("two");
    using["body"]["id"] = "{{ actions.one.body.id }}".into();
    let scene = Scene::new(&peer, serde_json::json!([post("one"), using])).await;
    let (world, form) = (&scene.world, &scene.form);
    let keep = format!("workspace settings {} --keep-answers on", form.workspace);
    world.order(keep);
    world.webhook(&scene.gateway).await;
    let file = format!("{}.secret", form.workspace);
    let file = command_file(&file, "a secret of the other key");
    world.order(format!(
        "account connect --workspace {} --user {} --name granted --base-url {url} --token-url \
         {url}/token --client-id x --client-secret-file {file}",
        form.workspace,
        form.owner,
        url = peer.url
    ));
    scene.submit_until("done", "succeeded", 1).await;

    let keys = [(); 2].map(|()| format!("test:{}", other_key()));
    let keys = [
        ("LETTERBOX_WEBHOOK_KEYS", keys[0].as_str()),
        ("LETTERBOX_ACCOUNT_KEYS", keys[1].as_str()),
    ];
    let secrets = || {
        let (_, found) = check(world, &keys, "");
        let of = |member: &str| one(&found, "secrets")[member].as_str().map(str::to_owned);
        (of("detail").unwrap(), of("mend"))
    };
    let (detail, mend) = secrets();
    let (_, closed) = detail.split_once("not open: ").unwrap();
    let tables = ["webhooks", "connected_accounts", "grants", "run_actions"];
    for table in tables {
        let row = closed.split(", ").find(|one| one.starts_with(table));
        let (_, row) = row.expect(table).split_once(" of ").unwrap();
        let id = row.split_once(':').unwrap().0;
        let begin = format!("{table} by letterbox ");
        let command = mend.as_ref().unwrap().split_once(&begin).unwrap().1;
        let command = command.split(',').next().unwrap();
        let command = command.replace("ID", id).replace("FILE", &file);
        let yes = if table == "run_actions" { " --yes" } else { "" };
        world.order_with(&keys, format!("{command}{yes}"));
    }
    let over = "SELECT end_replaced_webhooks()";
    world.database.execute(over, &[]).await.unwrap();
    let (left, _) = secrets();
    // A worker with the former keys may seal the new secret of a client by those.
    for table in ["webhooks", "connected_accounts", "run_actions"] {
        assert!(!left.contains(table), "{left}");
    }
}
