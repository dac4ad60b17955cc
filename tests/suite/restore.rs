//! Restores, by the steps of deploy/README.md: a database that is older than what RabbitMQ holds,
//! and a RabbitMQ that is older than the database.

use std::{path::PathBuf, process::Command};

use letterbox_tests::{
    Form, Peer, PrivateDatabase, Process, Reply, Servers, Webhook, World, folder, one_of, value,
};
use serde_json::json;

const DEAD_LETTERS: &str = letterbox_broker::topology::DEAD_LETTERS_QUEUE;

/// The name of a world's database.
fn name(world: &World) -> &str {
    world.database_url.rsplit('/').next().unwrap()
}

/// Runs one of PostgreSQL's programs.
fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program}: {told}");
}

fn dump(world: &World) -> String {
    let file = folder().join(format!("{}.dump", name(world)));
    let file = file.display().to_string();
    run(
        "pg_dump",
        &["--format=custom", "--file", &file, &world.database_url],
    );
    file
}

/// Puts a dump in the place of the database. Whatever has a session there loses it.
async fn restore(world: &World, dump: &str) {
    let servers = Servers::shared();
    let target = servers.database_url.parse().unwrap();
    let login = letterbox_database::Role::Login;
    let admin = letterbox_database::connect_once(&target, login, "test");
    let admin = admin.await.unwrap();
    let name = name(world);
    for order in [
        format!("DROP DATABASE {name} WITH (FORCE)"),
        format!("CREATE DATABASE {name} OWNER letterbox TEMPLATE template0"),
    ] {
        admin.batch_execute(&order).await.unwrap();
    }
    run(
        "pg_restore",
        &["--exit-on-error", "--dbname", &world.database_url, dump],
    );
    world.order("migrate");
}

async fn count(world: &World, what: &str) -> i64 {
    let session = world.session(letterbox_database::Role::Login).await;
    value(&session, what).await
}

async fn await_count(world: &World, what: &str, expected: i64) {
    letterbox_tests::eventually(what, async || count(world, what).await >= expected).await;
    assert_eq!(count(world, what).await, expected, "{what}");
}

const SIGNALS: &str = "SELECT count(*) FROM signals";
const DONE: &str = "SELECT count(*) FROM runs WHERE state = 'succeeded'";

async fn stop(mut process: Process) {
    process.terminate();
    assert!(process.ended().await.success());
}

/// Everything that the database knew is there again; what RabbitMQ holds is taken on an operator's
/// word; what was lost is told by the check, and is accepted when its sender sends it again if it
/// was claimed after the backup.
#[tokio::test(flavor = "multi_thread")]
async fn an_older_database_takes_what_the_broker_holds() {
    let peer = Peer::start(|_, _| Reply::Status(200)).await;
    let (world, gateway, worker, webhook) = World::with_recorded_webhook().await;
    let form = world.sending_form(&gateway, &peer).await;
    webhook.send("[\"before\"]").await;
    form.assert_accepts("before").await;
    world.await_signals(1).await;
    world.await_state("succeeded", 1).await;
    let backup = dump(&world);

    webhook.send("[\"after\"]").await;
    form.assert_accepts("after").await;
    world.await_signals(2).await;
    world.await_state("succeeded", 2).await;
    // Of these, RabbitMQ holds the only copy that will be left.
    stop(worker).await;
    webhook.send("[\"queued\"]").await;
    form.assert_accepts("queued").await;
    stop(gateway).await;
    restore(&world, &backup).await;
    assert_eq!(count(&world, SIGNALS).await, 1);
    assert_eq!(count(&world, DONE).await, 1);

    // The runbook's order: hold, workers, dead letters, release, gateways.
    world.order("workspace hold all");
    let worker = world.worker().await;
    let broker = [("AMQP_URL", world.amqp_url.as_str())];
    world.await_messages(DEAD_LETTERS, 2).await;
    let listed = world.order_with(&broker, "dead-letters list --reason unclaimed");
    assert_eq!(listed.as_array().unwrap().len(), 2);
    let redriven = world.order_with(&broker, "dead-letters redrive --unclaimed");
    assert_eq!(redriven, json!({"redriven": 2, "left": 0}));
    await_count(&world, SIGNALS, 2).await;
    assert_eq!(count(&world, DONE).await, 1, "held");
    world.order("workspace release all");
    await_count(&world, DONE, 2).await;
    let gateway = world.gateway().await;
    let (webhook, form) = (webhook.at(&gateway), form.at(&gateway));
    assert_repeats(&webhook, &form).await;
    // What came after the backup was forgotten: its sender's repeat is the first.
    assert!(webhook.send("[\"after\"]").await.is_first());
    form.assert_accepts("after").await;
    await_count(&world, SIGNALS, 3).await;
    await_count(&world, DONE, 3).await;
    let acted = peer.await_received(4).await;
    let again = acted.iter().filter(|one| one.body == acted[1].body);
    assert_eq!(again.count(), 1, "a run of its own, under a key of its own");
    let settings = [("AMQP_URL", world.amqp_url.as_str())];
    let checked = world.order_with(&settings, "check");
    for about in ["deliveries", "submissions", "runs"] {
        let found = one_of(&checked, "about", about);
        assert_eq!(found["verdict"], "fine", "{about}: {checked:#}");
    }
    stop(worker).await;
}

/// What was in the queue when it was redriven is known, and so is what was there before.
async fn assert_repeats(webhook: &Webhook, form: &Form) {
    for body in ["[\"before\"]", "[\"queued\"]"] {
        assert!(webhook.send(body).await.is_duplicate(), "{body}");
    }
    for key in ["before", "queued"] {
        form.assert_accepts(key).await;
    }
}

/// Messages that were processed come again, and change nothing; what a broker has lost is told by
/// the check, and by nobody else.
#[tokio::test(flavor = "multi_thread")]
async fn an_older_broker_changes_nothing_and_what_it_lost_is_told() {
    let (world, gateway) = World::with_gateway().await;
    let (webhook, form) = (world.webhook(&gateway).await, world.form(&gateway).await);
    webhook.send("[\"twice\"]").await;
    form.assert_accepts("twice").await;
    let mut held = Vec::new();
    for queue in ["letterbox.v1.webhooks", "letterbox.v1.forms"] {
        world.await_messages(queue, 1).await;
        held.push((queue, world.take_message(queue).await.unwrap()));
    }
    // A snapshot of the broker holds them; they are there twice more.
    for _ in 0..2 {
        for (queue, delivery) in &held {
            let message = letterbox_broker::Message {
                exchange: letterbox_broker::topology::EXCHANGE,
                routing_key: queue.rsplit('.').next().unwrap().to_owned(),
                properties: delivery.properties.clone(),
                body: delivery.data.clone().into(),
            };
            world.publish_unclaimed(message).await;
        }
    }
    let worker = world.worker().await;
    world.await_signals(1).await;
    world.await_runs(1).await;
    world.await_messages("letterbox.v1.webhooks", 0).await;
    assert_eq!((world.signals().await, world.runs().await), (1, 1));

    // The broker comes back empty: what it held is nowhere, as senders can't know.
    stop(worker).await;
    webhook.send("[\"lost\"]").await;
    world.await_messages("letterbox.v1.webhooks", 1).await;
    world.take_message("letterbox.v1.webhooks").await.unwrap();
    let minutes_ago = "UPDATE webhook_deliveries SET claim_id =
        overlay(claim_id::text PLACING left(lpad(to_hex((extract(epoch FROM clock_timestamp())
            * 1000)::bigint - 300000), 12, '0'), 8) FROM 1 FOR 8)::uuid
        WHERE NOT EXISTS (SELECT FROM signals s WHERE s.signal_id = claim_id)";
    assert_eq!(world.database.execute(minutes_ago, &[]).await.unwrap(), 1);
    let _worker = world.worker().await;
    assert!(webhook.send("[\"lost\"]").await.is_duplicate()); // accepted is accepted
    let (_, checked) = world.judge(&[("AMQP_URL", &world.amqp_url)], "check");
    let lost = one_of(&checked, "about", "deliveries");
    assert_eq!(lost["verdict"], "warning", "{checked:#}");
    let (detail, told) = (&lost["detail"], "1 accepted, and no signal yet");
    assert!(detail.as_str().unwrap().starts_with(told), "{detail}");
}

/// A folder that is gone with it.
struct Backup(PathBuf);

impl Backup {
    fn new() -> Self {
        let name = format!("letterbox-backup-{}", uuid::Uuid::new_v4().simple());
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for Backup {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// By the base backup and the archived log of deploy/README.md, a database comes to be as it was at
/// a moment; what was received later is the first of its kind again.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a server of its own, and its log"]
async fn a_moment_can_be_restored() {
    // Not in the folder of the tests, in which PostgreSQL's user may not look.
    let backup = Backup::new();
    let backup = &backup.0;
    let steps = |steps: &str| {
        let steps = steps.replace("/backup", &backup.display().to_string());
        run("sh", &["-ec", &steps]);
    };
    steps("mkdir -p /backup/wal && chmod -R 777 /backup");
    let archive = "test ! -f /backup/wal/%f && cp %p /backup/wal/%f";
    let archive = archive.replace("/backup", &backup.display().to_string());
    let options = format!("-c archive_mode=on -c archive_command='{archive}'");
    let database = PrivateDatabase::start(&options);
    let url = database.url();
    let migrating = letterbox_operator::migrate(&url.parse().unwrap()).await;
    migrating.unwrap();
    let shared = World::new().await;
    let world = World::on(url.clone(), shared.amqp_url.clone()).await;
    let (gateway, worker) = (world.gateway().await, world.worker().await);
    let webhook = world.webhook(&gateway).await;
    steps(&format!(
        "pg_basebackup --dbname '{url}' --pgdata /backup/base --format tar --gzip --checkpoint fast"
    ));
    webhook.send("[\"before\"]").await;
    world.await_signals(1).await;
    world.await_rows("open_batches", 0).await;
    let moment: String = world.value("SELECT clock_timestamp()::text").await;
    webhook.send("[\"after\"]").await;
    world.await_signals(2).await;
    let end: String = world.value("SELECT pg_walfile_name(pg_switch_wal())").await;
    let archived =
        format!("SELECT count(*) FROM pg_stat_archiver WHERE last_archived_wal >= '{end}'");
    world.await_count("archived", &archived, 1).await;
    stop(worker).await;
    stop(gateway).await;

    database.stop();
    let data = database.folder.join("home/data");
    let data = data.display();
    let owner = format!("$(stat -c %U:%G {data})");
    steps(&format!(
        "owner={owner}
        rm -rf {data} && mkdir -m 700 {data}
        tar -xzf /backup/base/base.tar.gz -C {data}
        tar -xzf /backup/base/pg_wal.tar.gz -C {data}/pg_wal
        cat >> {data}/postgresql.auto.conf <<'END'
restore_command = 'cp /backup/wal/%f %p'
recovery_target_time = '{moment}'
recovery_target_action = 'promote'
END
        touch {data}/recovery.signal
        chown -R $owner {data}"
    ));
    database.start_again();
    let world = World::on(url, shared.amqp_url.clone()).await;
    let promoted = "SELECT count(*) WHERE NOT pg_is_in_recovery()";
    world.await_count("promoted", promoted, 1).await;
    assert_eq!(world.signals().await, 1);
    let (gateway, _worker) = (world.gateway().await, world.worker().await);
    let webhook = webhook.at(&gateway);
    assert!(webhook.send("[\"before\"]").await.is_duplicate());
    assert!(webhook.send("[\"after\"]").await.is_first());
    world.await_signals(2).await;
}
