//! Signals for others: followed on a terminal, read by programs that may see nothing else.

use std::{
    io::{BufRead, BufReader, Lines},
    process::{Child, ChildStdout, Command, Stdio},
};

use letterbox_tests::{World, binary};
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread")]
async fn signals_are_followed() {
    let world = World::new().await;
    let gateway = world.gateway().await;
    let _worker = world.worker().await;
    let webhook = world.webhook(&gateway).await;
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
    let world = World::new().await;
    let gateway = world.gateway().await;
    let webhook = world.webhook(&gateway).await;
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

/// A login of its own sees the signals of the workspaces that it was let into, and nothing else.
#[tokio::test]
async fn a_reader_sees_the_signals_of_its_workspaces_only() {
    let world = World::new().await;
    let gateway = world.gateway().await;
    let _worker = world.worker().await;
    let (mine, others) = (world.webhook(&gateway).await, world.webhook(&gateway).await);
    mine.send("[\"mine\"]").await;
    others.send("[\"others\"]").await;
    world.await_signals(2).await;
    let login = format!(
        "reader_{}",
        mine.address.workspace.to_string().replace('-', "_")
    );
    let create = format!("CREATE ROLE {login} LOGIN PASSWORD 'x' IN ROLE letterbox_reader");
    world.database.batch_execute(&create).await.unwrap();
    let mut url: url::Url = world.database_url.parse().unwrap();
    url.set_username(&login).unwrap();
    url.set_password(Some("x")).unwrap();
    let connecting = tokio_postgres::connect(url.as_str(), tokio_postgres::NoTls);
    let (client, connection) = connecting.await.unwrap();
    tokio::spawn(connection);
    let bodies = async || -> Vec<Vec<u8>> {
        let rows = client.query("SELECT body FROM signal_feed", &[]).await;
        rows.unwrap().iter().map(|row| row.get(0)).collect()
    };
    assert_eq!(bodies().await, [b""; 0], "nobody let it in");
    let workspace = mine.address.workspace;
    let order = format!("signal reader --workspace {workspace} --login {login}");
    assert_eq!(world.order(&order)["changed"], true);
    assert_eq!(world.order(&order)["changed"], false);
    // Signals are shown when no older transaction of this server can store one any more.
    letterbox_tests::eventually("it is shown", async || !bodies().await.is_empty()).await;
    assert_eq!(bodies().await, [b"[\"mine\"]"]);
    for table in [
        "signals",
        "webhooks",
        "signal_readers",
        "workspaces",
        "runs",
        "audit_log",
    ] {
        let refused = client.query(&format!("SELECT * FROM {table}"), &[]).await;
        assert!(refused.is_err(), "{table}");
    }
    let widened = format!(
        "INSERT INTO signal_readers (workspace_id, login) VALUES ('{}', '{login}')",
        others.address.workspace
    );
    assert!(client.execute(&widened, &[]).await.is_err());
    let listing = format!("signal readers --workspace {workspace}");
    assert_eq!(world.order(&listing)[0]["login"], *login);
    world.order(format!("{order} --remove"));
    assert_eq!(world.order(&listing), json!([]));
    assert_eq!(bodies().await, [b""; 0]);
    drop(client);
    let dropping = format!("DROP ROLE {login}");
    letterbox_tests::eventually("the login is gone", async || {
        world.database.batch_execute(&dropping).await.is_ok()
    })
    .await;
}
