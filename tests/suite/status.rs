//! `letterbox status`: what is ready, what waits, and whether something is late.

use std::process::Command;

use lapin::BasicProperties;
use letterbox_broker::{Message, topology::EXCHANGE};
use letterbox_tests::{Peer, Proxy, Reply, World, assert_tells, binary, eventually, one_of, post};
use serde_json::{Value, json};

/// What `letterbox status` says, and its exit code.
pub(crate) fn status(world: &World) -> (i32, Value) {
    world.judge(&[("AMQP_URL", &world.amqp_url)], "status")
}

fn kind<'s>(status: &'s Value, name: &str) -> &'s Value {
    one_of(&status["backlog"], "kind", name)
}

#[tokio::test]
async fn one_look_shows_what_is_late() {
    let world = World::new().await;
    let peer = Peer::start(|_, _| Reply::Status(200)).await;
    let gateway = world.gateway().await;
    let (code, alone) = status(&world);
    assert_eq!((code, &alone["is_late"]), (3, &true.into()));
    assert_eq!(alone["parts"][2]["detail"], "none is alive: runs wait");

    let worker = world.worker().await;
    let form = world.sending_form(&gateway, &peer).await;
    world.submit_until(&form, "a", "succeeded", 1).await;
    eventually("all is well", async || status(&world).0 == 0).await;
    let (_, well) = status(&world);
    let mut parts = well["parts"].as_array().unwrap().iter();
    assert!(parts.all(|part| part["is_ready"] == true), "{well}");
    assert_eq!(well["ended_last_hour"], json!({"succeeded": 1}));
    assert_eq!(kind(&well, "letterbox.v1.dead-letters")["count"], 0);

    // Held is not late, however long it waits.
    world.order(format!("workspace hold {}", form.workspace));
    form.assert_accepts("b").await;
    let ready = "SELECT count(*) FROM active_runs WHERE state = 'ready'";
    world.await_count("it waits", ready, 1).await;
    let long_ago = "UPDATE active_runs SET due_at = now() - interval '2 hours'";
    world.database.execute(long_ago, &[]).await.unwrap();
    let (code, held) = status(&world);
    assert_eq!((code, &kind(&held, "due runs")["count"]), (0, &1.into()));
    assert!(kind(&held, "due runs")["oldest_seconds"].as_f64().unwrap() > 7_000.0);
    assert_eq!(held["held"][0]["workspace_id"], form.workspace.to_string());
    assert_eq!(held["runs"], json!({"queued": 1}));
    let run = "SELECT run_id::text FROM runs WHERE state = 'queued'";
    let run: String = world.value(run).await;
    let story = world.read(format!("run show {}", run.to_uppercase()));
    assert!(story.contains("\nheld      no action begins"), "{story}");
    assert_eq!(world.order(format!("run show {run}"))["is_held"], true);

    // Released, and without a worker, it is.
    drop(worker);
    world.order(format!("workspace release {}", form.workspace));
    let (code, late) = status(&world);
    assert_eq!(code, 3);
    assert!(kind(&late, "due runs")["late_because"].is_string());
    let screen = world.read("status");
    let is_late = |line: &str| line.starts_with("due runs") && line.contains("LATE: not taken");
    assert!(screen.lines().any(is_late), "{screen}");
    assert!(screen.lines().count() < 25, "{screen}");
}

/// A part that is away is not ready, and is said with the others; a dead letter is late at once.
#[tokio::test]
async fn what_is_away_or_dead_is_late() {
    let world = World::new().await;
    let away = Proxy::before(&world.amqp_url).await;
    let (mut gateway, _worker) = (
        world.gateway().await,
        world.worker_with(&[("AMQP_URL", &away.url)]).await,
    );
    eventually("all is well", async || status(&world).0 == 0).await;
    // Whose own broker is away says so itself.
    away.cut();
    eventually("a worker's trouble is seen", async || {
        let (code, status) = status(&world);
        let workers = &status["parts"][2];
        let detail = workers["detail"].as_str().unwrap();
        (code, &workers["is_ready"]) == (3, &false.into())
            && detail.contains("1 alive, ")
            && detail.contains("; letterbox-worker@")
            && detail.contains("consumer: ")
    })
    .await;
    away.pass();
    eventually("all is well again", async || status(&world).0 == 0).await;
    gateway.terminate();
    assert!(gateway.ended().await.success());
    let (code, without) = status(&world);
    let gateways = &without["parts"][1];
    assert_eq!((code, &gateways["is_ready"]), (3, &false.into()));
    assert_eq!(gateways["detail"], "none is alive: nothing is received");
    let _gateway = world.gateway().await;
    eventually("a gateway is there", async || status(&world).0 == 0).await;
    let nowhere = [("AMQP_URL", "amqp://guest:guest@127.0.0.1:1/%2f")];
    let (code, away) = world.judge(&nowhere, "status");
    assert_eq!(code, 3);
    let parts = away["parts"].as_array().unwrap().iter();
    let ready: Vec<_> = parts.map(|one| &one["is_ready"]).collect();
    assert_eq!(ready, [true, true, true, true, false]);

    let garbage = Message {
        exchange: EXCHANGE,
        routing_key: "webhooks".into(),
        properties: BasicProperties::default(),
        body: "garbage".into(),
    };
    world.publish_unclaimed(garbage).await;
    eventually("a dead letter", async || {
        let (code, status) = status(&world);
        code == 3 && kind(&status, "letterbox.v1.dead-letters")["count"] == 1
    })
    .await;

    // Where colors are wanted it is red.
    let at_terminal = |no_color: &str| {
        let program = format!("{} status", binary("letterbox").display());
        let output = Command::new("script")
            .args(["--quiet", "--return", "--command", &program, "/dev/null"])
            .env("DATABASE_URL", &world.database_url)
            .env("AMQP_URL", &world.amqp_url)
            .env("NO_COLOR", no_color)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(3));
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(at_terminal("").contains("\x1b[1;31mLATE:\x1b[0m could not be"));
    assert!(at_terminal("1").contains("  LATE: could not be"));
}

/// An account that is down is seen at once, in the status, the list and the log; when it is back,
/// nobody needs to wait for the next attempt.
#[tokio::test]
async fn an_account_that_is_down_is_seen() {
    let world = World::new().await;
    let peer = Peer::start(|_, before| Reply::Status(if before == 0 { 503 } else { 200 })).await;
    let hour = ("LETTERBOX_RETRY_MILLISECONDS", "3600000");
    let (gateway, worker) = (world.gateway().await, world.worker_with(&[hour]).await);
    let actions = json!([post("send")]);
    let form = world.acting_form(&gateway, &peer.url, actions).await;
    form.assert_accepts("a").await;
    peer.await_received(1).await;
    eventually("it is shown", async || {
        let (_, told) = status(&world);
        let retrying = &told["retrying"][0];
        retrying["account"] == "crm" && retrying["runs"] == 1 && retrying["next_at"].is_string()
    })
    .await;
    let text = world.read("status");
    assert!(text.contains("account 'crm' of"), "{text}");
    let list = format!("run list --workspace {}", form.workspace);
    let told = world.order(&list);
    assert_eq!(told[0]["is_retrying"], true);
    let shown = world.read(&list);
    assert!(shown.contains(" retrying "), "{shown}");
    assert!(worker.log().contains("an action is tried again later"));

    let other = format!("run retry --workspace {} --account", form.workspace);
    let other = format!("{other} crm --now");
    assert_eq!(world.order(other)[0]["run_id"], told[0]["run_id"]);
    world.await_state("succeeded", 1).await;
    assert_eq!(peer.received().len(), 2);
    let again = format!("run retry {} --now", told[0]["run_id"].as_str().unwrap());
    assert_eq!(world.refusal(again).0, 1, "nothing to hurry");
}

/// A database that refuses writes is what is wrong, not the processes that can't say that they are
/// alive: all commands tell it, with what mends it, and what else the server says in its words.
#[tokio::test]
async fn a_database_that_refuses_writes_is_named() {
    let (world, _gateway, _worker) = World::with_both().await;
    eventually("all is well", async || status(&world).0 == 0).await;
    let name = world.database_url.rsplit('/').next().unwrap();
    let setting = async |order: &str| {
        let order = format!("ALTER DATABASE {name} {order}");
        world.change(&order).await;
    };
    setting("SET default_transaction_read_only = on").await;
    let (code, told) = status(&world);
    let part = |index: usize| &told["parts"][index];
    let detail = part(0)["detail"].as_str().unwrap();
    assert_eq!((code, &part(0)["is_ready"]), (3, &false.into()));
    assert!(detail.contains("refuses writes"), "{detail}");
    let mend = "ALTER SYSTEM RESET default_transaction_read_only";
    assert!(detail.contains(mend), "{detail}");
    for index in [1, 2] {
        let unheard = "not known: the database refuses writes";
        assert_eq!(part(index)["detail"], unheard);
        assert_eq!(part(index)["is_ready"], false);
    }

    let (code, found) = world.judge(&[], "doctor");
    assert_eq!(code, 1);
    let about = |about: &str| one_of(&found, "about", about);
    assert_eq!(about("writes")["verdict"], "failure");
    assert!(about("writes")["mend"].as_str().unwrap().contains(mend));
    let first = "mend the writes of the database first";
    assert_eq!(about("gateways")["mend"], first);

    for (order, code) in [("migrate", 1), ("workspace create --name Acme", 75)] {
        let (given, told) = world.refusal(order);
        assert_eq!(given, code, "{told}");
        assert_tells(&told, &["in a read-only transaction"]);
        assert_tells(&told, &["the database refuses writes"]);
    }
    setting("RESET default_transaction_read_only").await;
    eventually("all is well again", async || status(&world).0 == 0).await;

    let (stranger, _) = world.login_in("letterbox_gateway").await;
    let empty = World::without_schema().await;
    let elsewhere = stranger.replace(name, empty.database_url.rsplit('/').next().unwrap());
    let output = world.letterbox_with(&[("DATABASE_URL", &elsewhere)], "migrate");
    let told = String::from_utf8(output.stderr).unwrap();
    assert_tells(&told, &["permission denied for schema public"]);
}
