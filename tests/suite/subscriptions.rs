//! Subscriptions: each signal arrives in the queue of whoever subscribed, whatever dies in between.

use std::{collections::HashSet, time::Duration};

use lapin::message::Delivery;
use lapin::types::{AMQPValue, FieldTable};
use letterbox_broker::topology::DEAD_LETTERS_QUEUE;
use letterbox_tests::{Answer, Process, Proxy, Servers, Webhook, World, eventually};
use serde_json::{Value, json};
use tokio::{io::AsyncBufReadExt, time::sleep};

use crate::schemes::webhook_of;

/// A workspace with a webhook, and the command line with a broker.
pub(crate) struct Subscriber {
    pub(crate) world: World,
    pub(crate) gateway: Process,
    pub(crate) webhook: Webhook,
    pub(crate) workspace: String,
}

impl Subscriber {
    pub(crate) async fn new() -> Self {
        let (world, gateway, webhook) = World::with_webhook().await;
        let workspace = webhook.address.workspace.to_string();
        Self {
            world,
            gateway,
            webhook,
            workspace,
        }
    }

    pub(crate) async fn with_worker() -> (Self, Process) {
        let it = Self::new().await;
        let worker = it.world.worker().await;
        (it, worker)
    }

    pub(crate) fn settings(&self) -> [(&str, &str); 2] {
        let dashboard = &Servers::shared().dashboard_url;
        [
            ("AMQP_URL", &self.world.amqp_url),
            ("LETTERBOX_DASHBOARD_URL", dashboard),
        ]
    }

    /// `signal VERB --workspace W …`
    pub(crate) fn order(&self, verb: &str, more: &str) -> Value {
        let command = format!("signal {verb} --workspace {} {more}", self.workspace);
        self.world.order_with(&self.settings(), command.trim_end())
    }

    pub(crate) fn refusal(&self, verb: &str, more: &str) -> String {
        let command = format!("signal {verb} --workspace {} {more}", self.workspace);
        let output = self.world.letterbox_with(&self.settings(), command);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    /// The only subscription.
    pub(crate) fn subscription(&self) -> Value {
        self.order("subscriptions", "")[0].clone()
    }

    /// Waits until it is told why the subscription is not served.
    pub(crate) async fn await_failure(&self, why: &str) {
        eventually(why, async || {
            let failure = self.subscription()["failure"].clone();
            failure.as_str().is_some_and(|text| text.contains(why))
        })
        .await;
    }

    /// Waits until no transaction, of another test either, could still come before what is stored.
    async fn await_settled(&self) {
        let unsettled = "SELECT count(*) FROM signals WHERE position >= settled_position()";
        self.world.await_count("all is settled", unsettled, 0).await;
    }

    pub(crate) async fn signal_ids(&self) -> HashSet<String> {
        let query = "SELECT signal_id::text FROM signals WHERE workspace_id::text = $1";
        let rows = self.world.database.query(query, &[&self.workspace]).await;
        rows.unwrap().iter().map(|row| row.get(0)).collect()
    }

    /// Takes messages until each of these ids has come; gives how many came again.
    async fn await_all(&self, queue: &str, ids: &HashSet<String>) -> usize {
        let (mut come, mut repeats) = (HashSet::new(), 0);
        eventually("every signal is in the queue", async || {
            for message in self.take_all(queue).await {
                let id = id(&message);
                assert!(ids.contains(&id), "{id} is no signal");
                repeats += usize::from(!come.insert(id));
            }
            come == *ids
        })
        .await;
        repeats
    }

    async fn take_all(&self, queue: &str) -> Vec<Delivery> {
        let channel = self.world.channel().await;
        let mut taken = Vec::new();
        let options = lapin::options::BasicGetOptions { no_ack: true };
        while let Some(got) = channel.basic_get(queue.into(), options).await.unwrap() {
            taken.push(got.delivery);
        }
        taken
    }
}

fn id(message: &Delivery) -> String {
    let id = message.properties.message_id().as_ref();
    id.expect("every message has an id").to_string()
}

fn headers(message: &Delivery) -> &FieldTable {
    message.properties.headers().as_ref().unwrap()
}

fn text(table: &FieldTable, name: &str) -> Option<String> {
    match table.inner().get(name)? {
        AMQPValue::LongString(text) => Some(text.to_string()),
        other => panic!("{name}: {other:?}"),
    }
}

fn table<'a>(of: &'a FieldTable, name: &str) -> &'a FieldTable {
    match of.inner().get(name) {
        Some(AMQPValue::FieldTable(table)) => table,
        other => panic!("{name}: {other:?}"),
    }
}

pub(crate) const WON: &str = r#"{"type":"proposal.won","entity":"Acme","sourceTool":"crm",
    "amount":{"value":12.50,"currency":"EUR"},"eventId":"e1"}"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_gets_what_was_subscribed_and_nothing_else() {
    let (it, _worker) = Subscriber::with_worker().await;
    let other = it.world.webhook(&it.gateway).await;
    it.webhook.send("[\"before\"]").await;
    it.world.await_signals(1).await;
    it.await_settled().await;
    let made = it.order("subscribe", "--queue all.of-it");
    assert_eq!(made["published"], 0);
    it.order("subscribe", "--queue won --signal-kind proposal.won");
    it.webhook.send(WON).await;
    it.webhook.send("[\"generic\"]").await;
    other.send("[\"of another workspace\"]").await;
    it.world.await_signals(4).await;
    it.world.await_messages("all.of-it", 2).await;
    it.world.await_messages("won", 1).await;

    let message = it.world.take_message("won").await.unwrap();
    assert_eq!(message.data, WON.as_bytes());
    let kind = message.properties.kind().as_ref().map(ToString::to_string);
    assert_eq!(kind.as_deref(), Some("proposal.won"));
    assert_eq!(*message.properties.delivery_mode(), Some(2));
    let told = headers(&message);
    for (name, value) in [
        ("workspace_id", it.workspace.as_str()),
        ("webhook_id", &it.webhook.address.webhook.to_string()),
        ("webhook_name", "tool"),
        ("entity", "Acme"),
        ("source_tool", "crm"),
        ("amount_value", "12.5"),
        ("amount_currency", "EUR"),
        ("event_id", "e1"),
    ] {
        assert_eq!(text(told, name).as_deref(), Some(value), "{name}");
    }
    let shown = it.world.order(format!("signal show {}", id(&message)));
    let received: jiff::Timestamp = text(told, "received_at").unwrap().parse().unwrap();
    let known: jiff::Timestamp = shown["received_at"].as_str().unwrap().parse().unwrap();
    assert_eq!(received, known);
    assert_eq!(text(told, "generic_reason"), None);
    let expected = json!([["all.of-it", 2, 0], ["won", 1, 0]]);
    eventually("the cursors have moved", async || {
        let listed = it.order("subscriptions", "");
        let of = |row: &Value| ["queue", "published", "lag_signals"].map(|name| row[name].clone());
        let rows = listed.as_array().unwrap().iter().map(of);
        json!(rows.collect::<Vec<_>>()) == expected
    })
    .await;

    // The same again changes nothing; something else needs another queue.
    let again = it.order("subscribe", "--queue won --signal-kind proposal.won");
    assert_eq!(again["published"], 1);
    assert!(it.refusal("subscribe", "--queue won").contains("already"));
    for name in ["amq.mine", "letterbox.v1.webhooks", "with space"] {
        let order = ["signal", "subscribe", "--workspace", &it.workspace];
        let refused = std::process::Command::new(letterbox_tests::binary("letterbox"))
            .args(order)
            .args(["--queue", name])
            .env_clear()
            .env("DATABASE_URL", &it.world.database_url)
            .env("AMQP_URL", &it.world.amqp_url)
            .output()
            .unwrap();
        assert!(String::from_utf8_lossy(&refused.stderr).contains("a queue's name"));
    }
    let audited = it.world.order("audit list --limit 100");
    let orders = audited.as_array().unwrap().iter();
    let subscribed = orders.filter(|one| one["command"] == "signal subscribe");
    assert_eq!(subscribed.count(), 2); // the repeated one has changed nothing
}

/// Kept headers are tables of their own, and the signed ones are told from the others.
#[tokio::test(flavor = "multi_thread")]
async fn kept_headers_go_with_the_message() {
    let (it, _worker) = Subscriber::with_worker().await;
    let created = it.world.order(format!(
        "webhook create --workspace {} --name g --kept-headers x-topic",
        it.workspace
    ));
    let webhook = webhook_of(&it.gateway, &created);
    it.order("subscribe", "--queue kept");
    let canary = uuid::Uuid::new_v4().simple().to_string();
    // Searched for in everything that the processes log.
    letterbox_tests::marks::mark(&canary);
    let sending = webhook.request("[1]").header("x-topic", "orders");
    let sending = sending.header("authorization", format!("Bearer {canary}"));
    assert!(Answer::to(sending).await.is_first());
    it.world.await_messages("kept", 1).await;
    let message = it.world.take_message("kept").await.unwrap();
    assert!(!format!("{message:?}").contains(&canary));
    let tables = "SELECT relname::text FROM pg_class
        WHERE relkind IN ('r', 'p') AND relnamespace = 'public'::regnamespace";
    let (mut found, mut known) = (0, 0);
    for row in it.world.database.query(tables, &[]).await.unwrap() {
        let name: String = row.get(0);
        let holds =
            |word: &str| format!("SELECT count(*) FROM {name} AS t WHERE t::text LIKE '%{word}%'");
        found += it.world.count(&holds(&canary)).await;
        known += it.world.count(&holds("x-topic")).await;
    }
    assert_eq!(found, 0, "in no table");
    assert!(known > 0, "the search finds what is there");
    let unsigned = table(headers(&message), "unsigned_headers");
    assert_eq!(text(unsigned, "x-topic").as_deref(), Some("orders"));
    assert_eq!(unsigned.inner().len(), 1);
    let signed = table(headers(&message), "signed_headers");
    assert!(signed.inner().is_empty());
}

/// A login of its own reads its queue, and neither reads, writes nor declares anything else.
#[tokio::test(flavor = "multi_thread")]
async fn a_login_reads_its_queue_and_nothing_else() {
    let (it, _worker) = Subscriber::with_worker().await;
    let login = format!("reader-{}", it.workspace);
    let made = it.order("subscribe", &format!("--queue mine.own --login {login}"));
    it.order("subscribe", "--queue mineXown");
    let taken = it.refusal("subscribe", &format!("--queue third --login {login}"));
    assert!(taken.contains("has a user"), "{taken}");
    let mut url: url::Url = it.world.amqp_url.parse().unwrap();
    url.set_username(&login).unwrap();
    url.set_password(made["password"].as_str()).unwrap();
    it.webhook.send("[1]").await;
    it.world.await_messages("mine.own", 1).await;
    let connect = async || {
        let runtime = async_rs::Runtime::tokio_current();
        lapin::Connection::connect_with_runtime(url.as_str(), Default::default(), runtime).await
    };
    let connection = connect().await.unwrap();
    let channel = async || connection.create_channel().await.unwrap();
    let options = lapin::options::BasicGetOptions { no_ack: true };
    let got = channel().await.basic_get("mine.own".into(), options).await;
    assert_eq!(got.unwrap().unwrap().delivery.data, b"[1]");
    for queue in ["mineXown", "letterbox.v1.webhooks", DEAD_LETTERS_QUEUE] {
        let refused = channel().await.basic_get(queue.into(), options).await;
        assert!(refused.is_err(), "{queue}");
    }
    let declaring = channel().await;
    let none = FieldTable::default();
    let declared = declaring.queue_declare("mine.own2".into(), Default::default(), none);
    assert!(declared.await.is_err());
    let publishing = channel().await;
    publishing.confirm_select(Default::default()).await.unwrap();
    let (queue, none) = ("mine.own".into(), Default::default());
    let published = publishing.basic_publish("".into(), queue, none, b"[]", Default::default());
    let published = match published.await {
        Ok(confirm) => confirm.await.map(drop),
        Err(error) => Err(error),
    };
    assert!(published.is_err());
    it.order("unsubscribe", "--queue mine.own");
    assert!(connect().await.is_err(), "the user is gone");
    it.webhook.send("[2]").await;
    it.world.await_messages("mineXown", 2).await;
    assert_eq!(it.world.messages("mine.own").await, 0, "nothing more comes");
    // What is in a queue may be another workspace's.
    let there = it.refusal("subscribe", "--queue mine.own");
    assert!(there.contains("--existing"), "{there}");
    it.order("subscribe", "--queue mine.own --existing");
    let deleting = format!("workspace delete {} --name Test", it.workspace);
    it.world.assert_refused(deleting, "mine.own");
    it.order("unsubscribe", "--queue mine.own");
    it.order("unsubscribe", "--queue mineXown --delete-queue --yes");
    assert_eq!(it.order("subscriptions", ""), json!([]));
    it.refusal("pause", "--queue mine.own");
}

/// Who commits late is not left out, however much has been read meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn late_commits_are_not_left_out() {
    let (it, _worker) = Subscriber::with_worker().await;
    it.order("subscribe", "--queue late");
    it.webhook.send("[1]").await;
    it.world.await_messages("late", 1).await;
    let slow = it.world.session(letterbox_database::Role::Login).await;
    let insert = format!(
        "BEGIN; INSERT INTO signals (workspace_id, signal_id, webhook_id, kind, generic_reason,
             body, received_at)
         VALUES ('{}', '00000000-0000-7000-8000-000000000001', '{}', 'generic', 'x', '[2]', now())",
        it.workspace, it.webhook.address.webhook
    );
    slow.batch_execute(&insert).await.unwrap();
    for body in ["[3]", "[4]"] {
        it.webhook.send(body).await;
    }
    it.world.await_signals(3).await;
    let waiting = it.subscription();
    assert_eq!(waiting["lag_signals"], 2, "what waits is seen");
    assert_eq!(it.world.messages("late").await, 1);
    slow.batch_execute("COMMIT").await.unwrap();
    let ids = it.signal_ids().await;
    assert_eq!(ids.len(), 4);
    assert_eq!(it.await_all("late", &ids).await, 0);
}

/// Whoever can't store signals holds nobody up by a transaction that does nothing.
#[tokio::test(flavor = "multi_thread")]
async fn an_open_transaction_of_a_person_holds_nobody_up() {
    let (it, _worker) = Subscriber::with_worker().await;
    it.order("subscribe", "--queue held");
    let (url, _) = it.world.login_in("letterbox_desk").await;
    let connecting = tokio_postgres::connect(&url, tokio_postgres::NoTls);
    let (person, connection) = connecting.await.unwrap();
    tokio::spawn(connection);
    let holding = "BEGIN; SELECT pg_current_xact_id()";
    person.batch_execute(holding).await.unwrap();
    for body in ["[1]", "[2]"] {
        it.webhook.send(body).await;
    }
    it.world.await_messages("held", 2).await;
    person.batch_execute("ROLLBACK").await.unwrap();
}

/// Signals wait in the database before they fill the broker's disk.
#[tokio::test(flavor = "multi_thread")]
async fn a_queue_that_nobody_reads_gets_no_more() {
    let (it, _worker) = Subscriber::with_worker().await;
    it.order("subscribe", "--queue unread");
    let channel = it.world.channel().await;
    channel.confirm_select(Default::default()).await.unwrap();
    let mut confirms = Vec::new();
    for _ in 0..20_000 {
        let key = "unread".into();
        let publishing =
            channel.basic_publish("".into(), key, Default::default(), b"", Default::default());
        confirms.push(publishing.await.unwrap());
    }
    for confirm in confirms {
        confirm.await.unwrap();
    }
    it.webhook.send("[1]").await;
    it.await_failure("full").await;
    let purging = channel.queue_purge("unread".into(), Default::default());
    purging.await.unwrap();
    it.world.await_messages("unread", 1).await;
}

/// A full queue refuses, and the cursor stands; so it does while the broker is away.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_and_a_broker_that_is_away_lose_nothing() {
    stall_for(Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a long sample"]
async fn a_minute_of_either_loses_nothing() {
    stall_for(Duration::from_secs(60)).await;
}

async fn stall_for(pause: Duration) {
    let it = Subscriber::new().await;
    it.order("subscribe", "--queue full");
    let small = r#"{"pattern": "^full$", "definition": {"max-length": 10}, "apply-to": "queues"}"#;
    it.world.set_queue_policy(Some(small)).await;
    let url = it.world.process_amqp_urls[1].clone();
    let broker = Proxy::before(&url).await;
    let worker = it.world.worker_with(&[("AMQP_URL", &broker.url)]).await;
    for number in 0..60 {
        it.webhook.send(format!("[{number}]")).await;
    }
    it.world.await_signals(60).await;
    it.await_failure("full").await;
    assert!(it.subscription()["lag_signals"].as_i64().unwrap() > 0);
    let shown = it.world.read("status");
    assert!(shown.contains("full"), "{shown}");
    let lag = "letterbox_subscription_lag_signals{subscription=\"full\"}";
    let is_said = async || worker.metric(lag).await > 0.0;
    eventually("the metric says it", is_said).await;
    sleep(pause).await;
    // What is taken makes room, so that it goes on, though the limit stays.
    let taken = it.take_all("full").await;
    let mut come: HashSet<String> = taken.iter().map(id).collect();
    broker.cut();
    for number in 60..70 {
        it.webhook.send(format!("[{number}]")).await;
    }
    sleep(pause).await;
    broker.pass();
    it.world.await_signals(70).await;
    it.world.set_queue_policy(None).await;
    let ids = it.signal_ids().await;
    eventually("every signal has come", async || {
        come.extend(it.take_all("full").await.iter().map(id));
        come == ids
    })
    .await;
    eventually("all is well again", async || {
        let now = it.subscription();
        now["failure"].is_null() && now["failing_since"].is_null() && now["lag_signals"] == 0
    })
    .await;
}

/// A queue that was deleted holds up nothing but itself, and is filled when it is there again.
#[tokio::test(flavor = "multi_thread")]
async fn a_queue_that_is_gone_holds_up_only_itself() {
    let (it, _worker) = Subscriber::with_worker().await;
    it.order("subscribe", "--queue gone");
    it.order("subscribe", "--queue there");
    let channel = it.world.channel().await;
    let deleting = channel.queue_delete("gone".into(), Default::default());
    deleting.await.unwrap();
    it.webhook.send("[1]").await;
    it.world.await_messages("there", 1).await;
    it.await_failure("no such queue").await;
    it.webhook.send("[2]").await;
    it.world.await_messages("there", 2).await;
    it.order("subscribe", "--queue gone");
    it.world.await_messages("gone", 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn subscriptions_are_paused_and_rewound() {
    let (it, _worker) = Subscriber::with_worker().await;
    it.order("subscribe", "--queue again");
    assert_eq!(it.order("pause", "--queue again")["changed"], true);
    assert_eq!(it.order("pause", "--queue again")["changed"], false);
    let bodies: Vec<String> = (0..40).map(|number| format!("[{number}]")).collect();
    for body in &bodies {
        it.webhook.send(body.as_str()).await;
    }
    it.world.await_signals(40).await;
    assert_eq!(it.subscription()["lag_signals"], 40);
    assert_eq!(it.world.messages("again").await, 0);
    it.order("resume", "--queue again");
    it.world.await_messages("again", 40).await;
    let first: Vec<String> = it.take_all("again").await.iter().map(id).collect();
    // In the order in which they were stored, and the same once more.
    let query = "SELECT signal_id::text FROM signals ORDER BY position, signal_id";
    let stored: Vec<String> = it.world.column(query).await;
    assert_eq!(first, stored);
    it.order("rewind", "--queue again --to 1h");
    it.world.await_messages("again", 40).await;
    let again: Vec<String> = it.take_all("again").await.iter().map(id).collect();
    assert_eq!(again, first);
    // A day ago, when half of it was stored.
    let aged = "UPDATE signals SET stored_at = stored_at - interval '2 days'
        WHERE position < (SELECT position FROM signals ORDER BY position, signal_id
                          OFFSET 15 LIMIT 1)";
    // What was stored together has one position.
    let aged = it.world.database.execute(aged, &[]).await.unwrap() as usize;
    let left = u32::try_from(40 - aged).unwrap();
    it.order("rewind", "--queue again --to 1d");
    it.world.await_messages("again", left).await;
    let half: Vec<String> = it.take_all("again").await.iter().map(id).collect();
    assert_eq!(half, first[aged..]);
    it.order("subscribe", "--queue late.comer --from 1d");
    it.world.await_messages("late.comer", left).await;
}

/// A successor is the same tool; a forgotten body is told, not left out.
#[tokio::test(flavor = "multi_thread")]
async fn successors_and_forgotten_bodies_come_too() {
    let (it, _worker) = Subscriber::with_worker().await;
    let (workspace, webhook) = (it.webhook.address.workspace, it.webhook.address.webhook);
    let other = it.world.webhook_in(&it.gateway, workspace).await;
    it.order("subscribe", &format!("--queue tool --webhook {webhook}"));
    let replacing = format!("webhook replace {webhook} --overlap 1h");
    let replaced = it.world.order(replacing);
    let successor = webhook_of(&it.gateway, &replaced);
    other.send("[\"other\"]").await;
    it.webhook.send("[1]").await;
    assert!(successor.send("[2]").await.is_first());
    it.world.await_messages("tool", 2).await;
    it.take_all("tool").await;
    let forgetting = "UPDATE signals SET body = NULL, headers = NULL";
    it.world.change(forgetting).await;
    it.order("rewind", "--queue tool --to 1h");
    it.world.await_messages("tool", 2).await;
    for message in it.take_all("tool").await {
        assert!(message.data.is_empty());
        let told = text(headers(&message), "body_forgotten");
        assert_eq!(told.as_deref(), Some("true"));
    }
}

/// As after a restore, an upgrade or a failover: transactions count anew, and positions go on.
#[tokio::test(flavor = "multi_thread")]
async fn another_server_goes_on_where_the_former_ended() {
    let (it, _worker) = Subscriber::with_worker().await;
    it.order("subscribe", "--queue moved");
    it.webhook.send("[1]").await;
    it.world.await_messages("moved", 1).await;
    let has_moved = async || it.subscription()["published"] == 1;
    eventually("the cursor has moved", has_moved).await;
    // The former server had counted further than this one ever will.
    let moving = "UPDATE signal_epoch SET server = 'another';
        UPDATE signals SET position = position + (1::bigint << 43);
        UPDATE subscriptions SET position = position + (1::bigint << 43)";
    it.world.change(moving).await;
    it.webhook.send("[2]").await;
    it.world.await_messages("moved", 2).await;
    let epoch = "SELECT epoch FROM signal_epoch";
    it.world.assert_count(epoch, 1).await;
    it.order("rewind", "--queue moved --to 1h");
    it.world.await_messages("moved", 4).await;
}

/// Workers die under load, anywhere: what comes is what was stored, and hardly anything twice.
#[tokio::test(flavor = "multi_thread")]
async fn workers_that_die_anywhere_leave_nothing_out() {
    kill_workers(6).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a long sample"]
async fn workers_that_die_a_hundred_times_leave_nothing_out() {
    kill_workers(100).await;
}

async fn kill_workers(times: u32) {
    let it = Subscriber::new().await;
    it.order("subscribe", "--queue dying");
    let mut staying = it.world.worker().await;
    let sending = async {
        for number in 0..40 * times {
            it.webhook.send(format!("[{number}]")).await;
        }
    };
    let killing = async {
        for number in 0..times {
            let next = it.world.worker().await;
            sleep(Duration::from_millis(fastrand::u64(0..300))).await;
            let mut dying = std::mem::replace(&mut staying, next);
            dying.kill().await;
            // Some are gone before they have begun.
            if number % 7 == 3 {
                let mut young = it.world.start("letterbox-worker", &[]);
                young.kill().await;
            }
        }
    };
    tokio::join!(sending, killing);
    it.world.await_signals(i64::from(40 * times)).await;
    let ids = it.signal_ids().await;
    let repeats = it.await_all("dying", &ids).await;
    assert!(repeats < ids.len(), "{repeats} of {}", ids.len());
}

/// The consumers that are shown to people: each reads all signals, also after the broker has cut
/// its connection, and acknowledges them.
#[tokio::test(flavor = "multi_thread")]
async fn consumers_in_three_languages_read_everything() {
    let (it, _worker) = Subscriber::with_worker().await;
    let rust = tokio::process::Command::new(letterbox_tests::binary("examples/consume"));
    let consumers = [
        Some(("rust", rust)),
        Some((
            "python",
            letterbox_tests::python("../../worker/consumers/consume.py"),
        )),
        letterbox_tests::node("../../worker/consumers/consume.mjs").map(|node| ("node", node)),
    ];
    let mut reading = Vec::new();
    for (language, mut command) in consumers.into_iter().flatten() {
        it.order("subscribe", &format!("--queue {language}"));
        let broker = Proxy::before(&it.world.amqp_url).await;
        let mut running = command
            .env("AMQP_URL", &broker.url)
            .env("QUEUE", language)
            .stdout(std::process::Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let lines = tokio::io::BufReader::new(running.stdout.take().unwrap()).lines();
        reading.push((language, running, broker, lines));
    }
    it.webhook.send(WON).await;
    for (language, _, broker, lines) in &mut reading {
        let told = next_line(lines).await;
        assert_eq!(told["kind"], "proposal.won", "{language}");
        assert_eq!(told["body"], WON, "{language}");
        broker.cut();
        broker.pass();
    }
    it.webhook.send("[2]").await;
    for (language, _, _, lines) in &mut reading {
        // What was not acknowledged before the cut comes again.
        let mut told = next_line(lines).await;
        if told["body"] == WON {
            told = next_line(lines).await;
        }
        assert_eq!(told["body"], "[2]", "{language}");
    }
}

pub(crate) async fn next_line(
    lines: &mut tokio::io::Lines<tokio::io::BufReader<tokio::process::ChildStdout>>,
) -> Value {
    let line = tokio::time::timeout(Duration::from_secs(60), lines.next_line()).await;
    let line = line.expect("a line in time").unwrap();
    serde_json::from_str(&line.expect("it goes on")).unwrap()
}
