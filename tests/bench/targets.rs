//! What the figures should be, each against something that was measured in the same round.

use serde_json::{Value, json};

use crate::{
    arguments::Section::{self, Drain, Fairness, Forms, Growth, Intake, Limits, Refusals},
    drain::{AGENTS, EIGHT_ACCOUNTS, FIVE_ACTIONS, ONE_ACCOUNT, SIGNALS, TWO_WORKERS},
    fairness::{A_MILLION_WAITS, ALONE, AT_ONE_MOMENT, BESIDE, NOTHING_WAITS, REQUESTED},
    figures::{CPU_ALL, CPU_GATEWAY, CPU_HYPER, P50, P99, PER_SECOND, Round},
    forms::submissions,
    growth::{self, BYTES, OF_NOTHING, P99_OF_NOTHING, much},
    intake::{SECONDS_BEHIND, running, stopped},
    jobs::GRAPHILE_WORKER,
    limits::{BOUND, HYPER, SENDER},
    refusals::{BAD_SIGNATURES, BESIDE_FORGED, BESIDE_LIMITED, COMMITS, LIMITED, REPEATS, UNKNOWN},
    summary::{Former, Values},
};

/// What is wanted of a value.
#[derive(Debug, Clone, Copy)]
enum Wanted {
    AtLeast(f64),
    AtMost(f64),
}
use Wanted::{AtLeast, AtMost};

/// A target with the values that it was judged by, one for each round that has one.
pub struct Judged {
    pub name: &'static str,
    wanted: Wanted,
    pub values: Option<Values>,
}

impl Judged {
    /// Nothing where nothing was measured.
    pub fn met(&self) -> Option<bool> {
        let median = self.values.as_ref()?.median();
        Some(match self.wanted {
            AtLeast(bound) => median >= bound,
            AtMost(bound) => median <= bound,
        })
    }

    pub fn wanted(&self) -> String {
        match self.wanted {
            AtLeast(bound) => format!(">= {bound}"),
            AtMost(bound) => format!("<= {bound}"),
        }
    }

    pub fn json(&self) -> Value {
        json!({
            "target": self.name,
            "wanted": self.wanted(),
            "median": self.values.as_ref().map(Values::median),
            "met": self.met(),
        })
    }
}

/// A figure of a round.
struct Figure(Section, String, &'static str);

impl Figure {
    fn in_round(&self, round: &Round) -> Option<f64> {
        round.get(self.0, &self.1, self.2)
    }
}

fn figure(section: Section, measurement: impl Into<String>, name: &'static str) -> Figure {
    Figure(section, measurement.into(), name)
}

/// What is wanted of a figure, or of one divided by another.
struct Target {
    name: &'static str,
    wanted: Wanted,
    figure: Figure,
    divided_by: Option<Figure>,
}

impl Target {
    fn in_round(&self, round: &Round) -> Option<f64> {
        let value = self.figure.in_round(round)?;
        match &self.divided_by {
            Some(below) => Some(value / below.in_round(round)?),
            None => Some(value),
        }
    }
}

macro_rules! targets {
    (@below) => { None };
    (@below $below:expr) => { Some($below) };
    ($($name:expr => $wanted:expr, $figure:expr $(, of $below:expr)?;)+) => {
        vec![$(Target {
            name: $name,
            wanted: $wanted,
            figure: $figure,
            divided_by: targets!(@below $($below)?),
        }),+]
    };
}

fn of_the_gateway() -> Vec<Target> {
    let intake = |connections, name| figure(Intake, stopped(connections), name);
    let rate = |connections| intake(connections, PER_SECOND);
    let with_worker = |name| figure(Intake, running(256), name);
    let bound = || figure(Limits, BOUND, PER_SECOND);
    let hyper = || figure(Limits, HYPER, CPU_HYPER);
    let refused = |kind, name| figure(Refusals, kind, name);
    let submitted = |connections| figure(Forms, submissions(connections), PER_SECOND);
    targets! {
        "intake of A1, 256 connections" => AtLeast(2.0), rate(256), of bound();
        "intake of A1, 64 connections" => AtLeast(1.2), rate(64), of bound();
        "intake with a worker, of without, 256" =>
            AtLeast(0.7), with_worker(PER_SECOND), of rate(256);
        "seconds until its backlog is gone" => AtMost(2.0), with_worker(SECONDS_BEHIND);
        "p99 of p50, 64 connections" => AtMost(3.0), intake(64, P99), of intake(64, P50);
        "p50 of one sender, of S" =>
            AtMost(1.3), intake(1, P50), of figure(Limits, SENDER, P50);
        "gateway CPU of bare hyper, event" =>
            AtMost(2.5), intake(256, CPU_GATEWAY), of hyper();
        "gateway CPU of bare hyper, bad signature" =>
            AtMost(2.5), refused(BAD_SIGNATURES, CPU_GATEWAY), of hyper();
        "gateway CPU of bare hyper, unknown webhook" =>
            AtMost(2.5), refused(UNKNOWN, CPU_GATEWAY), of hyper();
        "gateway CPU of bare hyper, limited client" =>
            AtMost(1.5), refused(LIMITED, CPU_GATEWAY), of hyper();
        "p50 of a look-up beside bad signatures, beside a limited client" =>
            AtMost(2.0), refused(BESIDE_FORGED, P50), of refused(BESIDE_LIMITED, P50);
        // What the database does in the background is counted, too.
        "transactions for a limited client" => AtMost(0.01), refused(LIMITED, COMMITS);
        "all CPU of a repeat, of a first event" =>
            AtMost(0.6), refused(REPEATS, CPU_ALL), of intake(256, CPU_ALL);
        "submissions of intake, 64 connections" => AtLeast(0.6), submitted(64), of rate(64);
        "submissions of intake, 256 connections" => AtLeast(0.6), submitted(256), of rate(256);
    }
}

fn of_the_worker() -> Vec<Target> {
    let drained = |name| figure(Drain, name, PER_SECOND);
    let fairness = |name, quantile| figure(Fairness, name, quantile);
    targets! {
        "drain of signals, of intake, 256" =>
            AtLeast(1.5), drained(SIGNALS), of figure(Intake, stopped(256), PER_SECOND);
        EIGHT_ACCOUNTS => AtLeast(2_000.0), drained(EIGHT_ACCOUNTS);
        "runs with one request each, of graphile_worker's jobs" =>
            AtLeast(1.0), drained(EIGHT_ACCOUNTS), of drained(GRAPHILE_WORKER);
        ONE_ACCOUNT => AtLeast(1_000.0), drained(ONE_ACCOUNT);
        FIVE_ACTIONS => AtLeast(500.0), drained(FIVE_ACTIONS);
        AGENTS => AtLeast(150.0), drained(AGENTS);
        "all CPU of a run, us" => AtMost(900.0), figure(Drain, EIGHT_ACCOUNTS, CPU_ALL);
        "runs by two workers, of one" =>
            AtLeast(0.9), drained(TWO_WORKERS), of drained(EIGHT_ACCOUNTS);
        "ms to the request, p50" => AtMost(12.0), fairness(REQUESTED, P50);
        "ms to the request, p99" => AtMost(25.0), fairness(REQUESTED, P99);
        "runs a second of 100,000 due at once" =>
            AtLeast(1_600.0), fairness(AT_ONE_MOMENT, PER_SECOND);
        "a run beside 2,000 that hang, of alone" =>
            AtMost(1.5), fairness(BESIDE, P50), of fairness(ALONE, P50);
        "all CPU while a million runs wait, of idle" =>
            AtMost(1.2), fairness(A_MILLION_WAITS, CPU_ALL), of fairness(NOTHING_WAITS, CPU_ALL);
    }
}

fn of_the_memory() -> Vec<Target> {
    let grown = |connections, name| figure(Growth, much(connections), name);
    targets! {
        "intake with much remembered, of nothing, 256" => AtLeast(0.9), grown(256, OF_NOTHING);
        "intake with much remembered, of nothing, 64" => AtLeast(0.9), grown(64, OF_NOTHING);
        "its p99, of nothing, 64" => AtMost(1.3), grown(64, P99_OF_NOTHING);
        "bytes a remembered claim" => AtMost(25.0), grown(256, BYTES);
        "repeats of what is remembered, of first events" =>
            AtLeast(1.0), figure(Growth, growth::REPEATS, PER_SECOND), of grown(64, PER_SECOND);
    }
}

/// Judges all targets.
pub fn judge(rounds: &[Round], once: &Round, former: Option<&Former>) -> Vec<Judged> {
    let rounds = || rounds.iter().chain([once]);
    let targets = [of_the_gateway(), of_the_worker(), of_the_memory()];
    let judged = targets.iter().flatten().map(|target| Judged {
        name: target.name,
        wanted: target.wanted,
        values: Values::of(rounds().filter_map(|round| target.in_round(round))),
    });
    let mut judged: Vec<_> = judged.collect();
    if let Some(former) = former {
        let cost = figure(Intake, running(256), CPU_ALL);
        let before = former.median(cost.0.name(), &cost.1, cost.2);
        let now = rounds().filter_map(|round| cost.in_round(round));
        judged.push(Judged {
            name: "all CPU of an event with a worker, of former",
            wanted: AtMost(0.5),
            values: Values::of(now.filter_map(|now| Some(now / before?))),
        });
    }
    judged
}
