//! How much memory a gateway holds: idle, with thousands of idle connections, and with a thousand
//! large bodies while the database says nothing.

use std::{sync::Arc, time::Duration};

use letterbox_tests::{Process, Proxy};
use tokio::task::JoinSet;

use crate::{
    arguments::Section,
    bench::Bench,
    client::Client,
    cpu::Memory,
    figures::Round,
    load::Load,
    requests::{Requests, Signed},
};

pub const RESIDENT: &str = "MiB resident";
pub const PEAK: &str = "MiB resident at most";
pub const IDLE: &str = "fresh and idle";
pub const CONNECTED: &str = "5,000 idle connections";
pub const STALLED: &str = "1,000 bodies of 64 KiB, database frozen";

const SECTION: Section = Section::Memory;
const CONNECTIONS: usize = 5_000;
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
    let (mut open, mut failed) = (Vec::new(), 0);
    for _ in 0..CONNECTIONS {
        match connected(gateway, &signed).await {
            Ok(client) => open.push(client),
            Err(_) => failed += 1,
        }
    }
    tokio::time::sleep(REST).await;
    add(round, CONNECTED, gateway);
    let mut into = round.of(SECTION, CONNECTED);
    into.failed("not connected or not answered", failed);
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
    proxy.stall();

    let load = Load {
        address: gateway.public_address(),
        connections: BODIES,
        requests: Arc::new(Refused(Signed::new(&bench.webhook, BODY_BYTES))),
    };
    let mut sending = JoinSet::new();
    sending.spawn(async move { load.send_each(BODIES as u64).await });
    let mut most = Memory::default();
    let measured = loop {
        tokio::select! {
            Some(measured) = sending.join_next() => break measured.expect("it does not panic"),
            () = tokio::time::sleep(PAUSE) => {
                let now = Memory::of(gateway.pid());
                if now.resident > most.resident {
                    most = now;
                }
            }
        }
    };
    most.peak = Memory::of(gateway.pid()).peak;
    proxy.pass();
    let mut into = round.of(SECTION, STALLED);
    into.add(RESIDENT, most.resident);
    into.add(PEAK, most.peak);
    into.add("answers 503", measured.answered as f64);
    for (what, times) in &measured.failures {
        into.failed(what, *times);
    }
}

/// Signed events that can't be accepted now.
struct Refused(Signed);

impl Requests for Refused {
    fn write(&self, request: &mut Vec<u8>, body: &mut Vec<u8>) {
        self.0.write(request, body);
    }
    fn want(&self, answer: crate::client::Answer) -> bool {
        answer.status == 503
    }
}
