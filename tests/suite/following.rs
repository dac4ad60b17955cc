//! What happens, followed on a terminal: signals, refusals and orders.

use std::{
    io::{BufRead, BufReader, Lines},
    process::{Child, ChildStdout, Command, Stdio},
};

use letterbox_tests::{World, binary};
use serde_json::Value;

#[tokio::test(flavor = "multi_thread")]
async fn signals_are_followed() {
    let (world, _gateway, _worker, webhook) = World::with_recorded_webhook().await;
    webhook.send("[0]").await;
    world.await_signals(1).await;
    let workspace = webhook.address.workspace.to_string();
    let mut signals = Following::start(&world, &["signal", "list", "--workspace", &workspace]);
    assert_eq!(signals.next()["kind"], "generic");
    let id = webhook.send("[1]").await.request_id.0;
    assert_eq!(signals.next()["request_id"], Value::from(id));
}

/// As an operator follows them while a tool is set up: refusals, and orders.
#[tokio::test(flavor = "multi_thread")]
async fn refusals_and_orders_are_followed() {
    let (world, gateway, webhook) = World::with_webhook().await;
    let id = webhook.address.webhook.to_string();
    let mut refusals = Following::start(&world, &["webhook", "log", &id]);
    let mut orders = Following::start(&world, &["audit", "list", "--limit", "1"]);
    orders.next();
    let refused = gateway.http.post(&webhook.url).body("{}").send().await;
    assert_eq!(refused.unwrap().status(), 401);
    assert_eq!(refusals.next()["reason"], "missing");
    world.order("workspace create --name followed");
    assert_eq!(orders.next()["command"], "workspace create");
}

/// A list that is followed, line by line.
struct Following {
    command: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Following {
    fn start(world: &World, words: &[&str]) -> Self {
        let mut command = Command::new(binary("letterbox"))
            .args(words)
            .args(["--follow", "--json"])
            .env_clear()
            .env("DATABASE_URL", &world.database_url)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(command.stdout.take().unwrap()).lines();
        Self { command, lines }
    }

    fn next(&mut self) -> Value {
        let line = tokio::task::block_in_place(|| self.lines.next().unwrap().unwrap());
        serde_json::from_str(&line).unwrap()
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        self.command.kill().unwrap();
        self.command.wait().unwrap();
    }
}
