//! The benchmark: how much of what the parts can do alone the whole can do, all measured in one run
//! by one load generator.
//!
//! H, B and C are bare hyper, confirmed publishing, and claiming with settling, each alone with 256
//! callers. If every event passed them one after the other on a machine that is busy all the time,
//! A = 1/(1/H + 1/B + 1/C) events a second would be the most; signed intake is measured against
//! that. All of it is measured several times over, because a machine's speed drifts. Run it with
//! `deploy/bench`.

mod load;
mod parts;
mod report;

use std::time::Duration;

use letterbox_tests::{Process, Webhook, World};
use report::{Intake, Report, Round};

/// How long each measurement lasts, after a warm-up.
const WARM_UP: Duration = Duration::from_secs(1);
const MEASURE: Duration = Duration::from_secs(5);
/// An odd number: there is a median.
const ROUNDS: usize = 5;
const CALLERS: usize = 256;

#[tokio::main]
async fn main() {
    if std::env::args().nth(1).as_deref() == Some("bare-hyper") {
        return parts::bare_hyper().await;
    }
    let setting = |name: &str| {
        std::env::var(name).unwrap_or_else(|_| panic!("{name} is missing: use deploy/bench"))
    };
    let world = World::on(setting("DATABASE_URL"), setting("AMQP_URL")).await;
    let gateway = world
        .gateway_with(&[("LETTERBOX_LOG", "warn,letterbox_common::process=info")])
        .await;
    let webhook = world.webhook(&gateway).await;

    let mut rounds = Vec::with_capacity(ROUNDS);
    for number in 1..=ROUNDS {
        eprintln!("round {number} of {ROUNDS}");
        rounds.push(round(&world, &gateway, &webhook).await);
    }
    let report = Report(rounds);
    report.print();
    report.write(&setting("LETTERBOX_BENCH_FILE"));
}

async fn round(world: &World, gateway: &Process, webhook: &Webhook) -> Round {
    let hyper = parts::hyper_alone(webhook).await;
    let publish = parts::publish_alone(world).await;
    parts::empty_queue(world).await;
    let claim = parts::claims_alone(world, webhook.address).await;
    let mut intakes = Vec::new();
    for connections in [1, 64, 256] {
        intakes.push(intake(gateway, webhook, connections).await);
        parts::empty_queue(world).await;
    }
    Round {
        hyper,
        publish,
        claim,
        intakes,
    }
}

async fn intake(gateway: &Process, webhook: &Webhook, connections: usize) -> Intake {
    let address = gateway.public_address();
    load::run(&address, webhook, connections, WARM_UP).await;
    let before = cpu_seconds(gateway.pid());
    let measured = load::run(&address, webhook, connections, MEASURE).await;
    let cpu = cpu_seconds(gateway.pid()) - before;
    Intake {
        connections,
        measured,
        cpu_seconds: cpu,
    }
}

/// Processor time of a process so far, user and system, in seconds.
fn cpu_seconds(pid: u32) -> f64 {
    const TICKS_A_SECOND: f64 = 100.0;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("the gateway runs");
    // Fields are counted behind the program's name, which may hold anything.
    let fields: Vec<&str> = stat
        .rsplit(") ")
        .next()
        .unwrap_or_default()
        .split(' ')
        .collect();
    let ticks = |index: usize| fields[index].parse::<f64>().unwrap_or_default();
    (ticks(11) + ticks(12)) / TICKS_A_SECOND
}
