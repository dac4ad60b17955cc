//! How much memory a gateway holds: idle, with thousands of idle connections, with a thousand large
//! bodies while the database says nothing, and with as many bodies that do not end as it takes
//! connections.

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use futures_util::{StreamExt, stream};
use letterbox_tests::{Process, Proxy};
use tokio::{
    io::AsyncWriteExt,
    net::{TcpSocket, TcpStream},
    task::JoinSet,
};

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

pub const SLOW: &str = "4,096 bodies of 65,535 bytes, all but their ends";

const SECTION: Section = Section::Memory;
const CONNECTIONS: usize = 5_000;
/// So many that the last is there before the first has been idle for too long.
const AT_ONCE: usize = 64;
const BODIES: usize = 1_000;
const BODY_BYTES: usize = 64 << 10;
/// As many connections as a gateway takes by default, from so many peers.
const SLOW_BODIES: usize = 4_096;
const PEERS: usize = 9;
const SLOW_BYTES: usize = 65_535;
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
    slow_bodies(bench, round).await;
}

/// Bodies of which all but the last bytes have come.
async fn slow_bodies(bench: &Bench, round: &mut Round) {
    let gateway = bench.gateway_with(&[]).await;
    let Ok(address) = gateway.public_address().parse() else {
        return;
    };
    let head = format!(
        "POST /webhooks/incoming/{} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n\
         content-length: {SLOW_BYTES}\r\n\r\n",
        bench.webhook.address
    );
    let begun = head + &"x".repeat(SLOW_BYTES - 500);
    let sending = (0..SLOW_BODIES).map(|number| slow_body(address, number % PEERS, &begun));
    let sent: Vec<_> = stream::iter(sending)
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    let open: Vec<TcpStream> = sent.into_iter().flatten().collect();
    add(round, SLOW, &gateway);
    let counted = gateway.metric("letterbox_connections").await as usize;
    let mut into = round.of(SECTION, SLOW);
    into.failed("not sent", (SLOW_BODIES - open.len()) as u64);
    into.failed("not connected", SLOW_BODIES.saturating_sub(counted) as u64);
}

/// Sends the beginning of a request from one of several addresses.
async fn slow_body(to: SocketAddr, peer: usize, begun: &str) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    let from = Ipv4Addr::new(127, 0, 1, peer as u8 + 1);
    socket.bind(SocketAddr::from((from, 0)))?;
    let mut stream = socket.connect(to).await?;
    stream.write_all(begun.as_bytes()).await?;
    Ok(stream)
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
