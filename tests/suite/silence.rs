//! Silence: what is not there answers as late as what is. Requests of two kinds are interleaved at
//! random and their times compared by rank: the chance that one of the first kind took longer than
//! one of the second is a half, where nothing can be told.
//!
//! `LETTERBOX_TEST_SILENCE` sets how many requests of each kind are made.

use std::time::Instant;

use letterbox_common::sealing::{KeyRing, Place, Seal};
use letterbox_operator::{Closing, Move};
use letterbox_tests::{Form, Process, Proxy, World, sign};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

const REQUESTS: usize = 1_000;
/// Connections on which requests are made at once, one after the other on each.
const CONNECTIONS: usize = 4;
/// A chance may be so far from a half, where there are many of each kind.
const MOST: f64 = 0.03;

fn requests() -> usize {
    let given = std::env::var("LETTERBOX_TEST_SILENCE").ok();
    given.map_or(REQUESTS, |given| given.parse().unwrap())
}

/// Kinds of requests: a name, and the nth request of it.
type Kinds = Vec<(&'static str, Box<dyn Fn(usize) -> String + Send + Sync>)>;

/// The time of every request, so many of each kind; all answers have this status.
async fn measure(gateway: &Process, kinds: &Kinds, status: u16, requests: usize) -> Vec<Vec<f64>> {
    let mut times = vec![Vec::new(); kinds.len()];
    let each = requests / CONNECTIONS;
    let lines = (0..CONNECTIONS).map(|line| async move {
        let mut stream = TcpStream::connect(gateway.public_address()).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let mut order: Vec<usize> = (0..kinds.len()).flat_map(|kind| vec![kind; each]).collect();
        fastrand::shuffle(&mut order);
        let mut taken = Vec::new();
        for (number, kind) in order.into_iter().enumerate() {
            let request = kinds[kind].1(line * each * kinds.len() + number);
            let (mut answer, mut read) = ([0; 2_048], 0);
            let began = Instant::now();
            stream.write_all(request.as_bytes()).await.unwrap();
            while !answer[..read].ends_with(b"}") {
                read += stream.read(&mut answer[read..]).await.unwrap();
            }
            taken.push((kind, began.elapsed().as_secs_f64()));
            let head = format!("HTTP/1.1 {status} ");
            assert!(answer.starts_with(head.as_bytes()), "{}", kinds[kind].0);
        }
        taken
    });
    for (kind, time) in futures_util::future::join_all(lines).await.concat() {
        times[kind].push(time);
    }
    times
}

/// The chance that a time of the first kind is longer than one of the second.
fn longer(first: &[f64], second: &[f64]) -> f64 {
    let times = first.iter().map(|time| (*time, true));
    let mut all: Vec<_> = times
        .chain(second.iter().map(|time| (*time, false)))
        .collect();
    all.sort_by(|one, other| one.0.total_cmp(&other.0));
    let (mut shorter, mut wins) = (0_u64, 0_u64);
    for (_, is_first) in all {
        match is_first {
            true => wins += shorter,
            false => shorter += 1,
        }
    }
    wins as f64 / (first.len() * second.len()) as f64
}

fn median(times: &[f64]) -> f64 {
    let mut times = times.to_vec();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2] * 1e6
}

/// Every kind is like the first one.
fn assert_alike(kinds: &Kinds, times: &[Vec<f64>]) {
    let chances: Vec<f64> = times.iter().map(|one| longer(one, &times[0])).collect();
    for (((name, _), chance), times) in kinds.iter().zip(&chances).zip(times) {
        println!(
            "{name}: longer than {} {chance:.4}, median {:.1} us",
            kinds[0].0,
            median(times)
        );
    }
    // Five standard deviations of what chance does.
    let most = MOST.max(5.0 / (6.0 * times[0].len() as f64).sqrt());
    for ((name, _), chance) in kinds.iter().zip(&chances).skip(1) {
        assert!((chance - 0.5).abs() < most, "{name}: {chance}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_learns_which_webhooks_there_are() {
    let world = World::new().await;
    let database = Proxy::before(&world.database_url).await;
    let broker = Proxy::before(&world.amqp_url).await;
    let gateway = world
        .gateway_with(&[("DATABASE_URL", &database.url), ("AMQP_URL", &broker.url)])
        .await;
    let (used, unused) = (world.webhook(&gateway).await, world.webhook(&gateway).await);
    let (deleted, broken) = (world.webhook(&gateway).await, world.webhook(&gateway).await);
    assert!(used.send("1").await.is_first());
    assert!(deleted.send("1").await.is_first());
    world.delete_webhook(deleted.address.webhook).await;

    let post = |address: String| -> Box<dyn Fn(usize) -> String + Send + Sync> {
        let signature = sign("another secret", b"[1]");
        let request = format!(
            "POST /webhooks/incoming/{address} HTTP/1.1\r\nhost: x\r\n\
             content-type: application/json\r\nx-service-signature: {signature}\r\n\
             content-length: 3\r\n\r\n[1]"
        );
        Box::new(move |_| request.clone())
    };
    let foreign = format!("{}.{}", used.address.workspace, unused.address.webhook);
    let nobody = "b3b5c3a6-3f0a-4c7e-9d8c-0f5d2f6f7a11.0d6e0a50-6f3c-4c37-8a59-5a2f6d6b7c22";
    let kinds: Kinds = vec![
        ("unknown", post(nobody.to_owned())),
        ("in use", post(used.address.to_string())),
        ("never used", post(unused.address.to_string())),
        ("deleted", post(deleted.address.to_string())),
        ("of another workspace", post(foreign)),
    ];
    assert_alike(&kinds, &measure(&gateway, &kinds, 401, requests()).await);
    // While a server is away: fewer, so that only gross differences would be seen.
    broker.cut();
    let times = measure(&gateway, &kinds, 401, requests() / 10).await;
    assert_alike(&kinds, &times);
    database.cut();
    gateway.await_not_ready().await;
    let times = measure(&gateway, &kinds, 503, requests() / 50).await;
    assert_alike(&kinds, &times);
    database.pass();
    broker.pass();
    gateway.await_ready().await;

    // A key that a gateway lacks: nobody can be blamed, whatever is there.
    let lacked: KeyRing = format!("lacked:{}", "0123456789abcdef".repeat(4))
        .parse()
        .unwrap();
    let (workspace, webhook) = (broken.address.workspace, broken.address.webhook);
    let place = Place::WebhookSecret { workspace, webhook };
    let sealed = lacked.seal(place, b"a secret").unwrap();
    let reseal = "UPDATE webhooks SET secret_sealed = $2 WHERE webhook_id = $1";
    let values: [&(dyn tokio_postgres::types::ToSql + Sync); 2] = [&webhook, &sealed];
    world.database.execute(reseal, &values).await.unwrap();
    assert_eq!(broken.send("2").await.status, 503);
    for (name, request) in &kinds {
        let told = letterbox_tests::raw(&gateway.public_address(), request(0).as_bytes()).await;
        assert!(told.starts_with("HTTP/1.1 503 "), "{name}: {told}");
    }
    assert!(unused.send("2").await.is_first());
}

/// How a webhook is signed to takes no time by which it could be told, nor do headers that only its
/// tool reads, however long, and what tools ask.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_learns_the_tool_of_a_webhook() {
    let (world, gateway) = World::with_gateway().await;
    let usual = world.webhook(&gateway).await.address;
    let of = |tool: &str| {
        let order = format!("webhook create --workspace {} --name T", usual.workspace);
        let made = world.order(format!("{order} --tool {tool}"));
        let id = made["webhook_id"].as_str().unwrap().to_owned();
        format!("{}.{id}", usual.workspace)
    };
    let key = "58".to_owned() + &"66".repeat(31);
    let key = letterbox_tests::command_file(&format!("{}.key", usual.webhook), &key);
    let addresses = [
        ("of the usual tool", usual.to_string()),
        ("of one that signs in long headers", of("svix")),
        ("of one with SHA-512", of("paystack")),
        ("of one with SHA-1", of("vercel")),
        ("of one that asks", of("meta")),
        (
            "with a public key",
            of(&format!("discord --public-key-file {key}")),
        ),
    ];
    let now = jiff::Timestamp::now().as_second();
    let headers = format!(
        "svix-id: 1\r\nsvix-timestamp: {now}\r\nsvix-signature: {}\r\n\
         x-signature-timestamp: {now}\r\nx-signature-ed25519: {}\r\n",
        "v1,AAAA ".repeat(1_700).trim(),
        "01".repeat(64)
    );
    let body = format!("[{}1]", "1,".repeat(10_000));
    let post = |address: &String| -> Box<dyn Fn(usize) -> String + Send + Sync> {
        let request = format!(
            "POST /webhooks/incoming/{address} HTTP/1.1\r\nhost: x\r\n\
             content-type: application/json\r\n{headers}content-length: {}\r\n\r\n{body}",
            body.len()
        );
        Box::new(move |_| request.clone())
    };
    let get = |address: &String| -> Box<dyn Fn(usize) -> String + Send + Sync> {
        let request = format!(
            "GET /webhooks/incoming/{address}?hub.mode=subscribe&hub.challenge=1&\
             hub.verify_token={} HTTP/1.1\r\nhost: x\r\n\r\n",
            "0".repeat(64)
        );
        Box::new(move |_| request.clone())
    };
    // Another gateway: it has looked which algorithms there are.
    let gateway = world.gateway().await;
    for (_, address) in &addresses {
        let told = post(address)(0);
        letterbox_tests::raw(&gateway.public_address(), told.as_bytes()).await;
    }
    let posts: Kinds = addresses
        .iter()
        .map(|(name, address)| (*name, post(address)))
        .collect();
    let gets: Kinds = addresses
        .iter()
        .map(|(name, address)| (*name, get(address)))
        .collect();
    for kinds in [posts, gets] {
        let times = measure(&gateway, &kinds, 401, requests() / 5).await;
        assert_alike(&kinds, &times);
    }
}

/// A form that has taken the one answer that it takes.
async fn closed_form(world: &World, gateway: &Process) -> Form {
    let form = world.form(gateway).await;
    let closing = Closing {
        after_answers: Some(1),
        ..Closing::default()
    };
    let operator = world.operator().await;
    let link = operator.create_form_link(form.workflow, closing);
    let form = form.with_token(link.await.unwrap().token.expose());
    form.assert_accepts("k").await;
    form
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_learns_which_form_tokens_there_were() {
    let (world, gateway) = World::with_gateway().await;
    let (paused, replaced) = (world.form(&gateway).await, world.form(&gateway).await);
    world.move_workflow(paused.workflow, Move::Pause).await;
    world.relink(&replaced).await;
    let closed = closed_form(&world, &gateway).await;

    let read = |token: &str| -> Box<dyn Fn(usize) -> String + Send + Sync> {
        let path = format!("/public/workflow-forms/forms?token={token}");
        Box::new(move |number| {
            // A client of its own, so that none is limited.
            let [_, a, b, c] = (number as u32).to_be_bytes();
            let client = format!("10.{a}.{b}.{c}");
            format!("GET {path} HTTP/1.1\r\nhost: x\r\nx-forwarded-for: {client}\r\n\r\n")
        })
    };
    let kinds: Kinds = vec![
        ("unknown", read(&"0".repeat(64))),
        ("paused", read(&paused.token)),
        ("replaced", read(&replaced.token)),
        ("closed", read(&closed.token)),
        ("malformed", read("short")),
    ];
    assert_alike(&kinds, &measure(&gateway, &kinds, 404, requests()).await);
}

/// Whoever sends many wrong signatures is looked up apart from others, and answered alike.
#[tokio::test]
async fn a_flood_of_wrong_signatures_is_looked_up_apart() {
    let (_world, gateway, webhook) = World::with_webhook().await;
    let wrong = async |client: &str| {
        let request = letterbox_tests::http_client()
            .post(&webhook.url)
            .header("x-forwarded-for", client)
            .header("x-service-signature", "0".repeat(64))
            .body("1");
        request.send().await.unwrap().status().as_u16()
    };
    let apart = async || {
        let count = r#"letterbox_batch_size_count{batcher="suspect_webhook_secrets"}"#;
        gateway.metric(count).await
    };
    for _ in 0..60 {
        assert_eq!(wrong("203.0.113.7").await, 401);
    }
    assert_eq!(apart().await, 0.0);
    assert_eq!(wrong("203.0.113.7").await, 401);
    assert_eq!(apart().await, 1.0);
    assert_eq!(wrong("203.0.113.8").await, 401);
    assert_eq!(apart().await, 1.0, "another client");
    let signed = webhook.request("1");
    let signed = signed.header("x-forwarded-for", "203.0.113.7").send();
    assert_eq!(signed.await.unwrap().status(), 202);
}
