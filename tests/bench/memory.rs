//! How much memory a gateway holds: idle, with thousands of idle connections, and with a thousand
//! large bodies while the database says nothing.

use std::{collections::BTreeMap, time::Duration};

use futures_util::{StreamExt, stream};
use letterbox_tests::{Process, Proxy};
use tokio::task::JoinSet;

use crate::{
    arguments::Section,
    bench::Bench,
    client::Client,
    cpu::Memory,
    figures::Round,
    requests::{Requests, Signed},
};

pub const RESIDENT: &str = "MiB resident";
pub const PEAK: &str = "MiB resident at most";
pub const IDLE: &str = "fresh and idle";
pub const CONNECTED: &str = "5,000 idle connections";
pub const STALLED: &str = "1,000 bodies of 64 KiB, database frozen";

const SECTION: Section = Section::Memory;
const CONNECTIONS: usize = 5_000;
/// So many that the last is there before the first has been idle for too long.
const AT_ONCE: usize = 64;
const BODIES: usize = 1_000;
const BODY_BYTES: usize = 64 << 10;
/// What was set free has been given back by then.
const REST: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(10);

pub async fn run(bench: &Bench, round: &mut Round) {
    let settings = [("LETTERBOX_MAX_CONNECTIONS", "6000")];
    let gateway = bench.gateway_with(&settings).await;
    tokio::time::sleep(REST).await;
    add(round, IDLE, &gateway);
    connections(bench, &gateway, round).await;
    drop(gateway);
    bodies(bench, round).await;
    bench.empty_queues().await;
}

fn add(round: &mut Round, name: &str, gateway: &Process) {
    let memory = Memory::of(gateway.pid());
    let mut into = round.of(SECTION, name);
    into.add(RESIDENT, memory.resident);
    into.add(PEAK, memory.peak);
}

/// Each connection has sent one event before it rests.
async fn connections(bench: &Bench, gateway: &Process, round: &mut Round) {
    let signed = Signed::new(&bench.webhook, 0);
    let connecting = (0..CONNECTIONS).map(|_| connected(gateway, &signed));
    let connected = stream::iter(connecting).buffer_unordered(AT_ONCE);
    let connected: Vec<_> = connected.collect().await;
    let open: Vec<Client> = connected.into_iter().flatten().collect();
    tokio::time::sleep(REST).await;
    add(round, CONNECTED, gateway);
    let mut into = round.of(SECTION, CONNECTED);
    into.failed(
        "not connected or not answered",
        (CONNECTIONS - open.len()) as u64,
    );
    let counted = gateway.metric("letterbox_connections").await;
    into.failed(
        "no longer connected",
        (open.len() as f64 - counted).max(0.0) as u64,
    );
}

async fn connected(gateway: &Process, signed: &Signed) -> std::io::Result<Client> {
    let mut client = Client::connect(&gateway.public_address()).await?;
    let mut request = Vec::new();
    signed.write(&mut request, &mut Vec::new());
    let answer = client.exchange(&request).await?;
    let wanted = signed.want(answer);
    wanted
        .then_some(client)
        .ok_or_else(|| std::io::ErrorKind::Other.into())
}

/// The gateway knows the webhook before the database falls silent, so that signatures are right and
/// every body comes as far as it can.
async fn bodies(bench: &Bench, round: &mut Round) {
    let proxy = Proxy::before(&bench.world.database_url).await;
    let gateway = bench.gateway_with(&[("DATABASE_URL", &proxy.url)]).await;
    let known = connected(&gateway, &Signed::new(&bench.webhook, 0)).await;
    known.expect("the first event is accepted");
    let mut clients = Vec::new();
    for _ in 0..BODIES {
        let client = Client::connect(&gateway.public_address()).await;
        clients.push(client.expect("a connection"));
    }
    proxy.stall();

    let signed = Signed::new(&bench.webhook, BODY_BYTES);
    let mut sending = JoinSet::new();
    for mut client in clients {
        let mut request = Vec::new();
        signed.write(&mut request, &mut Vec::new());
        sending.spawn(async move {
            let answer = client.exchange(&request).await;
            answer.map_or_else(|error| error.kind().to_string(), |it| it.status.to_string())
        });
    }
    let (mut resident, mut answers) = (0.0_f64, BTreeMap::<String, u64>::new());
    loop {
        tokio::select! {
            answer = sending.join_next() => match answer {
                Some(answer) => *answers.entry(answer.expect("no panic")).or_default() += 1,
                None => break,
            },
            () = tokio::time::sleep(PAUSE) => {}
        }
        resident = resident.max(Memory::of(gateway.pid()).resident);
    }
    proxy.pass();
    let mut into = round.of(SECTION, STALLED);
    into.add(RESIDENT, resident);
    into.add(PEAK, Memory::of(gateway.pid()).peak);
    into.add(
        "answers 503",
        answers.remove("503").unwrap_or_default() as f64,
    );
    for (answer, times) in answers {
        into.failed(&format!("other answer, {answer}"), times);
    }
}
