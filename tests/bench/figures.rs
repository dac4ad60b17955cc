//! What was measured: figures, each with its section, its measurement and its name. A round has
//! each of them once.

use crate::arguments::Section;

/// Names of figures that more than one place reads.
pub const PER_SECOND: &str = "per second";
pub const P50: &str = "p50 ms";
pub const P99: &str = "p99 ms";
pub const P999: &str = "p99.9 ms";
pub const CPU_GATEWAY: &str = "CPU us, gateway";
pub const CPU_WORKER: &str = "CPU us, worker";
pub const CPU_SECOND_WORKER: &str = "CPU us, second worker";
pub const CPU_POSTGRES: &str = "CPU us, PostgreSQL";
pub const CPU_RABBITMQ: &str = "CPU us, RabbitMQ";
pub const CPU_HYPER: &str = "CPU us, bare hyper";
pub const CPU_PEER: &str = "CPU us, peer";
pub const CPU_GENERATOR: &str = "CPU us, generator";
/// Of those that do the work, and not of the load generator.
pub const CPU_ALL: &str = "CPU us, together";
/// Processors that did something else, the system's own work for the network included.
pub const BUSY_ELSEWHERE: &str = "cores busy elsewhere";
/// Figures of this kind are shown only where there is one.
pub const FAILED: &str = "FAILED: ";

/// Where a figure stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub section: &'static str,
    pub measurement: String,
    pub figure: String,
}

/// The figures of one round, in the order in which they were measured.
#[derive(Debug, Default)]
pub struct Round(Vec<(Place, f64)>);

impl Round {
    /// Takes the figures of one measurement.
    pub fn of(&mut self, section: Section, measurement: impl Into<String>) -> Measurement<'_> {
        Measurement {
            round: self,
            section: section.name(),
            measurement: measurement.into(),
        }
    }

    pub fn get(&self, section: Section, measurement: &str, figure: &str) -> Option<f64> {
        self.at(&Place {
            section: section.name(),
            measurement: measurement.to_owned(),
            figure: figure.to_owned(),
        })
    }

    pub fn at(&self, wanted: &Place) -> Option<f64> {
        let found = self.0.iter().find(|(place, _)| place == wanted);
        found.map(|(_, value)| *value)
    }

    pub fn figures(&self) -> &[(Place, f64)] {
        &self.0
    }
}

/// One measurement of a round.
pub struct Measurement<'a> {
    round: &'a mut Round,
    section: &'static str,
    measurement: String,
}

impl Measurement<'_> {
    pub fn add(&mut self, figure: impl Into<String>, value: f64) {
        let place = Place {
            section: self.section,
            measurement: self.measurement.clone(),
            figure: figure.into(),
        };
        self.round.0.push((place, value));
    }

    /// Something that should not have happened, and how often it did. Nothing where it did not.
    pub fn failed(&mut self, what: &str, times: u64) {
        if times > 0 {
            self.add(format!("{FAILED}{what}"), times as f64);
        }
    }
}
