//! The benchmark's result: one table for people, one file for programs. Every figure is the median
//! over the rounds; ratios are taken within a round, and shown with the lowest and the highest.

use serde_json::{Value, json};

use crate::load::Measured;

/// Signed intake with so many connections.
pub struct Intake {
    pub connections: usize,
    pub measured: Measured,
    pub cpu_seconds: f64,
}

/// Everything that was measured in one round, in events a second.
pub struct Round {
    pub hyper: f64,
    pub publish: f64,
    pub claim: f64,
    pub intakes: Vec<Intake>,
}

/// All rounds; there is at least one, and each has measured the same.
pub struct Report(pub Vec<Round>);

impl Intake {
    fn cpu_micros_per_event(&self) -> f64 {
        self.cpu_seconds * 1e6 / self.measured.latencies.len().max(1) as f64
    }

    fn millis(&self, quantile: f64) -> f64 {
        self.measured.quantile(quantile).as_secs_f64() * 1e3
    }
}

impl Round {
    fn bound(&self) -> f64 {
        1.0 / (1.0 / self.hyper + 1.0 / self.publish + 1.0 / self.claim)
    }
}

/// Reads one figure off a round.
type Figure = fn(&Round) -> f64;

/// Figures of one kind, one from each round, sorted.
struct Figures(Vec<f64>);

impl Figures {
    fn median(&self) -> f64 {
        self.0[self.0.len() / 2]
    }

    fn spread(&self) -> (f64, f64) {
        (self.0[0], self.0[self.0.len() - 1])
    }
}

impl Report {
    fn figures(&self, figure: impl Fn(&Round) -> f64) -> Figures {
        let mut figures: Vec<f64> = self.0.iter().map(figure).collect();
        figures.sort_unstable_by(f64::total_cmp);
        Figures(figures)
    }

    /// Each number of connections with its place in a round.
    fn intakes(&self) -> impl Iterator<Item = (usize, usize)> {
        self.0[0]
            .intakes
            .iter()
            .map(|intake| intake.connections)
            .enumerate()
    }

    pub fn print(&self) {
        let ratio = |figures: &Figures| {
            let (low, high) = figures.spread();
            format!("{:.2} ({low:.2}-{high:.2})", figures.median())
        };
        println!(
            "{:<38}{:>10}{:>18}{:>9}{:>9}{:>14}",
            "", "events/s", "of A", "p50 ms", "p99 ms", "CPU us/event"
        );
        let parts: [(&str, Figure); 4] = [
            ("H  bare hyper answering 202", |round| round.hyper),
            ("B  confirmed publishing alone", |round| round.publish),
            ("C  claim and settle alone", |round| round.claim),
            ("A  additive bound 1/(1/H + 1/B + 1/C)", Round::bound),
        ];
        for (name, part) in parts {
            let of_bound = self.figures(|round| part(round) / round.bound());
            println!(
                "{name:<38}{:>10.0}{:>18}",
                self.figures(part).median(),
                ratio(&of_bound)
            );
        }
        for (index, connections) in self.intakes() {
            let figures =
                |figure: fn(&Intake) -> f64| self.figures(|round| figure(&round.intakes[index]));
            let of_bound =
                self.figures(|round| round.intakes[index].measured.per_second() / round.bound());
            print!(
                "{:<38}{:>10.0}{:>18}{:>9.2}{:>9.2}{:>14.0}",
                format!("signed intake, {connections} connections"),
                figures(|intake| intake.measured.per_second()).median(),
                ratio(&of_bound),
                figures(|intake| intake.millis(0.5)).median(),
                figures(|intake| intake.millis(0.99)).median(),
                figures(Intake::cpu_micros_per_event).median(),
            );
            let refused: u64 = self
                .0
                .iter()
                .map(|round| round.intakes[index].measured.failures)
                .sum();
            println!(
                "{}",
                if refused == 0 {
                    String::new()
                } else {
                    format!("  {refused} refused")
                }
            );
        }
    }

    pub fn write(&self, file: &str) {
        let rounds: Vec<Value> = self.0.iter().map(Round::json).collect();
        let median = |index: usize| {
            self.figures(|round| round.intakes[index].measured.per_second() / round.bound())
                .median()
        };
        let of_bound: Vec<Value> = self
            .intakes()
            .map(|(index, connections)| {
                json!({"connections": connections,
                "of_bound": median(index)})
            })
            .collect();
        let report = json!({ "median_of_bound": of_bound, "rounds": rounds });
        std::fs::write(file, format!("{report:#}\n")).expect("the result can be written");
    }
}

impl Round {
    fn json(&self) -> Value {
        let intakes = self.intakes.iter().map(|intake| {
            json!({
                "connections": intake.connections,
                "events_per_second": intake.measured.per_second(),
                "of_bound": intake.measured.per_second() / self.bound(),
                "p50_milliseconds": intake.millis(0.5),
                "p99_milliseconds": intake.millis(0.99),
                "gateway_cpu_microseconds_per_event": intake.cpu_micros_per_event(),
                "refused": intake.measured.failures,
            })
        });
        json!({
            "bare_hyper_per_second": self.hyper,
            "confirmed_publish_per_second": self.publish,
            "claim_and_settle_per_second": self.claim,
            "additive_bound_per_second": self.bound(),
            "intake": Value::from_iter(intakes),
        })
    }
}
