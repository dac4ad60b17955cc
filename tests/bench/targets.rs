//! What the figures should be, each against something that was measured in the same round.

use serde_json::{Value, json};

use crate::{
    arguments::Section::{
        self, Drain, Fairness, Finding, Forms, Growth, Intake, Limits, Memory, Refusals,
    },
    drain::{self, AGENTS, EIGHT_ACCOUNTS, FIVE_ACTIONS, ONE_ACCOUNT, SIGNALS, TWO_WORKERS},
    fairness::{A_MILLION_WAITS, ALONE, AT_ONE_MOMENT, BESIDE, NOTHING_WAITS, REQUESTED},
    figures::{CPU_ALL, CPU_GATEWAY, CPU_HYPER, P50, P99, PER_SECOND, Round},
    finding::{FEW, MANY, QUESTIONS, among},
    forms::submissions,
    growth::{
        self, AGAIN, BESIDE_MOVER, BESIDE_WORKER, BYTES, FEW_STORED, LOG, MANY_STORED, MERGER,
        MERGES, MOVER, MOVER_LOG, MUCH, OF_NOTHING, P99_OF_NOTHING,
    },
    intake::{SECONDS_BEHIND, running, stopped},
    limits::{BOUND, HYPER, SENDER},
    memory::{CONNECTED, IDLE, PEAK, RESIDENT, SLOW, STALLED},
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

/// Judges by all that was measured.
struct Judge<'a> {
    rounds: Vec<&'a Round>,
    judged: Vec<Judged>,
}

impl Judge<'_> {
    fn by(&mut self, name: &'static str, wanted: Wanted, values: Vec<f64>) {
        self.judged.push(Judged {
            name,
            wanted,
            values: Values::of(values),
        });
    }

    fn plain(&mut self, name: &'static str, wanted: Wanted, figure: Figure) {
        let values = self
            .rounds
            .iter()
            .filter_map(|round| figure.in_round(round));
        self.by(name, wanted, values.collect());
    }

    /// By one figure divided by another.
    fn ratio(&mut self, name: &'static str, wanted: Wanted, above: Figure, below: Figure) {
        let ratio = |round: &&Round| Some(above.in_round(round)? / below.in_round(round)?);
        let values = self.rounds.iter().filter_map(ratio).collect();
        self.by(name, wanted, values);
    }

    fn intake(&mut self) {
        let rate = |connections| figure(Intake, stopped(connections), PER_SECOND);
        let bound = || figure(Limits, BOUND, PER_SECOND);
        let with_worker = |name| figure(Intake, running(256), name);
        self.ratio(
            "intake of A1, 256 connections",
            AtLeast(2.0),
            rate(256),
            bound(),
        );
        self.ratio(
            "intake of A1, 64 connections",
            AtLeast(1.2),
            rate(64),
            bound(),
        );
        let kept = with_worker(PER_SECOND);
        self.ratio(
            "intake with a worker, of without, 256",
            AtLeast(0.7),
            kept,
            rate(256),
        );
        let behind = with_worker(SECONDS_BEHIND);
        self.plain("seconds until its backlog is gone", AtMost(2.0), behind);
        let at_64 = |name| figure(Intake, stopped(64), name);
        self.ratio(
            "p99 of p50, 64 connections",
            AtMost(3.0),
            at_64(P99),
            at_64(P50),
        );
        let (alone, floor) = (figure(Intake, stopped(1), P50), figure(Limits, SENDER, P50));
        self.ratio("p50 of one sender, of S", AtMost(1.3), alone, floor);
    }

    fn processor_time(&mut self) {
        let hyper = || figure(Limits, HYPER, CPU_HYPER);
        let first = |name| figure(Intake, stopped(256), name);
        let refused = |kind| figure(Refusals, kind, CPU_GATEWAY);
        let event = first(CPU_GATEWAY);
        self.ratio(
            "gateway CPU of bare hyper, event",
            AtMost(2.5),
            event,
            hyper(),
        );
        let (bad, unknown) = (refused(BAD_SIGNATURES), refused(UNKNOWN));
        self.ratio(
            "gateway CPU of bare hyper, bad signature",
            AtMost(2.5),
            bad,
            hyper(),
        );
        self.ratio(
            "gateway CPU of bare hyper, unknown webhook",
            AtMost(2.5),
            unknown,
            hyper(),
        );
        let limited = refused(LIMITED);
        self.ratio(
            "gateway CPU of bare hyper, limited client",
            AtMost(1.5),
            limited,
            hyper(),
        );
        let beside = |others| figure(Refusals, others, P50);
        self.ratio(
            "p50 of a look-up beside bad signatures, beside a limited client",
            AtMost(2.0),
            beside(BESIDE_FORGED),
            beside(BESIDE_LIMITED),
        );
        // What the database does in the background is counted, too.
        let commits = figure(Refusals, LIMITED, COMMITS);
        self.plain("transactions for a limited client", AtMost(0.01), commits);
        let repeat = figure(Refusals, REPEATS, CPU_ALL);
        self.ratio(
            "all CPU of a repeat, of a first event",
            AtMost(0.6),
            repeat,
            first(CPU_ALL),
        );
    }

    fn forms_and_drain(&mut self) {
        let rate = |connections| figure(Intake, stopped(connections), PER_SECOND);
        let form = |connections| figure(Forms, submissions(connections), PER_SECOND);
        self.ratio(
            "submissions of intake, 64 connections",
            AtLeast(0.6),
            form(64),
            rate(64),
        );
        self.ratio(
            "submissions of intake, 256 connections",
            AtLeast(0.6),
            form(256),
            rate(256),
        );
        let signals = figure(Drain, SIGNALS, PER_SECOND);
        self.ratio(
            "drain of signals, of intake, 256",
            AtLeast(1.5),
            signals,
            rate(256),
        );
        let runs = |name| figure(Drain, name, PER_SECOND);
        for (name, least) in [
            (EIGHT_ACCOUNTS, 2_000.0),
            (ONE_ACCOUNT, 1_000.0),
            (FIVE_ACTIONS, 500.0),
            (AGENTS, 150.0),
        ] {
            self.plain(name, AtLeast(least), runs(name));
        }
        let cost = figure(Drain, EIGHT_ACCOUNTS, CPU_ALL);
        self.plain("all CPU of a run, us", AtMost(900.0), cost);
        self.ratio(
            "runs by two workers, of one",
            AtLeast(0.9),
            runs(TWO_WORKERS),
            runs(EIGHT_ACCOUNTS),
        );
    }

    fn growth_and_memory(&mut self) {
        // Of what was measured before and after.
        let stored = |what: &'static str| -> Vec<f64> {
            let value = |round: &Round, stored| {
                figure(Growth, drain::among(what, stored), PER_SECOND).in_round(round)
            };
            let ratio = |round: &&Round| {
                let few = (value(round, FEW_STORED)? + value(round, AGAIN)?) / 2.0;
                Some(value(round, MANY_STORED)? / few)
            };
            self.rounds.iter().filter_map(ratio).collect()
        };
        let (signals, runs) = (stored(SIGNALS), stored("runs"));
        self.by("signals with many stored, of few", AtLeast(0.9), signals);
        self.by("runs with many stored, of few", AtLeast(0.9), runs);
        let of_nothing = |measurement: String| figure(Growth, measurement, OF_NOTHING);
        let (at_256, at_64) = (growth::at(256, MUCH), growth::at(64, MUCH));
        let p99 = figure(Growth, at_64.clone(), P99_OF_NOTHING);
        self.plain(
            "intake with much remembered, of nothing, 256",
            AtLeast(0.9),
            of_nothing(at_256),
        );
        self.plain(
            "the same, behind a checkpoint",
            AtLeast(0.9),
            of_nothing(growth::checkpointed(MUCH)),
        );
        self.plain(
            "intake with much remembered, of nothing, 64",
            AtLeast(0.9),
            of_nothing(at_64),
        );
        self.plain("its p99, of nothing, 64", AtMost(1.3), p99);
        self.plain(
            "submissions with much remembered, of nothing",
            AtLeast(0.9),
            of_nothing(growth::submissions(MUCH)),
        );
        let much = |name| figure(Growth, growth::at(256, MUCH), name);
        self.plain("bytes a remembered claim", AtMost(25.0), much(BYTES));
        // What moving takes of something, for each claim, with all merges.
        let moved = |round: &Round, name| {
            let copied = figure(Growth, MOVER, name).in_round(round)?;
            Some(copied + MERGES * figure(Growth, MERGER, name).in_round(round)?)
        };
        let log = |round: &&Round| Some(much(LOG).in_round(round)? + moved(round, MOVER_LOG)?);
        let log = self.rounds.iter().filter_map(log).collect();
        self.by("log bytes an event, its move included", AtMost(700.0), log);
        let rate = |measurement: String| figure(Growth, measurement, PER_SECOND);
        self.ratio(
            "repeats of what is remembered, of first events",
            AtLeast(1.0),
            rate(growth::REPEATS.into()),
            rate(growth::at(64, MUCH)),
        );
        let mover = self.rounds.iter();
        let mover = mover.filter_map(|round| moved(round, CPU_ALL)).collect();
        self.by("all CPU of a moved claim, us", AtMost(5.0), mover);
        self.ratio(
            "intake beside a mover that catches up",
            AtLeast(0.85),
            rate(BESIDE_MOVER.into()),
            rate(BESIDE_WORKER.into()),
        );
        let memory = |when, name| figure(Memory, when, name);
        self.plain("MiB, fresh and idle", AtMost(20.0), memory(IDLE, RESIDENT));
        let connected = memory(CONNECTED, RESIDENT);
        self.plain("MiB with 5,000 idle connections", AtMost(80.0), connected);
        let stalled = memory(STALLED, PEAK);
        self.plain(
            "MiB with 1,000 bodies, database frozen",
            AtMost(200.0),
            stalled,
        );
        let slow = memory(SLOW, PEAK);
        self.plain("MiB with 4,096 slow bodies", AtMost(460.0), slow);
    }

    fn fairness(&mut self) {
        let requested = |quantile| figure(Fairness, REQUESTED, quantile);
        self.plain("ms to the request, p50", AtMost(12.0), requested(P50));
        self.plain("ms to the request, p99", AtMost(25.0), requested(P99));
        let moment = figure(Fairness, AT_ONE_MOMENT, PER_SECOND);
        self.plain(
            "runs a second of 100,000 due at once",
            AtLeast(1_600.0),
            moment,
        );
        let (beside, alone) = (figure(Fairness, BESIDE, P50), figure(Fairness, ALONE, P50));
        self.ratio(
            "a run beside 2,000 that hang, of alone",
            AtMost(1.5),
            beside,
            alone,
        );
        let million = figure(Fairness, A_MILLION_WAITS, CPU_ALL);
        let nothing = figure(Fairness, NOTHING_WAITS, CPU_ALL);
        self.ratio(
            "all CPU while a million runs wait, of idle",
            AtMost(1.2),
            million,
            nothing,
        );
    }

    /// The question that grows most.
    fn finding(&mut self) {
        let ratios = self.rounds.iter().filter_map(|round| {
            let took = |question, runs| figure(Finding, among(question, runs), P50).in_round(round);
            let grown =
                QUESTIONS.map(|question| Some(took(question, MANY)? / took(question, FEW)?));
            grown
                .into_iter()
                .collect::<Option<Vec<_>>>()?
                .into_iter()
                .reduce(f64::max)
        });
        let ratios = ratios.collect();
        self.by(
            "to find a run of a million, of 10 thousand",
            AtMost(2.0),
            ratios,
        );
    }

    fn against(&mut self, former: &Former) {
        let place = figure(Intake, running(256), CPU_ALL);
        let before = former.median(place.0.name(), &place.1, place.2);
        let now = self.rounds.iter().filter_map(|round| place.in_round(round));
        let ratios = now.filter_map(|now| Some(now / before?)).collect();
        self.by(
            "all CPU of an event with a worker, of former",
            AtMost(0.5),
            ratios,
        );
    }
}

/// Judges all targets.
pub fn judge(rounds: &[Round], once: &Round, former: Option<&Former>) -> Vec<Judged> {
    let mut judge = Judge {
        rounds: rounds.iter().chain([once]).collect(),
        judged: Vec::new(),
    };
    judge.intake();
    judge.processor_time();
    judge.forms_and_drain();
    judge.growth_and_memory();
    judge.fairness();
    judge.finding();
    if let Some(former) = former {
        judge.against(former);
    }
    judge.judged
}
