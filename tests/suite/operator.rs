//! The operator command line, as people and programs use it.

use std::process::{Command, Output};

use letterbox_tests::{World, binary, sign};
use serde_json::Value;

const NEW_KEY: &str = "next:f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff000102030405060708090a0b0c0d0e0f";

fn run(world: &World, keys: &str, arguments: &[&str]) -> Output {
    Command::new(binary("letterbox"))
        .args(arguments)
        .env_clear()
        .envs([("DATABASE_URL", world.database_url.as_str()), ("LETTERBOX_SEALING_KEYS", keys)])
        .output()
        .unwrap()
}

fn json(world: &World, arguments: &[&str]) -> Value {
    let output = run(world, &world.keys, &[arguments, &["--json"]].concat());
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn refused(world: &World, arguments: &[&str]) -> (i32, String) {
    let output = run(world, &world.keys, arguments);
    assert!(output.stdout.is_empty(), "errors go to standard error");
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

#[tokio::test]
async fn from_a_workspace_to_a_signal() {
    let world = World::new().await;
    let (gateway, _worker) = (world.gateway().await, world.worker().await);
    let base = gateway.public_url();
    let workspace =
        json(&world, &["workspace", "create", "--name", "Acme"])["workspace_id"].as_str().unwrap().to_owned();
    assert_eq!(json(&world, &["workspace", "list"])[0]["workspace_id"], workspace.as_str());
    let user = json(&world, &["user", "create", "--email", "a@example.com", "--name", "Ann"])["user_id"]
        .as_str()
        .unwrap()
        .to_owned();
    for role in ["owner", "viewer"] {
        let member = json(&world, &["member", "set", "--workspace", &workspace, "--user", &user, "--role", role]);
        assert_eq!(member["role"], role);
    }
    assert_eq!(json(&world, &["member", "list", "--workspace", &workspace]).as_array().unwrap().len(), 1);
    json(&world, &["member", "remove", "--workspace", &workspace, "--user", &user]);
    assert_eq!(json(&world, &["member", "list", "--workspace", &workspace]), serde_json::json!([]));

    let webhook = json(&world, &["--base-url", &base, "webhook", "create", "--workspace", &workspace, "--name", "crm"]);
    let (url, secret) = (webhook["url"].as_str().unwrap(), webhook["secret"].as_str().unwrap());
    assert_eq!(secret.len(), 64);
    let listed = json(&world, &["webhook", "list", "--workspace", &workspace]);
    assert_eq!(listed[0]["webhook_id"], webhook["webhook_id"]);
    assert!(!listed.to_string().contains(secret), "a secret is shown once");

    let file = letterbox_tests::Servers::shared().folder.join(format!("{workspace}.json"));
    std::fs::write(&file, r#"{"type":"client.created","entity":"\u001b[2J","sourceTool":"t"}"#).unwrap();
    let sent = json(&world, &["send", "webhook", "--url", url, "--secret", secret, file.to_str().unwrap()]);
    assert_eq!((sent["status"].as_u64(), &sent["answer"]["received"]), (Some(202), &Value::Bool(true)));
    world.await_signals(1).await;
    let signals = json(&world, &["signal", "list", "--workspace", &workspace]);
    let id = signals[0]["signal_id"].as_str().unwrap();
    assert_eq!(json(&world, &["signal", "show", id])["body"], std::fs::read_to_string(&file).unwrap().as_str());
    let table = run(&world, &world.keys, &["signal", "list", "--workspace", &workspace]);
    assert!(!table.stdout.contains(&0x1b), "a terminal is not to be steered from outside");

    json(&world, &["webhook", "delete", webhook["webhook_id"].as_str().unwrap()]);
    let (code, error) = refused(&world, &["send", "webhook", "--url", url, "--secret", secret, file.to_str().unwrap()]);
    assert_eq!(code, 1);
    assert!(error.contains("401") && error.contains("invalid_signature"), "{error}");
    let kept = world.count("SELECT count(*) FROM webhooks WHERE secret_sealed IS NOT NULL").await;
    assert_eq!(kept, 0, "a deleted webhook's secret is destroyed");
}

#[tokio::test]
async fn refusals_are_told_from_misuse() {
    let world = World::new().await;
    let nobody = "00000000-0000-4000-8000-000000000000";
    for arguments in [
        vec!["webhook", "create", "--workspace", nobody, "--name", "x"],
        vec!["webhook", "delete", nobody],
        vec!["webhook", "list", "--workspace", nobody],
        vec!["member", "set", "--workspace", nobody, "--user", nobody, "--role", "owner"],
        vec!["member", "remove", "--workspace", nobody, "--user", nobody],
        vec!["signal", "show", nobody],
        vec!["workspace", "create", "--name", " "],
        vec!["user", "create", "--email", "nobody", "--name", "x"],
    ] {
        let (code, error) = refused(&world, &arguments);
        assert_eq!(code, 1, "{arguments:?}: {error}");
        assert!(error.starts_with("letterbox: ") && !error.contains("SQLSTATE"), "{error}");
    }
    for arguments in [
        vec!["workspace"],
        vec!["webhook", "delete", "x"],
        vec!["member", "set", "--workspace", nobody, "--user", nobody, "--role", "king"],
        vec!["--database-url", "canary", "workspace", "list"],
    ] {
        let (code, error) = refused(&world, &arguments);
        assert_eq!(code, 2, "{arguments:?}: {error}");
        assert!(!error.contains("canary"), "{error}");
    }
    json(&world, &["user", "create", "--email", "a@example.com", "--name", "x"]);
    assert_eq!(refused(&world, &["user", "create", "--email", "A@example.com", "--name", "x"]).0, 1);
}

/// Keys rotate while deliveries come in: none is refused, and the old key is not needed any more.
#[tokio::test(flavor = "multi_thread")]
async fn keys_rotate_under_load() {
    let world = World::new().await;
    let (old, both, both_new) =
        (world.keys.clone(), format!("{},{NEW_KEY}", world.keys), format!("{NEW_KEY},{}", world.keys));
    let first = world.gateway_with(&[("LETTERBOX_SEALING_KEYS", &both)]).await;
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
    assert_eq!((&rotated["resealed"], &rotated["current"]), (&Value::from(20), &Value::from(0)));
    sending.await.unwrap();
    let again: Value = serde_json::from_slice(&run(&world, &both_new, &["keys", "rotate", "--json"]).stdout).unwrap();
    assert_eq!((&again["resealed"], &again["current"]), (&Value::from(0), &Value::from(20)));

    let new_only = world.gateway_with(&[("LETTERBOX_SEALING_KEYS", NEW_KEY)]).await;
    assert!(webhooks[0].at(&new_only).send("\"new\"").await.is_first());
    let old_only = world.gateway_with(&[("LETTERBOX_SEALING_KEYS", &old)]).await;
    assert_eq!(webhooks[0].at(&old_only).send("\"old\"").await.status, 503, "not 401: the sender is not to blame");
    assert_eq!(sign(&webhooks[0].secret, b"").len(), 64);
}
