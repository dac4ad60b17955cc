//! Subscriptions to URLs: each signal is posted, signed, until it is taken: in order, whoever dies
//! or is away in between.

use std::{
    collections::HashSet,
    net::TcpListener,
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use letterbox_common::{sealing::Secret, states::MemberRole, webhook::Tool};
use letterbox_tests::{
    Answer, MailServer, Peer, Received, Reply, assert_hides, assert_holds, assert_tells, eventually,
};
use serde_json::json;
use tokio::{io::AsyncBufReadExt, time::sleep};

use crate::{
    schemes::webhook_of,
    subscriptions::{Subscriber, WON, next_line},
};

/// Those that were asked for, in the order in which they came for the first time.
fn ids(received: &[Received]) -> Vec<String> {
    let ids = received.iter().map(|one| one.header("webhook-id").unwrap());
    let mut seen = HashSet::new();
    ids.filter(|id| seen.insert(id.to_string()))
        .map(str::to_owned)
        .collect()
}

/// Whether a request is signed with this secret now.
fn is_signed(received: &Received, secret: &str) -> bool {
    let rules = Tool::standard_webhooks().rules().unwrap();
    let keys = rules.keys(&Secret::new(secret.into())).unwrap();
    let at = received.header("webhook-timestamp").unwrap();
    let at: u64 = at.parse().unwrap();
    let now = jiff::Timestamp::now().as_second().unsigned_abs();
    let id = received.header("webhook-id").unwrap();
    let signed = rules.sign(&keys, "", received.body.as_bytes(), at, id);
    let signed = signed.unwrap().headers;
    let mut signed = signed.iter();
    signed.all(|(name, value)| received.header(name) == Some(value)) && now - at < 60
}

impl Subscriber {
    async fn send_all(&self, numbers: std::ops::Range<u32>) {
        let end = i64::from(numbers.end);
        for number in numbers {
            self.webhook.send(format!("[{number}]")).await;
        }
        self.world.await_signals(end).await;
    }

    /// The ids of all signals, in the order in which they were stored.
    async fn stored(&self) -> Vec<String> {
        let query = "SELECT signal_id::text FROM signals ORDER BY position, signal_id";
        self.world.column(query).await
    }

    /// Waits until a peer has got all signals, in order; gives what it has got.
    async fn await_posted(&self, peer: &Peer) -> Vec<Received> {
        let stored = self.stored().await;
        let is_all = async || ids(&peer.received()).len() == stored.len();
        eventually("every signal was posted", is_all).await;
        assert_eq!(ids(&peer.received()), stored);
        peer.received()
    }

    async fn await_well(&self, taken: usize) {
        eventually("all is taken", async || {
            let now = self.subscription();
            now["failing_since"].is_null() && now["published"] == taken && now["lag_signals"] == 0
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_url_gets_what_was_sent_signed_and_in_order() {
    let (it, _worker) = Subscriber::with_worker().await;
    let peer = Peer::start(|_, _| Reply::Status(200)).await;
    let to = format!("--url {}/hook", peer.url);
    let made = it.order("subscribe", &to);
    let secret = made["secret"].as_str().unwrap();
    assert!(secret.starts_with("whsec_") && secret.len() > 40, "{made}");
    // It is shown this once, and nothing holds it in clear.
    letterbox_tests::marks::mark(&secret["whsec_".len()..]);
    let again = it.order("subscribe", &to);
    assert_eq!(again["subscription_id"], made["subscription_id"]);
    assert!(again["secret"].is_null() && it.subscription()["secret"].is_null());
    let held = format!("subscriptions s WHERE s::text LIKE '%{secret}%'");
    it.world.assert_rows(&held, 0).await;
    let other = it.refusal("subscribe", &format!("{to} --signal-kind proposal.won"));
    assert_tells(&other, &["to other signals"]);
    for (url, why) in [
        ("https://me:pw@example.com/", "must not contain a user"),
        ("ftp://example.com/", "http:// or https://"),
    ] {
        assert_tells(&it.refusal("subscribe", &format!("--url {url}")), &[why]);
    }

    it.send_all(0..20).await;
    let received = it.await_posted(&peer).await;
    assert!(received.iter().all(|one| is_signed(one, secret)));
    it.await_well(20).await;
    // Headers that were kept come under their names, but for those that are Letterbox's own.
    let created = it.world.order(format!(
        "webhook create --workspace {} --name kept --kept-headers x-topic,host,webhook-id",
        it.workspace
    ));
    let tool = webhook_of(&it.gateway, &created);
    let sending = tool.request("[\"\u{e9}\"]").header("x-topic", "orders");
    let sending = sending.header("webhook-id", "m1");
    assert!(Answer::to(sending).await.is_first());
    it.world.await_signals(21).await;
    let received = it.await_posted(&peer).await;
    let last = received.last().unwrap();
    assert!(is_signed(last, secret));
    assert_eq!(last.target, "/hook");
    assert_eq!(last.body, "[\"\u{e9}\"]");
    for (name, value) in [
        ("content-type", "application/json"),
        ("letterbox-kind", "generic"),
        ("x-topic", "orders"),
        ("original-webhook-id", "m1"),
    ] {
        assert_eq!(last.header(name), Some(value), "{name}");
    }
    assert_eq!(last.header("host"), peer.url.strip_prefix("http://"));
    assert!(last.header("original-host").is_some());
}

/// Nothing is lost, nothing overtakes, and the same reason is told everywhere.
#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_is_down_gets_everything_in_order_later() {
    let it = Subscriber::new().await;
    let mail = MailServer::start().await;
    let settings = [
        ("LETTERBOX_SMTP_URL", mail.url.as_str()),
        ("LETTERBOX_SMTP_FROM", "Letterbox <letterbox@example.com>"),
        ("LETTERBOX_NOTICE_SECONDS", "1"),
    ];
    let worker = it.world.worker_with(&settings).await;
    let workspace = it.webhook.address.workspace;
    let ada = it.world.member(workspace, "ada", MemberRole::Owner).await;
    it.world.person(ada).await;
    let is_up = Arc::new(AtomicBool::new(false));
    let told = is_up.clone();
    let script = move |_: &_, _| match told.load(Relaxed) {
        true => Reply::Status(204),
        false => Reply::With(503, Vec::new(), "closed \u{0} for now".to_owned()),
    };
    let peer = Peer::start(script).await;
    let there = vec![("location", "https://new.example/hook?a".to_owned())];
    let moved = Peer::start(move |_, _| Reply::With(308, there.clone(), String::new())).await;
    let made = it.order("subscribe", &format!("--url {}/", peer.url));
    let id = made["subscription_id"].as_str().unwrap();
    it.send_all(0..10).await;
    it.await_failure("it answered 503").await;
    assert_eq!(it.subscription()["received"], "closed \u{fffd} for now");
    let why = format!("{}/ of Test: it answered 503: closed", peer.url);
    let status = it.world.letterbox("status").stdout;
    assert_tells(&String::from_utf8(status).unwrap(), &[&why]);
    eventually("the metric says it", async || {
        let lag = format!("letterbox_subscription_lag_signals{{subscription=\"{id}\"}}");
        worker.metric(&lag).await == 10.0
    })
    .await;
    // As if it had failed for five minutes: it is told once.
    let telling = format!("workspace settings {workspace} --notify-by-email on");
    it.world.order(telling);
    let aged = "UPDATE subscriptions SET failing_since = failing_since - interval '6 min',
        due_at = due_at - interval '6 min'";
    it.world.change(aged).await;
    eventually("a letter", async || !mail.taken().is_empty()).await;
    let letter = mail.taken()[0].text.clone();
    let told = ["1 subscription has got no signals", "/: it answered 503"];
    assert_tells(&letter, &told);
    assert_hides(&letter, &["closed"]);
    assert_eq!(ids(&peer.received()).len(), 1, "nothing overtakes it");
    is_up.store(true, Relaxed);
    it.await_posted(&peer).await;
    it.await_well(10).await;
    assert_eq!(mail.taken().len(), 1);

    it.order("unsubscribe", &format!("--url {}/", peer.url));
    it.order("subscribe", &format!("--url {}/ --from 1h", moved.url));
    let why = "it answered 308, a redirect";
    it.await_failure(why).await;
    assert_eq!(ids(&moved.received()).len(), 1);
}

/// It holds up neither others nor the database.
#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_does_not_answer_holds_up_only_itself() {
    let (it, mut worker) = Subscriber::with_worker().await;
    let (silent, gate) = Peer::gated(200).await;
    let good = Peer::start(|_, _| Reply::Status(200)).await;
    // All are there before the first is posted, so that three go out together.
    it.send_all(0..8).await;
    it.world.await_signals(8).await;
    let to = format!("--url {}/ --in-flight 3 --from 1h", silent.url);
    it.order("subscribe", &to);
    silent.await_received(3).await;
    let idle = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND state LIKE 'idle in transaction%'";
    it.world.await_count("nothing is held", idle, 0).await;
    it.order("subscribe", &format!("--url {}/ --from 1h", good.url));
    it.await_posted(&good).await;
    silent.await_received(3).await; // no more than may wait
    // A worker that stops awaits them, and what they have answered is not posted again.
    worker.terminate();
    sleep(Duration::from_millis(300)).await;
    gate.add_permits(100);
    assert!(worker.ended().await.success());
    let taken = "SELECT published FROM subscriptions WHERE in_flight = 3";
    assert_eq!(it.world.value::<i64>(taken).await, 3);
    let _next = it.world.worker().await;
    silent.await_received(8).await;
}

/// The places of a worker are not one workspace's.
#[tokio::test(flavor = "multi_thread")]
async fn a_workspace_has_eight_places() {
    let (it, _worker) = Subscriber::with_worker().await;
    let (silent, gate) = Peer::gated(200).await;
    it.send_all(0..1).await;
    it.world.await_signals(1).await;
    for number in 0..12 {
        let to = format!("--url {}/{number} --from 1h", silent.url);
        it.order("subscribe", &to);
    }
    silent.await_received(8).await;
    let leased = "SELECT count(*) FROM subscriptions WHERE leased_until > clock_timestamp()";
    assert_eq!(it.world.count(leased).await, 8);
    // The next ones come when one of these is done.
    gate.add_permits(100);
    silent.await_received(12).await;
}

/// What was on its way when a worker died comes again, under the same id, before what is behind it.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_dies_leaves_nothing_out() {
    let (it, mut worker) = Subscriber::with_worker().await;
    let (peer, gate) = Peer::gated_at_first(200).await;
    it.order("subscribe", &format!("--url {}/", peer.url));
    it.send_all(0..5).await;
    peer.await_received(1).await;
    worker.kill().await;
    let _next = it.world.worker().await;
    let over = "UPDATE subscriptions SET leased_until = clock_timestamp()";
    it.world.change(over).await;
    let received = it.await_posted(&peer).await;
    assert_eq!(received.len(), 6);
    let [first, again] = [0, 1].map(|number| received[number].header("webhook-id"));
    assert_eq!(first, again);
    it.await_well(5).await;
    drop(gate);
}

#[tokio::test(flavor = "multi_thread")]
async fn posts_are_paused_and_repeated() {
    let (it, _worker) = Subscriber::with_worker().await;
    let peer = Peer::start(|_, _| Reply::Status(200)).await;
    let to = format!("--url {}/", peer.url);
    it.order("subscribe", &format!("{to} --signal-kind generic"));
    assert_eq!(it.order("pause", &to)["changed"], true);
    it.webhook.send(WON).await;
    it.send_all(1..11).await;
    assert_eq!(it.subscription()["lag_signals"], 11);
    assert_eq!(peer.received().len(), 0);
    it.order("resume", &to);
    it.await_well(10).await;
    it.order("rewind", &format!("{to} --to 1h"));
    it.await_well(20).await;
    let received = peer.received();
    let key = |one: &Received| one.header("webhook-id").unwrap().to_owned();
    let [first, again] = [&received[..10], &received[10..]].map(|few| few.iter().map(key));
    assert!(first.eq(again) && received.iter().all(|one| one.body != WON));
    let forgetting = "UPDATE signals SET body = NULL, headers = NULL";
    it.world.change(forgetting).await;
    it.order("rewind", &format!("{to} --to 1h"));
    it.await_well(30).await;
    let last = peer.received().pop().unwrap();
    let is_forgotten = last.header("letterbox-body-forgotten");
    assert_eq!((is_forgotten, &*last.body), (Some("true"), ""));
    it.order("unsubscribe", &to);
    assert_eq!(it.order("subscriptions", ""), json!([]));
}

/// What does not say so is left out, for URLs and queues alike, and the cursor moves over it.
#[tokio::test(flavor = "multi_thread")]
async fn only_signals_whose_bodies_say_so_are_handed_over() {
    let (it, _worker) = Subscriber::with_worker().await;
    let peer = Peer::start(|_, _| Reply::Status(200)).await;
    let all = "--where /data/status=paid --where /data/count=3";
    let to = format!("--url {}/ {all}", peer.url);
    let made = it.order("subscribe", &to);
    assert_eq!(made["where"], json!(["/data/status=paid", "/data/count=3"]));
    it.order("subscribe", &format!("--queue some.of-it {all}"));
    let other = it.refusal("subscribe", &format!("--url {}/", peer.url));
    assert_tells(&other, &["to other signals"]);
    let many = "--where /a=1 ".repeat(9);
    let many = format!("--url {}/other {}", peer.url, many.trim_end());
    let many = it.refusal("subscribe", &many);
    assert_tells(&many, &["at most 8 conditions"]);
    let depth = 32_000;
    let deep = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let wanted = r#"{"data":{"status":"paid","count":3},"number":1}"#;
    let last = r#"{"data":{"count":3,"status":"p\u0061id"},"number":2}"#;
    for body in [
        &deep,
        r#"{"data":{"status":"paid","count":4}}"#,
        wanted,
        r#"{"data":"paid"}"#,
        r#"["paid"]"#,
        last,
        r#"{"data":{"status":null,"count":3}}"#,
    ] {
        it.webhook.send(body.to_owned()).await;
    }
    it.world.await_signals(7).await;
    eventually("all was looked at", async || {
        let all = it.order("subscriptions", "");
        let mut all = all.as_array().unwrap().iter();
        all.all(|one| one["lag_signals"] == 0 && one["published"] == 2)
    })
    .await;
    let bodies = peer.received().into_iter().map(|one| one.body);
    assert_eq!(Vec::from_iter(bodies), [wanted, last]);
    for body in [wanted, last] {
        let message = it.world.take_message("some.of-it").await.unwrap();
        assert_eq!(message.data, body.as_bytes());
    }
    // One that can't be read leaves nothing out: it waits.
    it.order("unsubscribe", "--queue some.of-it");
    let change = |to: &str| format!("UPDATE subscriptions SET conditions = '{to}'");
    it.world.change(&change("{of a newer version}")).await;
    it.webhook.send(wanted.replace('1', "3")).await;
    it.await_failure("a condition can't be read").await;
    it.world.change(&change("{}")).await;
    eventually("it comes", async || peer.received().len() == 3).await;
}

/// Requests leave for where those of actions may go, and a secret signs only for its URL.
#[tokio::test(flavor = "multi_thread")]
async fn secrets_stay_with_their_url_and_posts_out_of_the_house() {
    let (it, mut worker) = Subscriber::with_worker().await;
    let peer = Peer::start(|_, _| Reply::Status(200)).await;
    let made = it.order("subscribe", &format!("--url {}/", peer.url));
    let secret = made["secret"].as_str().unwrap();
    let both = format!("next:{},{}", "8f".repeat(31) + "01", it.world.account_keys);
    let keys = [("LETTERBOX_ACCOUNT_KEYS", both.as_str())];
    assert_eq!(it.world.order_with(&keys, "keys rotate")["resealed"], 1);
    assert_eq!(it.world.order_with(&keys, "keys rotate")["resealed"], 0);
    worker.terminate();
    worker.ended().await;
    let mut worker = it.world.worker_with(&keys).await;
    it.send_all(0..1).await;
    assert!(is_signed(&peer.await_received(1).await[0], secret));
    let moving = "UPDATE subscriptions SET url = url || 'other'";
    it.world.change(moving).await;
    it.send_all(1..2).await;
    it.await_failure("its secret: the sealed value").await;
    let back = "UPDATE subscriptions SET url = left(url, -5)";
    it.world.change(back).await;
    peer.await_received(2).await;
    worker.terminate();
    worker.ended().await;
    let guarded = [keys[0], ("LETTERBOX_EGRESS_ALLOW", "")];
    let _worker = it.world.worker_with(&guarded).await;
    it.send_all(2..3).await;
    it.await_failure("the host's address is private").await;
    peer.await_received(2).await;
}

/// The receivers that are shown to people: each takes what is signed, and each signal once.
#[tokio::test(flavor = "multi_thread")]
async fn receivers_in_three_languages_take_everything_once() {
    let (it, _worker) = Subscriber::with_worker().await;
    let mut perl = tokio::process::Command::new("perl");
    perl.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../worker/consumers"));
    perl.arg("receive.pl");
    let receivers = [
        Some(letterbox_tests::python("../../worker/consumers/receive.py")),
        Some(perl),
        letterbox_tests::node("../../worker/consumers/receive.mjs"),
    ];
    let mut reading = Vec::new();
    for mut command in receivers.into_iter().flatten() {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        let url = format!("http://127.0.0.1:{port}/");
        let made = it.order("subscribe", &format!("--url {url}"));
        drop(free);
        let mut running = command
            .env("WEBHOOK_SECRET", made["secret"].as_str().unwrap())
            .env("PORT", port.to_string())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let lines = tokio::io::BufReader::new(running.stdout.take().unwrap()).lines();
        reading.push((url, running, lines));
    }
    let bodies = [WON, "[\"\u{e9}\"]", "[3]"];
    for body in &bodies[..2] {
        it.webhook.send(*body).await;
    }
    let client = letterbox_tests::http_client();
    for (url, _, lines) in &mut reading {
        for (body, kind) in [(bodies[0], "proposal.won"), (bodies[1], "generic")] {
            assert_holds(&next_line(lines).await, json!({"body": body, "kind": kind}));
        }
        let forged = client.post(&*url).header("webhook-id", "x").body("[4]");
        let forged = forged.header("webhook-signature", "v1,AAAA").send().await;
        assert_eq!(forged.unwrap().status(), 401, "{url}");
        // What comes again is known.
        it.order("rewind", &format!("--url {url} --to 1h"));
    }
    it.webhook.send(bodies[2]).await;
    for (url, _, lines) in &mut reading {
        assert_eq!(next_line(lines).await["body"], bodies[2], "{url}");
    }
}
