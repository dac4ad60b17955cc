//! What leads to nothing new: repeats, forgeries, unknown addresses, a client beyond its limit.

use std::time::Duration;

use crate::{
    arguments::Section,
    bench::{Bench, add_speed, measure},
    figures::{Measurement, Round},
    form_requests::{OneClient, Tokens},
    forms::forget_hits,
    load::{Load, Measured, Window},
    requests::{Forged, Repeated},
};

pub const REPEATS: &str = "repeats";
pub const BAD_SIGNATURES: &str = "bad signatures";
pub const UNKNOWN: &str = "unknown webhooks";
pub const LIMITED: &str = "a client known to be limited";
pub const BESIDE_LIMITED: &str = "one look-up, beside a limited client";
pub const BESIDE_FORGED: &str = "one look-up, beside bad signatures";
pub const CALLS: &str = "database calls, by the gateway's count";
pub const COMMITS: &str = "transactions, by the database's count";

const SECTION: Section = Section::Refusals;
const CONNECTIONS: usize = 256;
/// Bodies that are repeated.
const DISTINCT: u64 = 10_000;
/// More than a client may ask for in a minute.
const EXHAUSTING: u64 = 200;
const GATEWAY_CALLS: &str = "letterbox_statement_duration_seconds_count";
/// An idle session has told by then what it has done.
const IDLE_TOLD: Duration = Duration::from_millis(10_500);
/// A busy session has told by then what it did before.
const BUSY_TOLD: Duration = Duration::from_millis(1_200);

pub async fn run(bench: &Bench, tokens: &Tokens, round: &mut Round) {
    let first = bench.load(CONNECTIONS, Repeated::first(&bench.webhook, DISTINCT));
    prepare(&first, DISTINCT, &mut round.of(SECTION, REPEATS)).await;
    let again = bench.load(CONNECTIONS, Repeated::again(&bench.webhook, DISTINCT));
    refuse(bench, &again, round, REPEATS).await;
    bench.empty_queues().await;

    let forged = bench.load(CONNECTIONS, Forged::for_webhook(&bench.webhook));
    refuse(bench, &forged, round, BAD_SIGNATURES).await;
    look_up_beside(bench, &forged, round, BESIDE_FORGED).await;
    let unknown = bench.load(CONNECTIONS, Forged::for_nobody());
    refuse(bench, &unknown, round, UNKNOWN).await;

    forget_hits(bench).await;
    let client = OneClient::new(tokens.clone());
    let exhausting = bench.load(1, client.clone());
    prepare(&exhausting, EXHAUSTING, &mut round.of(SECTION, LIMITED)).await;
    tokio::time::sleep(IDLE_TOLD).await;
    let before = bench.commits().await;
    let limited = bench.load(CONNECTIONS, client.refused());
    let refused = refuse(bench, &limited, round, LIMITED).await;
    tokio::time::sleep(BUSY_TOLD).await;
    let commits = bench.commits().await - before;
    let mut into = round.of(SECTION, LIMITED);
    into.add(COMMITS, commits as f64 / refused.answered.max(1) as f64);
    look_up_beside(bench, &limited, round, BESIDE_LIMITED).await;
}

/// How long a sender waits whose webhook must be looked up, while others are refused.
async fn look_up_beside(bench: &Bench, others: &Load, round: &mut Round, name: &str) {
    let window = Window::from_now(bench.times);
    let others = others.start(window);
    let one = bench.load(1, Forged::for_nobody()).start(window);
    let (one, _) = (one.finish().await, others.finish().await);
    add_speed(&one, bench.times, &mut round.of(SECTION, name));
}

/// Brings about what is then measured.
async fn prepare(load: &Load, requests: u64, into: &mut Measurement<'_>) {
    let prepared = load.send_each(requests).await;
    for (what, times) in prepared.failures {
        into.failed(&format!("before, {what}"), times);
    }
}

async fn refuse(bench: &Bench, load: &Load, round: &mut Round, name: &str) -> Measured {
    let before = bench.gateway.metric(GATEWAY_CALLS).await;
    let mut into = round.of(SECTION, name);
    let refused = measure(load, bench.times, &bench.intake(), &mut into).await;
    let calls = bench.gateway.metric(GATEWAY_CALLS).await - before;
    into.add(CALLS, calls / refused.answered.max(1) as f64);
    refused
}
