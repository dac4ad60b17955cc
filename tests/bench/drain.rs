//! What the worker does in a second with what has gathered: signals, and runs that send one request
//! each.

use std::time::{Duration, Instant};

use letterbox_broker::FormSubmission;
use letterbox_common::ids::RunId;
use letterbox_tests::{payload, post};
use serde_json::json;
use uuid::Uuid;

use crate::{
    arguments::Section,
    bare::Bare,
    bench::Bench,
    cpu::Watched,
    figures::{CPU_PEER, CPU_WORKER, PER_SECOND, Round},
    publishing::{Publishing, delivery, receipt},
    requests::event,
};

pub const SIGNALS: &str = "signals";
const RUNS: &str = "runs with one request each";

const SECTION: Section = Section::Drain;
/// So many that a worker needs seconds, and so few that five rounds do not take all day.
const NUMBER_OF_SIGNALS: usize = 100_000;
const NUMBER_OF_RUNS: usize = 5_000;
const CHANNELS: u16 = 4;
const PATIENCE: Duration = Duration::from_secs(300);
const PAUSE: Duration = Duration::from_millis(10);

/// What a worker shall bring to its end.
struct Task<'a> {
    name: &'static str,
    number: usize,
    /// Counts what is done.
    metric: &'static str,
    /// Counts what is there afterwards.
    query: &'static str,
    peer: Option<&'a Bare>,
}

pub async fn run(bench: &Bench, round: &mut Round) {
    let publishing = Publishing::start(&bench.world, CHANNELS).await;
    let address = bench.webhook.address;
    let entry = || (delivery(address), event());
    bench.sql("TRUNCATE signals").await;
    let lost = publishing
        .publish_all(&bench.world, NUMBER_OF_SIGNALS, entry)
        .await;
    round.of(SECTION, SIGNALS).failed("not published", lost);
    let signals = Task {
        name: SIGNALS,
        number: NUMBER_OF_SIGNALS,
        metric: "letterbox_signals_total",
        query: "SELECT count(*) FROM signals",
        peer: None,
    };
    drain(bench, round, &signals).await;

    let peer = Bare::start(200).await;
    let lost = publish_runs(bench, &publishing, &peer).await;
    round.of(SECTION, RUNS).failed("not published", lost);
    let runs = Task {
        name: RUNS,
        number: NUMBER_OF_RUNS,
        metric: "letterbox_runs_finished_total",
        query: "SELECT count(*) FROM runs WHERE state = 'succeeded'",
        peer: Some(&peer),
    };
    drain(bench, round, &runs).await;
    publishing.end().await;
    peer.end().await;
}

/// Submissions of a form whose workflow sends one request to the peer; how many were lost.
async fn publish_runs(bench: &Bench, publishing: &Publishing, peer: &Bare) -> u64 {
    let (url, actions) = (
        format!("http://{}", peer.address),
        json!([post("requests")]),
    );
    let form = bench.world.acting_form(&bench.gateway, &url, actions).await;
    bench
        .sql("TRUNCATE run_wakes, approvals, run_actions, runs")
        .await;
    let workflow = Uuid::from_bytes(*form.workflow.as_bytes());
    let query = "SELECT release_id::text FROM releases WHERE workflow_id = $1";
    let release = bench
        .world
        .database
        .query_one(query, &[&workflow])
        .await
        .expect(query);
    let release = release.get::<_, String>(0).parse().expect("an id");
    let payload = bytes::Bytes::from(payload().to_string());
    let entry = || {
        let submission = FormSubmission {
            run: RunId::generate(),
            workspace: form.workspace,
            workflow: form.workflow,
            release,
            key: None,
            receipt: receipt(),
        };
        (submission, payload.clone())
    };
    publishing
        .publish_all(&bench.world, NUMBER_OF_RUNS, entry)
        .await
}

/// Starts a worker, and measures from the moment in which it has begun.
async fn drain(bench: &Bench, round: &mut Round, task: &Task<'_>) {
    let mut worker = bench.worker().await;
    let watched = bench.servers().with_process(CPU_WORKER, worker.pid());
    let watched = match task.peer {
        Some(peer) => watched.with_process(CPU_PEER, peer.pid()),
        None => watched,
    };
    let done = async || worker.metric(task.metric).await;
    let deadline = Instant::now() + PATIENCE;
    let begun = reach(&done, 1.0, deadline, &watched).await;
    let ended = reach(&done, task.number as f64, deadline, &watched).await;
    worker.terminate();
    worker.ended().await;

    let events = ended.done - begun.done;
    let mut into = round.of(SECTION, task.name);
    into.add(PER_SECOND, events / (ended.at - begun.at).as_secs_f64());
    ended.used.since(&begun.used).add_to(&mut into, events);
    let there = bench.world.count(task.query).await as u64;
    into.failed(
        "not there in the end",
        (task.number as u64).saturating_sub(there),
    );
    bench.empty_queues().await;
}

/// A moment of a worker's work.
struct Reached {
    at: Instant,
    done: f64,
    used: crate::cpu::Used,
}

/// Waits until so much is done, or the deadline.
async fn reach(
    done: &impl AsyncFn() -> f64,
    wanted: f64,
    deadline: Instant,
    watched: &Watched,
) -> Reached {
    loop {
        let now = done().await;
        if now >= wanted || Instant::now() > deadline {
            return Reached {
                at: Instant::now(),
                done: now,
                used: watched.sample(),
            };
        }
        tokio::time::sleep(PAUSE).await;
    }
}
