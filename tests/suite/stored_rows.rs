//! What a process loads it checks: rows that people may write hold what no program would store, and
//! answers are larger than they look. The run that is concerned fails; nobody else notices.

use letterbox_tests::{Peer, Process, Received, Reply, Scene, World, definition_with, post};
use serde_json::{Value, json};

/// Stores something as no program would.
async fn store(world: &World, statement: String) {
    let order = format!("SET session_replication_role = replica; {statement}; RESET ALL");
    world.change(&order).await;
}

/// Expressions that a deploy refuses, because they make much of little.
const REFUSED: [&str; 8] = [
    "1 in ([2] * form.seats)",
    "([1] * form.seats) | last",
    "form.name * 100000000",
    "(form.seats | string) * 1000",
    "run.id * 1000000000",
    "form.name[::-1]",
    "range(form.seats)",
    "form_as_typed.name[:]",
];

/// A worker trusts no definition that it loads.
#[tokio::test(flavor = "multi_thread")]
async fn a_release_that_no_deploy_would_take_fails_its_runs() {
    let peer = Peer::start(|_, _| Reply::Status(200)).await;
    let Scene {
        world,
        gateway,
        worker: _worker,
        form,
    } = Scene::new(&peer, json!([post("send")])).await;
    for (number, refused) in (1..).zip(REFUSED) {
        let form = world.form_in(&gateway, form.workspace, form.owner).await;
        let condition = json!([{"id": "c", "type": "condition", "if": refused,
            "then": [post("send")], "else": []}]);
        let text = json!([{"id": "t", "type": "http.request", "account": "crm", "method": "POST",
            "path": "/t", "body": format!("{{{{ {refused} }}}}")}]);
        let actions = if number % 2 == 1 { condition } else { text };
        let stored = format!(
            "UPDATE releases SET actions = $${actions}$$ WHERE workflow_id = '{}'",
            form.workflow
        );
        store(&world, stored).await;
        world.submit_until(&form, "k", "failed", number).await;
        world.assert_failed(&form, "can't be loaded").await;
    }
    world.submit_until(&form, "good", "succeeded", 1).await;
    assert!(peer.received().iter().all(|one| one.target == "/send"));
}

/// The credential leaves in no header, and for no address, that an account could not be connected
/// with.
#[tokio::test(flavor = "multi_thread")]
async fn an_account_that_could_not_be_connected_is_not_called() {
    let (peer, scene) = Scene::posting("send").await;
    let (world, form) = (&scene.world, &scene.form);
    let definition = definition_with(json!([post("send")]));
    for (number, (change, told)) in (1..).zip([
        ("header_name = 'Host'", "reserved"),
        ("header_name = 'Transfer-Encoding'", "reserved"),
        ("header_name = 'a b'", "not a header name"),
        ("base_url = 'ftp://x.example'", "must begin with http"),
        ("base_url = 'http://a:b@x.example'", "a user, a password"),
    ]) {
        let stored = format!(
            "UPDATE connected_accounts SET header_name = 'authorization', base_url = '{}';
            UPDATE connected_accounts SET {change}",
            peer.url
        );
        store(world, stored).await;
        form.assert_accepts(&format!("k{number}")).await;
        world.await_state("failed", number).await;
        scene.assert_failed(told).await;
        // Nor by a step of a draft that its owner sends.
        let step = json!({"definition": definition.to_string(), "answers": r#"{"name": "Ada"}"#,
            "received_at": "now", "action": "send"});
        let tried = format!(
            "DELETE FROM account_trials; INSERT INTO account_trials
                (workspace_id, account_id, user_id, step)
            SELECT workspace_id, account_id, user_id, $${step}$$ FROM connected_accounts"
        );
        store(world, tried).await;
        let errors = format!("account_trials WHERE error LIKE '%{told}%'");
        world.await_rows(&errors, 1).await;
    }
    assert_eq!(peer.received(), []);
}

/// Actions of one run that get large answers, and one that names them all.
fn greedy(kind: &str, answers: usize) -> Value {
    let get = |number: usize| {
        json!({"id": format!("a{number}"), "type": "http.request", "account": "crm",
            "method": "GET", "path": format!("/{kind}")})
    };
    let mut actions: Vec<Value> = (0..answers).map(get).collect();
    let names: String = (0..answers)
        .map(|number| format!("{{{{ actions.a{number}.body | length }}}} "))
        .collect();
    actions.push(
        json!({"id": "sum", "type": "http.request", "account": "crm", "method": "POST",
        "path": "/sum", "body": names}),
    );
    actions.into()
}

/// Answers as large as they may be: of one value, and of nearly as many as are parsed at all.
fn answer(request: &Received, _: usize) -> Reply {
    let body = match request.target.as_str() {
        "/text" => format!("\"{}\"", "x".repeat(65_000)),
        "/lists" => format!("[{}[]]", "[], ".repeat(4_990)),
        _ => String::new(),
    };
    Reply::With(200, Vec::new(), body)
}

/// The peak of a process's memory, in MiB.
fn peak(process: &Process) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.unwrap().trim_end_matches("kB").trim();
    kilobytes.parse::<u64>().unwrap() / 1024
}

/// Two dozen runs of one workspace, each with four megabytes of answers that its last action names.
#[tokio::test(flavor = "multi_thread")]
async fn what_accounts_answer_takes_a_bounded_part_of_a_worker() {
    const RUNS: usize = 12;
    let peer = Peer::start(answer).await;
    let (world, gateway, worker, plain) = World::with_recorded_form().await;
    let (workspace, owner) = (plain.workspace, plain.owner);
    world.connect(workspace, owner, "crm", &peer.url).await;
    let greedy_form = async |kind: &str| {
        let definition = definition_with(greedy(kind, 60));
        world.form_of(&gateway, workspace, owner, &definition).await
    };
    let (texts, lists) = (greedy_form("text").await, greedy_form("lists").await);
    for number in 0..RUNS {
        for form in [&texts, &lists] {
            form.assert_accepts(&format!("k{number}")).await;
        }
    }
    let all = 2 * RUNS as i64;
    world
        .await_rows("runs WHERE finished_at IS NOT NULL", all)
        .await;
    world.assert_failed(&lists, "more than 50000 values").await;
    assert_eq!(world.run_of(&texts).await.row.failure, None);
    let mut sums = peer.received();
    sums.retain(|one| one.target == "/sum");
    assert_eq!(sums.len(), RUNS);
    let expected = json!("65000 ".repeat(60)).to_string();
    assert!(sums.iter().all(|sum| sum.body == expected));
    let peak = peak(&worker);
    assert!(peak < 160, "{peak} MiB");
}

/// A desk in foreign hands inserts what it likes, but no id of another tenant: what an operator
/// orders by an id means one row.
#[tokio::test(flavor = "multi_thread")]
async fn an_id_means_one_row() {
    let (_peer, scene) = Scene::posting("send").await;
    let (world, mine) = (&scene.world, &scene.form);
    let webhook = world.webhook_in(&scene.gateway, mine.workspace).await;
    let account = "SELECT account_id FROM connected_accounts";
    let account: uuid::Uuid = world.value(account).await;
    let other = world.form(&scene.gateway).await;
    let (id, workspace) = (webhook.address.webhook, other.workspace);
    let inserts = [
        format!(
            "INSERT INTO webhooks (workspace_id, webhook_id, name, secret_sealed)
            VALUES ('{workspace}', '{id}', 'junk', 'x')"
        ),
        format!(
            "INSERT INTO connected_accounts (workspace_id, account_id, user_id, name, base_url,
                header_name, credential_sealed)
            VALUES ('{workspace}', '{account}', '{}', 'crm', 'https://x.example', 'a', 'x')",
            other.owner
        ),
        format!(
            "INSERT INTO workflows (workspace_id, workflow_id, owner_id, name)
            VALUES ('{workspace}', '{}', '{}', 'junk')",
            mine.workflow, other.owner
        ),
    ];
    let desk = world.desk_of(other.owner).await;
    for insert in &inserts {
        let refused = desk.batch_execute(insert).await.expect_err(insert);
        let told = refused.as_db_error().unwrap().message();
        assert_eq!(told, "this id is not a new one", "{insert}");
        let ids = [
            id.to_string(),
            account.to_string(),
            mine.workflow.to_string(),
        ];
        let nil = ids.iter().fold(insert.clone(), |insert, id| {
            insert.replace(id, &uuid::Uuid::nil().to_string())
        });
        assert!(desk.batch_execute(&nil).await.is_err(), "{nil}");
    }
    // Even if there were two: what would mean both means none, and an account of one holds up
    // nothing of the other.
    for insert in inserts {
        store(world, insert).await;
    }
    let waits = format!(
        "UPDATE connected_accounts SET waits_for = 'owner' WHERE workspace_id = '{workspace}'"
    );
    store(world, waits).await;
    for order in [
        format!("webhook delete {id} --yes"),
        format!("account disconnect {account} --yes"),
        format!("workflow pause {} --yes", mine.workflow),
    ] {
        world.assert_refused(&order, "more than one");
    }
    mine.assert_accepts("k").await;
    world.await_state("succeeded", 1).await;
    assert!(webhook.send("[]").await.is_first());
}

/// What a gateway knows of a webhook counts as long as it is so.
#[tokio::test(flavor = "multi_thread")]
async fn a_changed_webhook_counts_from_the_next_delivery_on() {
    let (world, _gateway, webhook) = World::with_webhook().await;
    assert!(webhook.send("[1]").await.is_first());
    let change = |change: &str| format!("UPDATE webhooks SET {change}");
    let narrowed = change("allow_from = '192.0.2.0/24'");
    world.change(&narrowed).await;
    assert_eq!(webhook.send("[2]").await.status, 401);
    assert_eq!(webhook.send("[1]").await.status, 401, "a repeat, too");
    let widened = change("allow_from = '127.0.0.0/8', kept_headers = '{x-event}'");
    world.change(&widened).await;
    assert!(webhook.send("[1]").await.is_duplicate());
    let with_header = webhook.request("[3]").header("X-Event", "made");
    assert_eq!(with_header.send().await.unwrap().status(), 202);
    let _worker = world.worker().await;
    world.await_signals(2).await;
    let kept = "SELECT count(*) FROM signals WHERE headers LIKE '%made%'";
    world.assert_count(kept, 1).await;
}
