//! Signed intake: with the worker stopped, and with a worker that keeps up or does not.

use std::time::{Duration, Instant};

use letterbox_tests::Process;

use crate::{
    arguments::Section,
    bench::{Bench, add_speed, measure},
    figures::{PER_SECOND, Round},
    limits::BOUND,
    load::Window,
    requests::Signed,
};

pub const OF_BOUND: &str = "of A1";
pub const BACKLOG: &str = "events behind at the end";
pub const SECONDS_BEHIND: &str = "seconds until none is";

const SECTION: Section = Section::Intake;
/// Events stored, as the worker counts them.
const STORED: [&str; 2] = [
    "letterbox_signals_total",
    "letterbox_signals_repeated_total",
];
const PATIENCE: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(20);

/// Name of a measurement.
pub fn stopped(connections: usize) -> String {
    let ending = if connections == 1 { "" } else { "s" };
    format!("{connections} connection{ending}, worker stopped")
}

/// Name of a measurement.
pub fn running(connections: usize) -> String {
    format!("{connections} connections, worker running")
}

pub async fn run(bench: &Bench, round: &mut Round) {
    for connections in [1, 8, 64, 256] {
        let load = bench.load(connections, Signed::new(&bench.webhook, 0));
        let mut into = round.of(SECTION, stopped(connections));
        measure(&load, bench.times, &bench.intake(), &mut into).await;
        of_bound(round, &stopped(connections));
        bench.empty_queues().await;
    }
    for connections in [64, 256] {
        with_worker(bench, round, connections).await;
    }
}

/// The cost is that of all events until the last one is stored, those of the warm-up included.
async fn with_worker(bench: &Bench, round: &mut Round, connections: usize) {
    let mut worker = bench.worker().await;
    let watched = bench.intake_and(&worker);
    let before = watched.sample();
    let load = bench.load(connections, Signed::new(&bench.webhook, 0));
    let measured = load.start(Window::from_now(bench.times)).finish().await;
    let ended = Instant::now();
    let accepted = measured.answered as f64;
    let behind = accepted - stored(&worker).await;
    let mut left = behind;
    while left > 0.0 && ended.elapsed() < PATIENCE {
        tokio::time::sleep(PAUSE).await;
        left = accepted - stored(&worker).await;
    }
    let seconds = ended.elapsed().as_secs_f64();
    let used = watched.sample().since(&before);
    let mut into = round.of(SECTION, running(connections));
    add_speed(&measured, bench.times, &mut into);
    into.add(BACKLOG, behind.max(0.0));
    into.add(SECONDS_BEHIND, if behind > 0.0 { seconds } else { 0.0 });
    into.failed("not stored", left.max(0.0) as u64);
    used.add_to(&mut into, accepted);
    of_bound(round, &running(connections));
    worker.terminate();
    worker.ended().await;
    bench.empty_queues().await;
}

async fn stored(worker: &Process) -> f64 {
    let [first, repeated] = STORED;
    worker.metric(first).await + worker.metric(repeated).await
}

fn of_bound(round: &mut Round, measurement: &str) {
    let rate = round.get(SECTION, measurement, PER_SECOND);
    let bound = round.get(Section::Limits, BOUND, PER_SECOND);
    if let (Some(rate), Some(bound)) = (rate, bound) {
        round.of(SECTION, measurement).add(OF_BOUND, rate / bound);
    }
}
