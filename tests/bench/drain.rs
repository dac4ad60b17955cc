//! What the worker does in a second with what has gathered: signals, and runs of four kinds.

use std::time::{Duration, Instant};

use letterbox_common::ids::ReleaseId;
use letterbox_tests::{Form, Process, agent, delivery_to, payload, post, submission_to};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::{
    arguments::Section,
    bare::Bare,
    bench::Bench,
    cpu::Watched,
    figures::{CPU_PEER, CPU_SECOND_WORKER, CPU_WORKER, PER_SECOND, Round},
    jobs,
    publishing::Publishing,
    requests::event,
};

pub const SIGNALS: &str = "signals";
pub const ONE_ACCOUNT: &str = "runs with one request each, to one account";
pub const EIGHT_ACCOUNTS: &str = "runs with one request each, to eight accounts";
pub const TWO_WORKERS: &str = "the same, by two workers";
pub const FIVE_ACTIONS: &str = "runs with five actions each";
pub const AGENTS: &str = "agents of five steps";

const SECTION: Section = Section::Drain;
/// So many that a worker needs seconds, and so few that five rounds do not take all day.
const NUMBER_OF_SIGNALS: usize = 100_000;
const NUMBER_OF_RUNS: usize = 8_000;
/// Each waits for a second.
const NUMBER_OF_LONG_RUNS: usize = 16_000;
const NUMBER_OF_AGENTS: usize = 1_600;
const CHANNELS: u16 = 4;
const PATIENCE: Duration = Duration::from_secs(300);
const PAUSE: Duration = Duration::from_millis(10);

/// What workers shall bring to its end.
struct Task<'a> {
    name: &'static str,
    number: usize,
    workers: usize,
    /// Counts what is done.
    metric: &'static str,
    /// Counts what is there afterwards.
    query: &'static str,
    peer: Option<&'a Bare>,
}

/// Runs of one kind.
struct Kind {
    name: &'static str,
    actions: Value,
    number: usize,
    accounts: usize,
    workers: usize,
}

pub async fn run(bench: &Bench, round: &mut Round) {
    let publishing = Publishing::start(&bench.world, CHANNELS).await;
    bench.sql("TRUNCATE signals").await;
    signals(bench, &publishing, round).await;

    let five = json!([
        post("first"),
        {"id": "if", "type": "condition", "if": "form.name != ''", "then": [post("second")]},
        {"id": "later", "type": "delay", "for": "PT1S"},
        post("last"),
    ]);
    let one = json!([post("requests")]);
    let kind = |name, actions: &Value, number, accounts, workers| Kind {
        name,
        actions: actions.clone(),
        number,
        accounts,
        workers,
    };
    for kind in [
        kind(ONE_ACCOUNT, &one, NUMBER_OF_RUNS, 1, 1),
        kind(EIGHT_ACCOUNTS, &one, NUMBER_OF_RUNS, 8, 1),
        kind(TWO_WORKERS, &one, NUMBER_OF_RUNS, 8, 2),
        kind(FIVE_ACTIONS, &five, NUMBER_OF_LONG_RUNS, 8, 1),
        kind(AGENTS, &json!([agent()]), NUMBER_OF_AGENTS, 8, 1),
    ] {
        let is_like_theirs = kind.name == EIGHT_ACCOUNTS;
        runs(bench, &publishing, kind, round).await;
        if let Some(program) = bench.jobs.as_deref().filter(|_| is_like_theirs) {
            jobs::run(bench, program, NUMBER_OF_RUNS, round).await;
        }
    }
    publishing.end().await;
}

async fn signals(bench: &Bench, publishing: &Publishing, round: &mut Round) {
    let address = bench.webhook.address;
    let entry = || (delivery_to(address), event());
    let lost = publishing
        .publish_all(&bench.world, NUMBER_OF_SIGNALS, entry)
        .await;
    round.of(SECTION, SIGNALS).failed("not published", lost);
    let signals = Task {
        name: SIGNALS,
        number: NUMBER_OF_SIGNALS,
        workers: 1,
        metric: "letterbox_signals_total",
        query: "SELECT count(*) FROM signals",
        peer: None,
    };
    drain(bench, round, &signals).await;
}

async fn runs(bench: &Bench, publishing: &Publishing, kind: Kind, round: &mut Round) {
    let peer = Bare::start(200).await;
    let mut lost = 0;
    for form in forms(bench, &peer, &kind.actions, kind.accounts).await {
        lost += publish_runs(bench, publishing, &form, kind.number / kind.accounts).await;
    }
    round.of(SECTION, kind.name).failed("not published", lost);
    let task = Task {
        name: kind.name,
        number: kind.number,
        workers: kind.workers,
        metric: "letterbox_runs_finished_total",
        query: "SELECT count(*) FROM runs WHERE state = 'succeeded'",
        peer: Some(&peer),
    };
    drain(bench, round, &task).await;
    peer.end().await;
}

/// Forms with these actions, each of a workspace of its own with an account of its own, whose tools
/// may be called without asking.
pub async fn forms(bench: &Bench, peer: &Bare, actions: &Value, number: usize) -> Vec<Form> {
    let url = format!("http://{}", peer.address);
    let operator = bench.world.operator().await;
    let policy = json!({"default": "allow", "rules": [
        {"when": {"untrusted": "control", "steered_by": "ai.agent"}, "decision": "allow"},
    ]});
    let policy = policy.to_string();
    let mut forms = Vec::new();
    for _ in 0..number {
        let form = bench
            .world
            .acting_form(&bench.gateway, &url, actions.clone())
            .await;
        let setting = operator.set_policy(form.workspace, &policy);
        setting.await.expect("a policy");
        forms.push(form);
    }
    forms
}

/// Submits to a form so often; how many were lost.
async fn publish_runs(bench: &Bench, publishing: &Publishing, form: &Form, number: usize) -> u64 {
    let workflow = Uuid::from_bytes(*form.workflow.as_bytes());
    let query = "SELECT release_id::text FROM releases WHERE workflow_id = $1";
    let release = bench.world.database.query_one(query, &[&workflow]).await;
    let release: String = release.expect(query).get(0);
    let release: ReleaseId = release.parse().expect("an id");
    let payload = bytes::Bytes::from(payload().to_string());
    let entry = || (submission_to(form, release), payload.clone());
    publishing.publish_all(&bench.world, number, entry).await
}

/// Starts workers, and measures from the moment in which one has begun.
async fn drain(bench: &Bench, round: &mut Round, task: &Task<'_>) {
    let before = bench.world.count(task.query).await;
    let mut workers = Vec::new();
    for _ in 0..task.workers {
        workers.push(bench.worker().await);
    }
    let servers = bench.servers();
    let names = [CPU_WORKER, CPU_SECOND_WORKER];
    let watched = names
        .iter()
        .zip(&workers)
        .fold(servers, |watched, (name, worker): (_, &Process)| {
            watched.with_process(name, worker.pid())
        });
    let watched = match task.peer {
        Some(peer) => watched.with_process(CPU_PEER, peer.pid()),
        None => watched,
    };
    let done = async || {
        let mut done = 0.0;
        for worker in &workers {
            done += worker.metric(task.metric).await;
        }
        done
    };
    let deadline = Instant::now() + PATIENCE;
    let begun = reach(&done, 1.0, deadline, &watched).await;
    let ended = reach(&done, task.number as f64, deadline, &watched).await;
    for worker in &mut workers {
        worker.terminate();
    }
    for worker in &mut workers {
        worker.ended().await;
    }

    let events = ended.done - begun.done;
    let mut into = round.of(SECTION, task.name);
    into.add(PER_SECOND, events / (ended.at - begun.at).as_secs_f64());
    ended.used.since(&begun.used).add_to(&mut into, events);
    let there = (bench.world.count(task.query).await - before) as u64;
    into.failed(
        "not there in the end",
        (task.number as u64).saturating_sub(there),
    );
    bench.empty_queues().await;
}

/// A moment of a worker's work.
pub struct Reached {
    pub at: Instant,
    pub done: f64,
    used: crate::cpu::Used,
}

/// Waits until so much is done, or the deadline.
pub async fn reach(
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
        // Each question costs the worker: fewer of them as long as much is left.
        let left = (wanted - now).clamp(0.0, 1_000.0) / 1_000.0;
        tokio::time::sleep(PAUSE.mul_f64(1.0 + 9.0 * left)).await;
    }
}
