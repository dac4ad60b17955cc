//! What every section works with: the world, its gateway, one webhook, and how a load is measured.

use std::{path::PathBuf, sync::Arc};

use lapin::Channel;
use letterbox_broker::topology::work_queues;
use letterbox_tests::{Process, Webhook, World};

use crate::{
    arguments::Arguments,
    cpu::Watched,
    figures::{
        CPU_GATEWAY, CPU_POSTGRES, CPU_RABBITMQ, CPU_WORKER, Measurement, P50, P99, P999,
        PER_SECOND,
    },
    load::{Load, Measured, Times, Window},
    requests::Requests,
};

/// Nothing is logged but where a process listens, which the harness reads.
const QUIET: (&str, &str) = ("LETTERBOX_LOG", "warn,letterbox_common::process=info");

/// What grows while the benchmark runs.
const GROWING: &str =
    "webhook_deliveries, form_submissions, open_batches, rate_limits, signals, run_usage";
const OF_RUNS: &str = "approvals, run_actions, active_runs, runs";

pub struct Bench {
    pub world: World,
    pub gateway: Process,
    pub webhook: Webhook,
    pub times: Times,
    /// The program with the job runners of others, if they are wanted.
    pub jobs: Option<PathBuf>,
    postgres_pid: u32,
    rabbitmq_pid: u32,
    channel: Channel,
}

impl Bench {
    pub async fn new(arguments: &Arguments) -> Self {
        let needed = "is missing: use deploy/bench";
        let database_url = arguments.database_url.clone();
        let amqp_url = arguments.amqp_url.clone();
        let world = World::on(
            database_url.unwrap_or_else(|| panic!("DATABASE_URL {needed}")),
            amqp_url.unwrap_or_else(|| panic!("AMQP_URL {needed}")),
        )
        .await;
        let gateway = world.gateway_with(&[QUIET]).await;
        let webhook = world.webhook(&gateway).await;
        let channel = world.broker().await.create_channel().await;
        Self {
            gateway,
            webhook,
            times: arguments.times(),
            jobs: arguments.jobs.clone().filter(|_| arguments.peers),
            postgres_pid: arguments.postgres_pid,
            rabbitmq_pid: arguments.rabbitmq_pid,
            channel: channel.expect("a channel"),
            world,
        }
    }

    /// A worker that is ready.
    pub async fn worker(&self) -> Process {
        self.world.worker_with(&[QUIET]).await
    }

    /// The servers, and this process.
    pub fn servers(&self) -> Watched {
        Watched::default()
            .with_process(CPU_RABBITMQ, self.rabbitmq_pid)
            .with_family(CPU_POSTGRES, self.postgres_pid)
    }

    /// The servers, the gateway and this process.
    pub fn intake(&self) -> Watched {
        self.servers().with_process(CPU_GATEWAY, self.gateway.pid())
    }

    /// The same with a worker.
    pub fn intake_and(&self, worker: &Process) -> Watched {
        self.servers()
            .with_process(CPU_WORKER, worker.pid())
            .with_process(CPU_GATEWAY, self.gateway.pid())
    }

    /// Requests to the gateway.
    pub fn load(&self, connections: usize, requests: impl Requests + 'static) -> Load {
        Load {
            address: self.gateway.public_address(),
            connections,
            requests: Arc::new(requests),
        }
    }

    /// Throws away what has been published, so that every measurement finds empty queues.
    pub async fn empty_queues(&self) {
        for queue in work_queues(1) {
            let purged = self
                .channel
                .queue_purge(queue.name.into(), Default::default());
            purged.await.expect("purged");
        }
    }

    /// Makes every round find the same: empty tables, empty queues, a fresh checkpoint. Runs stay,
    /// as they do for months elsewhere: where PostgreSQL has seen none, it plans for none.
    pub async fn start_over(&self) {
        self.empty_queues().await;
        self.sql(&format!("TRUNCATE {GROWING}")).await;
        self.sql("CHECKPOINT").await;
    }

    /// As much, and makes it find no runs.
    pub async fn start_without_runs(&self) {
        self.sql(&format!("TRUNCATE {OF_RUNS}")).await;
        self.start_over().await;
    }

    /// Runs one statement on the database, as its owner.
    pub async fn sql(&self, statement: &str) {
        let done = self.world.database.batch_execute(statement).await;
        done.unwrap_or_else(|error| panic!("{statement}: {error}"));
    }

    /// The transactions that the database has seen.
    pub async fn commits(&self) -> i64 {
        let query = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()";
        self.world.count(query).await
    }
}

/// Measures a load: how much of it is answered in a second, how fast, and what that costs.
pub async fn measure(
    load: &Load,
    times: Times,
    watched: &Watched,
    into: &mut Measurement<'_>,
) -> Measured {
    let window = Window::from_now(times);
    let running = load.start(window);
    let used = watched.used_in(window).await;
    let measured = running.finish().await;
    add_speed(&measured, times, into);
    used.add_to(into, measured.latencies.len() as f64);
    measured
}

/// Adds how much was answered in a second, how fast, and what was not.
pub fn add_speed(measured: &Measured, times: Times, into: &mut Measurement<'_>) {
    let rate = measured.latencies.len() as f64 / times.measure.as_secs_f64();
    into.add(PER_SECOND, rate);
    if rate > 0.0 {
        for (name, quantile) in [(P50, 0.5), (P99, 0.99), (P999, 0.999)] {
            into.add(name, measured.quantile(quantile).as_secs_f64() * 1e3);
        }
    }
    for (what, times) in &measured.failures {
        into.failed(what, *times);
    }
}
