//! The description of the public side, `gateway/openapi.yaml`, against a running gateway: what is
//! generated from it is answered as it says.

use std::path::Path;

use letterbox_tests::{World, folder, payload};
use tokio::process::Command;

/// Each takes 20 requests a minute.
const FORMS: usize = 40;

#[tokio::test(flavor = "multi_thread")]
async fn the_gateway_answers_as_it_is_described() {
    let program = std::env::var("LETTERBOX_TEST_SCHEMATHESIS")
        .expect("schemathesis is installed: use deploy/test");
    let (world, gateway, webhook) = World::with_webhook().await;
    let mut tokens = Vec::new();
    for _ in 0..FORMS {
        tokens.push(world.form(&gateway).await.token);
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = folder().join(format!("openapi-{}", webhook.address.webhook));
    std::fs::create_dir(&folder).unwrap();
    let examples = std::env::var("LETTERBOX_TEST_EXAMPLES").unwrap_or("100".to_owned());
    let checked = Command::new(program)
        .arg("run")
        .arg(root.join("../gateway/openapi.yaml"))
        .args(["--url", &gateway.public_url()])
        .args(["--phases", "examples,coverage,fuzzing", "--checks", "all"])
        .args(["--max-examples", &examples, "--seed", "1"])
        .args([
            "--generation-unique-inputs",
            "--generation-database",
            "none",
        ])
        .args(["--continue-on-failure", "--no-color"])
        .env("SCHEMATHESIS_HOOKS", root.join("openapi/hooks.py"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("LETTERBOX_TEST_WEBHOOK_TOKEN", webhook.address.to_string())
        .env("LETTERBOX_TEST_WEBHOOK_SECRET", &webhook.secret)
        .env("LETTERBOX_TEST_FORM_TOKENS", tokens.join(","))
        .env("LETTERBOX_TEST_FORM_PAYLOAD", payload().to_string())
        .current_dir(&folder)
        .output()
        .await
        .unwrap();
    let told = String::from_utf8_lossy(&checked.stdout);
    let wrong = String::from_utf8_lossy(&checked.stderr);
    assert!(checked.status.success(), "{told}\n{wrong}");
}
