//! The benchmark's result: one table for people, one file for programs.

use serde_json::json;

use crate::load::Measured;

/// Signed intake with so many connections.
pub struct Intake {
    pub connections: usize,
    pub measured: Measured,
    pub cpu_seconds: f64,
}

/// Everything that one run measured, in events a second.
pub struct Report {
    pub hyper: f64,
    pub publish: f64,
    pub claim: f64,
    pub intakes: Vec<Intake>,
}

impl Intake {
    fn cpu_micros_per_event(&self) -> f64 {
        self.cpu_seconds * 1e6 / self.measured.latencies.len().max(1) as f64
    }

    fn millis(&self, quantile: f64) -> f64 {
        self.measured.quantile(quantile).as_secs_f64() * 1e3
    }
}

impl Report {
    fn bound(&self) -> f64 {
        1.0 / (1.0 / self.hyper + 1.0 / self.publish + 1.0 / self.claim)
    }

    pub fn print(&self) {
        let bound = self.bound();
        println!("{:<38}{:>10}{:>8}{:>10}{:>10}{:>14}", "", "events/s", "of A", "p50 ms", "p99 ms", "CPU us/event");
        let parts = [
            ("H  bare hyper answering 202", self.hyper),
            ("B  confirmed publishing alone", self.publish),
            ("C  claim and settle alone", self.claim),
            ("A  additive bound 1/(1/H + 1/B + 1/C)", bound),
        ];
        for (name, rate) in parts {
            println!("{name:<38}{rate:>10.0}{:>8.2}", rate / bound);
        }
        for intake in &self.intakes {
            let (rate, name) =
                (intake.measured.per_second(), format!("signed intake, {} connections", intake.connections));
            let (p50, p99, cpu) = (intake.millis(0.5), intake.millis(0.99), intake.cpu_micros_per_event());
            print!("{name:<38}{rate:>10.0}{:>8.2}{p50:>10.2}{p99:>10.2}{cpu:>14.0}", rate / bound);
            println!(
                "{}",
                if intake.measured.failures == 0 {
                    String::new()
                } else {
                    format!("  {} refused", intake.measured.failures)
                }
            );
        }
    }

    pub fn write(&self, file: &str) {
        let intakes: Vec<_> = self
            .intakes
            .iter()
            .map(|intake| {
                json!({
                    "connections": intake.connections,
                    "events_per_second": intake.measured.per_second(),
                    "of_bound": intake.measured.per_second() / self.bound(),
                    "p50_milliseconds": intake.millis(0.5),
                    "p99_milliseconds": intake.millis(0.99),
                    "gateway_cpu_microseconds_per_event": intake.cpu_micros_per_event(),
                    "refused": intake.measured.failures,
                })
            })
            .collect();
        let report = json!({
            "bare_hyper_per_second": self.hyper,
            "confirmed_publish_per_second": self.publish,
            "claim_and_settle_per_second": self.claim,
            "additive_bound_per_second": self.bound(),
            "intake": intakes,
        });
        std::fs::write(file, format!("{report:#}\n")).expect("the result can be written");
    }
}
