//! The parts alone: bare hyper, confirmed publishing, claims with settling; and what one sender
//! alone has to wait for at least.
//!
//! If every event passed the parts one after the other, on a machine that is busy all the time,
//! with a message for each, A1 = 1/(1/H + 1/B1 + 1/C) events a second would be the most.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use letterbox_common::webhook::WebhookAddress;
use letterbox_database::{Database, DatabaseSettings, Role};
use letterbox_gateway::{
    claims::{Claims, DeliveryKey},
    open_batches::{BatchId, Settlements},
};
use letterbox_tests::{World, delivery_to};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::{
    arguments::Section,
    bare::Bare,
    bench::{Bench, add_speed, measure},
    cpu::Watched,
    figures::{CPU_HYPER, P50, PER_SECOND, Round},
    load::{Load, Measured, Window},
    publishing::{Publishing, publish},
    requests::{Signed, event},
};

pub const HYPER: &str = "H   bare hyper answering 202";
const PUBLISH: &str = "B1  confirmed messages of one event";
const CLAIM: &str = "C   claims, settled";
pub const BOUND: &str = "A1  1/(1/H + 1/B1 + 1/C)";
pub const SENDER: &str = "S   claim, publish, settle in turn";

const SECTION: Section = Section::Limits;
const CALLERS: usize = 256;
/// Statements that claim at once, as in a gateway.
const LANES: usize = 2;
const CHANNELS: u16 = 4;
const LEASE: Duration = Duration::from_secs(15);

pub async fn run(bench: &Bench, round: &mut Round) {
    hyper(bench, round).await;
    let publishing = Publishing::start(&bench.world, CHANNELS).await;
    messages(bench, &publishing, round).await;
    claims(bench, round).await;
    let rate = |measurement| round.get(SECTION, measurement, PER_SECOND).unwrap_or(0.0);
    let parts = [HYPER, PUBLISH, CLAIM].map(|part| 1.0 / rate(part));
    let bound = 1.0 / parts.iter().sum::<f64>();
    round.of(SECTION, BOUND).add(PER_SECOND, bound);
    sender(bench, &publishing, round).await;
    publishing.end().await;
    bench.empty_queues().await;
}

/// The same requests as in intake.
async fn hyper(bench: &Bench, round: &mut Round) {
    let bare = Bare::start(202).await;
    let load = Load {
        address: bare.address.clone(),
        ..bench.load(CALLERS, Signed::new(&bench.webhook, 0))
    };
    let watched = Watched::default().with_process(CPU_HYPER, bare.pid());
    measure(&load, bench.times, &watched, &mut round.of(SECTION, HYPER)).await;
    bare.end().await;
}

async fn messages(bench: &Bench, publishing: &Publishing, round: &mut Round) {
    let (publisher, address) = (publishing.publisher.clone(), bench.webhook.address);
    let step = move || publish(&publisher, &[(delivery_to(address), event())]);
    repeat(bench, CALLERS, 1, step, round, PUBLISH).await;
    bench.empty_queues().await;
}

async fn claims(bench: &Bench, round: &mut Round) {
    let (address, batch) = (bench.webhook.address, CALLERS / LANES);
    let claiming = Claiming::new(&bench.world);
    let step = move || claiming.clone().claim_and_confirm(address, batch);
    repeat(bench, LANES, batch, step, round, CLAIM).await;
}

/// Runs `callers` loops of `step`, each of which does `worth` events or fails.
async fn repeat<F: Future<Output = bool> + Send + 'static>(
    bench: &Bench,
    callers: usize,
    worth: usize,
    step: impl Fn() -> F + Clone + Send + 'static,
    round: &mut Round,
    measurement: &str,
) {
    let window = Window::from_now(bench.times);
    let mut running = JoinSet::new();
    for _ in 0..callers {
        let step = step.clone();
        running.spawn(async move {
            let (mut done, mut failed) = (0, 0);
            loop {
                let began = Instant::now();
                if began >= window.until {
                    return (done, failed);
                }
                match step().await {
                    true => done += usize::from(began >= window.from),
                    false => failed += 1,
                }
            }
        });
    }
    let used = bench.servers().used_in(window).await;
    let steps = running.join_all().await.into_iter();
    let (done, failed) = steps.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    let mut into = round.of(SECTION, measurement);
    into.failed("not done", failed);
    let events = (done * worth) as f64;
    into.add(PER_SECOND, events / bench.times.measure.as_secs_f64());
    used.add_to(&mut into, events);
}

/// One caller who does everything in turn.
async fn sender(bench: &Bench, publishing: &Publishing, round: &mut Round) {
    let (claiming, address) = (Claiming::new(&bench.world), bench.webhook.address);
    let window = Window::from_now(bench.times);
    let mut steps: [Measured; 3] = Default::default();
    let (mut whole, mut failed) = (Measured::default(), 0);
    loop {
        let began = Instant::now();
        if began >= window.until {
            break;
        }
        let batch = claiming.claim(address, 1).await;
        let claimed = Instant::now();
        let entry = (delivery_to(address), event());
        let confirmed = publish(&publishing.publisher, &[entry]).await;
        let published = Instant::now();
        let (Some(batch), true) = (batch, confirmed) else {
            failed += 1;
            continue;
        };
        claiming.settle(batch).await;
        if began >= window.from {
            let durations = [claimed - began, published - claimed, published.elapsed()];
            for (step, duration) in steps.iter_mut().zip(durations) {
                step.latencies.push(duration);
            }
            whole.latencies.push(began.elapsed());
        }
    }
    let mut into = round.of(SECTION, SENDER);
    whole.latencies.sort_unstable();
    add_speed(&whole, bench.times, &mut into);
    into.failed("not done", failed);
    for (name, mut step) in ["claim", "publish", "settle"].into_iter().zip(steps) {
        step.latencies.sort_unstable();
        let median = step.quantile(0.5).as_secs_f64() * 1e3;
        into.add(format!("{P50}, {name}"), median);
    }
}

/// Claims as a gateway makes them.
#[derive(Clone)]
struct Claiming {
    claims: Claims,
    settlements: Arc<Settlements>,
    database: Database,
}

impl Claiming {
    fn new(world: &World) -> Self {
        let target = world.database_url.parse().expect("a database");
        let settings = DatabaseSettings {
            database_pool_size: 8,
        };
        let database =
            Database::new(&target, &settings, Role::Gateway, "bench").expect("a database");
        let settlements = Arc::new(Settlements::default());
        Self {
            claims: Claims::new(database.clone(), LEASE, settlements.clone()),
            settlements,
            database,
        }
    }

    /// Nothing when it failed.
    async fn claim(&self, address: WebhookAddress, number: usize) -> Option<BatchId> {
        let batch = BatchId::generate();
        let keys = (0..number).map(|_| {
            (
                DeliveryKey::new(address, address.webhook, None, &event()),
                batch,
            )
        });
        let claimed = self.claims.claim(&keys.collect::<Vec<_>>()).await.ok()?;
        claimed.values().all(Result::is_ok).then_some(batch)
    }

    /// The next claim settles this one on its way.
    async fn claim_and_confirm(self, address: WebhookAddress, number: usize) -> bool {
        let batch = self.claim(address, number).await;
        batch.is_some_and(|batch| {
            self.settlements.confirm(batch);
            true
        })
    }

    /// Settles a claim at once: what a gateway writes at its end it writes here.
    async fn settle(&self, batch: BatchId) {
        self.settlements.confirm(batch);
        let now = CancellationToken::new();
        now.cancel();
        self.settlements
            .clone()
            .run(self.database.clone(), now)
            .await;
    }
}
