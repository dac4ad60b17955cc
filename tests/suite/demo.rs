//! `letterbox demo`: made once, kept, repaired, and readable by its owner only.

use std::{
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use letterbox_operator::{Demo, Move};
use letterbox_tests::{Answer, Process, World, binary, sign};
use serde_json::{Value, json};

const DEFINITION: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../deploy/lib/demo-workflow.json"
);

/// A folder of its own, removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let name = format!("letterbox-demo-{}", uuid::Uuid::new_v4().simple());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn demo_json(&self) -> Value {
        serde_json::from_str(&std::fs::read_to_string(self.0.join("demo.json")).unwrap()).unwrap()
    }

    fn demo(&self) -> Demo {
        serde_json::from_value(self.demo_json()).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Makes or repairs the demo; what it says.
fn make(world: &World, gateway: &Process, folder: &Path, receiver: &str) -> String {
    let base = gateway.public_url();
    let output = Command::new(binary("letterbox"))
        .args(["demo", "--definition", DEFINITION])
        .args(["--receiver-url", receiver])
        .args(["--gateway-admin-url", "http://127.0.0.1:9080"])
        .args(["--worker-admin-url", "http://127.0.0.1:9081"])
        .args(["--desk-admin-url", "http://127.0.0.1:9082"])
        .args(["--pid", "gateway=12", "--pid", "rabbitmq="])
        .arg("--folder")
        .arg(folder)
        .env_clear()
        .envs([
            ("DATABASE_URL", world.database_url.as_str()),
            ("AMQP_URL", &world.amqp_url),
            ("LETTERBOX_WEBHOOK_KEYS", &world.webhook_keys),
            ("LETTERBOX_ACCOUNT_KEYS", &world.account_keys),
            ("LETTERBOX_BASE_URL", &base),
        ])
        .output()
        .unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{told}");
    String::from_utf8(output.stdout).unwrap()
}

/// What the form accepts and the webhook accepts, with the demo's own link and secret.
async fn assert_works(world: &World, gateway: &Process, demo: &Value) {
    let text = |name: &str| demo[name].as_str().unwrap().to_owned();
    let submission = json!({
        "token": text("form_token"),
        "idempotencyKey": uuid::Uuid::new_v4(),
        "payload": {"name": "Ada", "email": "ada@example.com", "terms": true},
    });
    let url = format!("{}/public/workflow-forms/forms/submit", text("base_url"));
    let post = gateway
        .http
        .post(url)
        .header("content-type", "application/json")
        .body(submission.to_string());
    let answer = Answer::to(post).await;
    assert_eq!(answer.status, 200, "{answer:?}");

    let event = format!(r#"{{"id":"{}"}}"#, uuid::Uuid::new_v4());
    let post = gateway
        .http
        .post(text("webhook_url"))
        .header("content-type", "application/json")
        .header(
            "x-service-signature",
            sign(&text("webhook_secret"), event.as_bytes()),
        );
    let answer = Answer::to(post.body(event)).await;
    assert_eq!(answer.status, 202, "{answer:?}");
    assert!(world.count("SELECT count(*) FROM form_submissions").await > 0);
}

#[tokio::test]
async fn a_demo_is_made_once_and_works() {
    let world = World::new().await;
    let (gateway, folder) = (world.gateway().await, Folder::new());
    let receiver = "http://127.0.0.1:9099";
    let guide = make(&world, &gateway, &folder.0, receiver);
    let demo = folder.demo_json();
    for member in ["form_url", "webhook_url", "webhook_secret", "workspace_id"] {
        let value = demo[member].as_str().unwrap();
        assert!(guide.contains(value), "the guide names {member}");
    }
    // The workspace by its name, and what to do with the agent's question.
    assert!(guide.contains("run list --workspace Demo"), "{guide}");
    let owner = demo["owner_id"].as_str().unwrap();
    let approving = format!("approval approve APPROVAL_ID --by {owner}");
    assert!(guide.contains(&approving), "{guide}");
    assert_eq!(demo["pids"], json!({"gateway": 12, "rabbitmq": null}));
    for file in ["demo.json", "env"] {
        let mode = std::fs::metadata(folder.0.join(file)).unwrap();
        assert_eq!(mode.permissions().mode() & 0o777, 0o600, "{file}");
    }
    let sourced = Command::new("sh")
        .args(["-c", ". ./env; printf %s \"$DATABASE_URL $AMQP_URL\""])
        .current_dir(&folder.0)
        .env_clear()
        .output()
        .unwrap();
    let expected = format!("{} {}", world.database_url, world.amqp_url);
    assert_eq!(String::from_utf8(sourced.stdout).unwrap(), expected);
    assert_works(&world, &gateway, &demo).await;

    make(&world, &gateway, &folder.0, receiver);
    assert_eq!(folder.demo_json(), demo, "nothing was missing");
    world.assert_rows("workspaces", 1).await;
}

#[tokio::test]
async fn what_is_gone_of_a_demo_is_replaced_and_the_rest_is_kept() {
    let world = World::new().await;
    let (gateway, folder) = (world.gateway().await, Folder::new());
    make(&world, &gateway, &folder.0, "http://127.0.0.1:9099");
    let first = folder.demo();
    let operator = world.operator().await;

    // The receiver moved.
    let moved = "http://127.0.0.1:9098/";
    make(&world, &gateway, &folder.0, moved);
    assert_eq!(folder.demo(), first);
    let accounts = operator.accounts(first.workspace_id).await.unwrap();
    let connected: Vec<_> = accounts
        .iter()
        .filter(|account| account.disconnected_at.is_none())
        .map(|account| account.base_url.as_str())
        .collect();
    assert_eq!(connected, [moved]);

    // The webhook is gone, and the form's link was replaced by another.
    operator.delete_webhook(first.webhook_id).await.unwrap();
    operator
        .create_form_link(first.workflow_id, Default::default())
        .await
        .unwrap();
    make(&world, &gateway, &folder.0, moved);
    let second = folder.demo();
    assert_ne!(second.webhook_id, first.webhook_id);
    assert_ne!(second.form_link_id, first.form_link_id);
    assert_eq!(second.workflow_id, first.workflow_id);
    assert_works(&world, &gateway, &folder.demo_json()).await;

    // Its owner took the form away: that stays.
    let paused = operator.move_workflow(second.workflow_id, Move::Pause);
    paused.await.unwrap();
    make(&world, &gateway, &folder.0, moved);
    assert_eq!(folder.demo(), second);

    // The workflow is gone.
    let deleted = operator.move_workflow(second.workflow_id, Move::Delete);
    deleted.await.unwrap();
    make(&world, &gateway, &folder.0, moved);
    let third = folder.demo();
    assert_ne!(third.workflow_id, second.workflow_id);
    assert_eq!(third.webhook_id, second.webhook_id);
    assert_works(&world, &gateway, &folder.demo_json()).await;

    // The owner is no member any more: another demo.
    let removed = operator.remove_member(third.workspace_id, third.owner_id);
    removed.await.unwrap();
    make(&world, &gateway, &folder.0, moved);
    assert_ne!(folder.demo().workspace_id, third.workspace_id);
    assert_works(&world, &gateway, &folder.demo_json()).await;

    // A file that says nothing is no demo.
    std::fs::write(folder.0.join("demo.json"), "{").unwrap();
    make(&world, &gateway, &folder.0, moved);
    assert_works(&world, &gateway, &folder.demo_json()).await;
}
