//! The operator command line, as people and programs use it.

use std::process::{Command, Output};

use letterbox_tests::{DEFINITION, Peer, Reply, World, binary, definition_with, eventually, sign};
use serde_json::Value;

const NEW_KEY: &str = "next:f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff000102030405060708090a0b0c0d0e0f";

fn run(world: &World, keys: &str, arguments: &[&str]) -> Output {
    Command::new(binary("letterbox"))
        .args(arguments)
        .env_clear()
        .envs([
            ("DATABASE_URL", world.database_url.as_str()),
            ("LETTERBOX_SEALING_KEYS", keys),
        ])
        .output()
        .unwrap()
}

fn json(world: &World, arguments: &[&str]) -> Value {
    let output = run(world, &world.keys, &[arguments, &["--json"]].concat());
    assert!(
        output.status.success(),
        "{arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

fn refused(world: &World, arguments: &[&str]) -> (i32, String) {
    let output = run(world, &world.keys, arguments);
    assert!(output.stdout.is_empty(), "errors go to standard error");
    (
        output.status.code().unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    )
}

#[tokio::test]
async fn from_a_workspace_to_a_signal() {
    let world = World::new().await;
    let (gateway, _worker) = (world.gateway().await, world.worker().await);
    let base = gateway.public_url();
    let workspace = json(&world, &["workspace", "create", "--name", "Acme"])["workspace_id"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(
        json(&world, &["workspace", "list"])[0]["workspace_id"],
        workspace.as_str()
    );
    let user = json(
        &world,
        &[
            "user",
            "create",
            "--email",
            "a@example.com",
            "--name",
            "Ann",
        ],
    )["user_id"]
        .as_str()
        .unwrap()
        .to_owned();
    for role in ["owner", "viewer"] {
        let member = json(
            &world,
            &[
                "member",
                "set",
                "--workspace",
                &workspace,
                "--user",
                &user,
                "--role",
                role,
            ],
        );
        assert_eq!(member["role"], role);
    }
    assert_eq!(
        json(&world, &["member", "list", "--workspace", &workspace])
            .as_array()
            .unwrap()
            .len(),
        1
    );
    json(
        &world,
        &[
            "member",
            "remove",
            "--workspace",
            &workspace,
            "--user",
            &user,
        ],
    );
    assert_eq!(
        json(&world, &["member", "list", "--workspace", &workspace]),
        serde_json::json!([])
    );

    let webhook = json(
        &world,
        &[
            "--base-url",
            &base,
            "webhook",
            "create",
            "--workspace",
            &workspace,
            "--name",
            "crm",
        ],
    );
    let (url, secret) = (
        webhook["url"].as_str().unwrap(),
        webhook["secret"].as_str().unwrap(),
    );
    assert_eq!(secret.len(), 64);
    let listed = json(&world, &["webhook", "list", "--workspace", &workspace]);
    assert_eq!(listed[0]["webhook_id"], webhook["webhook_id"]);
    assert!(
        !listed.to_string().contains(secret),
        "a secret is shown once"
    );

    let body = r#"{"type":"client.created","entity":"\u001b[2J","sourceTool":"t"}"#;
    let file = write(&format!("{workspace}.json"), body);
    let sent = json(
        &world,
        &["send", "webhook", "--url", url, "--secret", secret, &file],
    );
    assert_eq!(
        (sent["status"].as_u64(), &sent["answer"]["received"]),
        (Some(202), &Value::Bool(true))
    );
    world.await_signals(1).await;
    let signals = json(&world, &["signal", "list", "--workspace", &workspace]);
    let id = signals[0]["signal_id"].as_str().unwrap();
    assert_eq!(json(&world, &["signal", "show", id])["body"], body);
    let table = run(
        &world,
        &world.keys,
        &["signal", "list", "--workspace", &workspace],
    );
    assert!(
        !table.stdout.contains(&0x1b),
        "a terminal is not to be steered from outside"
    );

    json(
        &world,
        &["webhook", "delete", webhook["webhook_id"].as_str().unwrap()],
    );
    let (code, error) = refused(
        &world,
        &["send", "webhook", "--url", url, "--secret", secret, &file],
    );
    assert_eq!(code, 1);
    assert!(
        error.contains("401") && error.contains("invalid_signature"),
        "{error}"
    );
    let kept = world
        .count("SELECT count(*) FROM webhooks WHERE secret_sealed IS NOT NULL")
        .await;
    assert_eq!(kept, 0, "a deleted webhook's secret is destroyed");
}

#[tokio::test]
async fn from_a_workflow_to_a_run() {
    let world = World::new().await;
    let (gateway, _worker) = (world.gateway().await, world.worker().await);
    let base = gateway.public_url();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let created = json(
        &world,
        &[
            "workspace",
            "create",
            "--name",
            "Acme",
            "--run-allowance",
            "1",
        ],
    );
    assert_eq!(created["run_allowance"], 1);
    let workspace = text(&created["workspace_id"]);
    let user = text(
        &json(
            &world,
            &[
                "user",
                "create",
                "--email",
                "a@example.com",
                "--name",
                "Ann",
            ],
        )["user_id"],
    );
    let definition = write(&format!("{workspace}.definition"), DEFINITION);
    let create = [
        "workflow",
        "create",
        "--workspace",
        &workspace,
        "--owner",
        &user,
        "--name",
        "Contact",
        "--definition",
        &definition,
    ];
    assert!(
        refused(&world, &create).1.contains("may run"),
        "the owner is no member yet"
    );
    json(
        &world,
        &[
            "member",
            "set",
            "--workspace",
            &workspace,
            "--user",
            &user,
            "--role",
            "editor",
        ],
    );
    let workflow = json(&world, &create);
    assert_eq!(
        (&workflow["state"], &workflow["release_id"]),
        (&Value::from("draft"), &Value::Null)
    );
    let workflow = text(&workflow["workflow_id"]);
    assert!(
        refused(&world, &["form-link", "create", &workflow])
            .1
            .contains("not deployed")
    );

    // A wrong definition deploys nothing and names every mistake.
    let wrong = write(
        &format!("{workspace}.wrong"),
        &DEFINITION
            .replace("Contact us", "")
            .replace("textarea", "essay"),
    );
    let (code, error) = refused(
        &world,
        &["workflow", "deploy", &workflow, "--definition", &wrong],
    );
    assert!(
        code == 1 && error.contains("form.title") && error.contains("form.fields[2].type"),
        "{error}"
    );
    let deployed = json(&world, &["workflow", "deploy", &workflow]);
    assert_eq!(deployed["state"], "deployed");
    let link = json(
        &world,
        &["--base-url", &base, "form-link", "create", &workflow],
    );
    let (url, token) = (text(&link["url"]), text(&link["token"]));
    assert_eq!(url, format!("{base}/forms?token={token}"));
    let elsewhere = [
        "--base-url",
        &base,
        "--app-url",
        "https://app.example.com/",
        "form-link",
        "create",
        &workflow,
    ];
    let elsewhere = json(&world, &elsewhere);
    assert_eq!(
        text(&elsewhere["url"]),
        format!(
            "https://app.example.com/forms?token={}",
            text(&elsewhere["token"])
        )
    );
    let url = format!("{base}/forms?token={}", text(&elsewhere["token"]));

    let payload = write(
        &format!("{workspace}.payload"),
        &letterbox_tests::payload().to_string(),
    );
    let sent = json(
        &world,
        &[
            "send",
            "form",
            "--url",
            &url,
            "--idempotency-key",
            "k",
            &payload,
        ],
    );
    assert_eq!(
        (&sent["answer"]["status"], &sent["idempotency_key"]),
        (&Value::from("accepted"), &Value::from("k"))
    );
    json(
        &world,
        &[
            "send",
            "form",
            "--url",
            &url,
            "--idempotency-key",
            "k",
            &payload,
        ],
    );
    world.await_runs(1).await;
    json(&world, &["send", "form", "--url", &url, &payload]);
    world.await_runs(2).await;
    let over = "SELECT count(*) FROM runs WHERE state = 'succeeded'";
    eventually("the first is over", async || world.count(over).await == 1).await;
    let runs = json(&world, &["run", "list", "--workspace", &workspace]);
    assert_eq!(
        (&runs[0]["state"], &runs[0]["refused_reason"]),
        (&Value::from("refused"), &Value::from("allowance_exhausted"))
    );
    assert_eq!(
        (&runs[1]["state"], &runs[1]["run_as"]),
        (&Value::from("succeeded"), &Value::from(user.as_str()))
    );
    assert_eq!(
        json(
            &world,
            &[
                "run",
                "list",
                "--workspace",
                &workspace,
                "--workflow",
                &workflow
            ]
        ),
        runs
    );
    assert_eq!(
        json(
            &world,
            &["run", "list", "--workspace", &workspace, "--limit", "1"]
        )[0],
        runs[0],
        "newest first"
    );
    let run = json(
        &world,
        &["run", "show", runs[1]["run_id"].as_str().unwrap()],
    );
    assert_eq!(
        (&run["input_trust"], &run["input"]),
        (&Value::from("untrusted"), &letterbox_tests::payload())
    );
    assert_eq!(run["release_id"], deployed["release_id"]);

    let allowance = json(&world, &["workspace", "allowance", &workspace]);
    assert_eq!(
        (&allowance["run_allowance"], &allowance["started"]),
        (&Value::from(1), &Value::from(1))
    );
    assert_eq!(
        json(
            &world,
            &["workspace", "allowance", &workspace, "--set", "unlimited"]
        )["run_allowance"],
        Value::Null
    );

    let (code, error) = refused(
        &world,
        &[
            "send",
            "form",
            "--url",
            &format!("{base}/forms?token={token}"),
            &payload,
        ],
    );
    assert!(
        code == 1 && error.contains("404"),
        "the first link is dead: {error}"
    );
    for (verb, state) in [
        ("pause", "paused"),
        ("activate", "deployed"),
        ("activate", "deployed"),
        ("draft", "draft"),
    ] {
        assert_eq!(json(&world, &["workflow", verb, &workflow])["state"], state);
        assert_eq!(
            json(&world, &["workflow", "show", &workflow])["form_link_id"],
            Value::Null,
            "no link survives"
        );
    }
    assert!(
        refused(&world, &["workflow", "pause", &workflow])
            .1
            .contains("draft")
    );
    json(
        &world,
        &["workflow", "deploy", &workflow, "--definition", &definition],
    );
    let shown = json(&world, &["workflow", "show", &workflow]);
    assert_eq!(
        (
            &shown["release_number"],
            &shown["definition"]["form"]["title"]
        ),
        (&Value::from(2), &Value::from("Contact us"))
    );
    assert_eq!(
        json(&world, &["workflow", "delete", &workflow])["state"],
        "deleted"
    );
    for verb in ["deploy", "activate", "pause", "draft", "delete"] {
        assert_eq!(
            refused(&world, &["workflow", verb, &workflow]).0,
            1,
            "{verb}"
        );
    }
    assert_eq!(
        json(&world, &["workflow", "list", "--workspace", &workspace])[0]["state"],
        "deleted"
    );
    assert_eq!(
        json(&world, &["run", "list", "--workspace", &workspace])
            .as_array()
            .unwrap()
            .len(),
        2,
        "runs stay"
    );
}

#[tokio::test]
async fn accounts_policies_and_approvals() {
    let world = World::new().await;
    let peer = Peer::start(|_, _| Reply::Status(200)).await;
    let (gateway, _worker) = (world.gateway().await, world.worker().await);
    let plain = world.form(&gateway).await;
    let (workspace, user) = (plain.workspace.to_string(), plain.owner.to_string());
    let token = write(&format!("{workspace}.token"), "canary-token\n");
    let connect = |name: &'static str| {
        [
            "account",
            "connect",
            "--workspace",
            &workspace,
            "--user",
            &user,
            "--name",
            name,
            "--base-url",
            &peer.url,
        ]
        .map(str::to_owned)
        .to_vec()
    };
    let with = |mut arguments: Vec<String>, more: &[&str]| {
        arguments.extend(more.iter().map(|more| (*more).to_owned()));
        arguments
    };
    let bearer = with(connect("crm"), &["--bearer-file", &token]);
    let bearer: Vec<&str> = bearer.iter().map(String::as_str).collect();
    let account = json(&world, &bearer);
    assert!(refused(&world, &bearer).1.contains("of this name"));
    let empty = write(&format!("{workspace}.empty"), "\n");
    let nothing = with(connect("empty"), &["--bearer-file", &empty]);
    let nothing: Vec<&str> = nothing.iter().map(String::as_str).collect();
    assert!(refused(&world, &nothing).1.contains("empty"));
    let header = with(
        connect("other"),
        &["--header", "X-Key", "--value-file", &token],
    );
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    assert_eq!(json(&world, &header)["header"], "X-Key");
    let listed = json(&world, &["account", "list", "--workspace", &workspace]);
    assert_eq!(listed.as_array().unwrap().len(), 2);
    assert!(
        !listed.to_string().contains("canary"),
        "a credential is never shown"
    );

    let policy = json(&world, &["workspace", "policy", &workspace]);
    assert_eq!(
        (&policy["version"], &policy["policy"]["default"]),
        (&Value::from(0), &Value::from("allow"))
    );
    let file = write(
        &format!("{workspace}.policy"),
        r#"{"rules":[],"default":"approve"}"#,
    );
    assert_eq!(
        json(&world, &["workspace", "policy", &workspace, "--set", &file])["version"],
        1
    );
    let wrong = write(
        &format!("{workspace}.wrong-policy"),
        r#"{"rules":[],"default":"perhaps"}"#,
    );
    assert!(
        refused(
            &world,
            &["workspace", "policy", &workspace, "--set", &wrong]
        )
        .1
        .contains("perhaps")
    );

    let send = serde_json::json!({"id": "send", "type": "http.request", "account": "crm",
        "method": "GET", "path": "/{{ form.name }}"});
    let definition = definition_with(serde_json::json!([send]));
    let form = world
        .form_of(&gateway, plain.workspace, plain.owner, &definition)
        .await;
    // A new sealing key, while a run waits: credentials are sealed again as well.
    form.assert_accepts("k").await;
    world.await_state("waiting_approval", 1).await;
    let both = format!("{NEW_KEY},{}", world.keys);
    let rotated = run(&world, &both, &["keys", "rotate", "--json"]);
    let rotated: Value = serde_json::from_slice(&rotated.stdout).unwrap();
    assert_eq!(rotated["resealed"], 2);
    let _new = world
        .worker_with(&[("LETTERBOX_SEALING_KEYS", NEW_KEY)])
        .await;
    drop(_worker);

    let waiting = json(&world, &["approval", "list", "--workspace", &workspace]);
    assert_eq!(waiting[0]["request"]["url"], format!("{}/Ada", peer.url));
    let id = waiting[0]["approval_id"].as_str().unwrap();
    assert!(
        refused(&world, &["approval", "approve", id, "--by", id])
            .1
            .contains("owner or editor")
    );
    assert_eq!(
        json(&world, &["approval", "approve", id, "--by", &user])["state"],
        "approved"
    );
    assert!(
        refused(&world, &["approval", "deny", id, "--by", &user])
            .1
            .contains("already")
    );
    world.await_state("succeeded", 1).await;
    assert_eq!(
        peer.await_received(1).await[0].header("authorization"),
        Some("Bearer canary-token")
    );
    let runs = json(&world, &["run", "list", "--workspace", &workspace]);
    let story = json(
        &world,
        &["run", "show", runs[0]["run_id"].as_str().unwrap()],
    );
    let action = &story["actions"][0];
    assert_eq!(
        (
            &action["decision"],
            &action["policy_version"],
            &action["attempts"]
        ),
        (&"approve".into(), &1.into(), &1.into())
    );
    assert!(action["duration_milliseconds"].is_number() && !story.to_string().contains("canary"));
    let table = run(
        &world,
        &world.keys,
        &["run", "show", runs[0]["run_id"].as_str().unwrap()],
    );
    assert!(String::from_utf8_lossy(&table.stdout).contains("/Ada"));

    json(
        &world,
        &[
            "account",
            "disconnect",
            account["account_id"].as_str().unwrap(),
        ],
    );
    assert_eq!(
        refused(
            &world,
            &[
                "account",
                "disconnect",
                account["account_id"].as_str().unwrap()
            ]
        )
        .0,
        1
    );
}

/// A file for a command; its path.
fn write(name: &str, text: &str) -> String {
    let file = letterbox_tests::Servers::shared().folder.join(name);
    std::fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_owned()
}

#[tokio::test]
async fn exit_codes_tell_refusals_from_misuse() {
    let world = World::new().await;
    let nobody = "00000000-0000-4000-8000-000000000000";
    for arguments in [
        vec!["webhook", "create", "--workspace", nobody, "--name", "x"],
        vec!["webhook", "delete", nobody],
        vec!["webhook", "list", "--workspace", nobody],
        vec![
            "member",
            "set",
            "--workspace",
            nobody,
            "--user",
            nobody,
            "--role",
            "owner",
        ],
        vec!["member", "remove", "--workspace", nobody, "--user", nobody],
        vec!["signal", "show", nobody],
        vec!["run", "show", nobody],
        vec!["run", "list", "--workspace", nobody],
        vec!["workflow", "show", nobody],
        vec!["workflow", "deploy", nobody],
        vec!["workflow", "pause", nobody],
        vec!["workflow", "list", "--workspace", nobody],
        vec!["form-link", "create", nobody],
        vec!["workspace", "allowance", nobody],
        vec!["workspace", "policy", nobody],
        vec!["account", "list", "--workspace", nobody],
        vec!["account", "disconnect", nobody],
        vec!["approval", "list", "--workspace", nobody],
        vec!["approval", "approve", nobody, "--by", nobody],
        vec!["workspace", "allowance", nobody, "--set", "1"],
        vec![
            "workspace",
            "create",
            "--name",
            "x",
            "--run-allowance",
            "3000000000",
        ],
        vec![
            "workflow",
            "deploy",
            nobody,
            "--definition",
            "/nowhere/at/all",
        ],
        vec![
            "send",
            "form",
            "--url",
            "http://127.0.0.1:1/elsewhere",
            "/dev/null",
        ],
        vec!["workspace", "create", "--name", " "],
        vec!["user", "create", "--email", "nobody", "--name", "x"],
    ] {
        let (code, error) = refused(&world, &arguments);
        assert_eq!(code, 1, "{arguments:?}: {error}");
        assert!(
            error.starts_with("letterbox: ") && !error.contains("SQLSTATE"),
            "{error}"
        );
    }
    for arguments in [
        vec!["workspace"],
        vec!["webhook", "delete", "x"],
        vec![
            "workspace",
            "create",
            "--name",
            "x",
            "--run-allowance",
            "-1",
        ],
        vec!["workspace", "allowance", nobody, "--set", "many"],
        vec![
            "account",
            "connect",
            "--workspace",
            nobody,
            "--user",
            nobody,
            "--name",
            "x",
            "--base-url",
            "http://x",
        ],
        vec![
            "member",
            "set",
            "--workspace",
            nobody,
            "--user",
            nobody,
            "--role",
            "king",
        ],
        vec!["--database-url", "canary", "workspace", "list"],
    ] {
        let (code, error) = refused(&world, &arguments);
        assert_eq!(code, 2, "{arguments:?}: {error}");
        assert!(!error.contains("canary"), "{error}");
    }
    json(
        &world,
        &["user", "create", "--email", "a@example.com", "--name", "x"],
    );
    assert_eq!(
        refused(
            &world,
            &["user", "create", "--email", "A@example.com", "--name", "x"]
        )
        .0,
        1
    );
}

/// Keys rotate while deliveries come in: none is refused, and the old key is not needed any more.
#[tokio::test(flavor = "multi_thread")]
async fn keys_rotate_under_load() {
    let world = World::new().await;
    let (old, both, both_new) = (
        world.keys.clone(),
        format!("{},{NEW_KEY}", world.keys),
        format!("{NEW_KEY},{}", world.keys),
    );
    let first = world
        .gateway_with(&[("LETTERBOX_SEALING_KEYS", &both)])
        .await;
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
    let rotated = run(&world, &both_new, &["keys", "rotate", "--json"]);
    let rotated: Value = serde_json::from_slice(&rotated.stdout).unwrap();
    assert_eq!(
        (&rotated["resealed"], &rotated["current"]),
        (&Value::from(20), &Value::from(0))
    );
    sending.await.unwrap();
    let again: Value =
        serde_json::from_slice(&run(&world, &both_new, &["keys", "rotate", "--json"]).stdout)
            .unwrap();
    assert_eq!(
        (&again["resealed"], &again["current"]),
        (&Value::from(0), &Value::from(20))
    );

    let new_only = world
        .gateway_with(&[("LETTERBOX_SEALING_KEYS", NEW_KEY)])
        .await;
    assert!(webhooks[0].at(&new_only).send("\"new\"").await.is_first());
    let old_only = world
        .gateway_with(&[("LETTERBOX_SEALING_KEYS", &old)])
        .await;
    assert_eq!(
        webhooks[0].at(&old_only).send("\"old\"").await.status,
        503,
        "not 401: the sender is not to blame"
    );
    assert_eq!(sign(&webhooks[0].secret, b"").len(), 64);
}
