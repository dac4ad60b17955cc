//! What the benchmark is asked to do: sections, rounds, lengths, and where its servers are.

use std::{path::PathBuf, time::Duration};

use clap::{Parser, ValueEnum};

use crate::{load::Times, summary::Former};

/// How long each measurement runs before it counts.
const WARM_UP: Duration = Duration::from_secs(1);

/// Measures Letterbox on private, durable servers, with load generator, gateway, worker, PostgreSQL
/// and RabbitMQ on this machine. Prints one table and writes .local/bench.json
#[derive(Debug, Parser)]
#[command(bin_name = "deploy/bench")]
pub struct Arguments {
    /// How often each section is measured, in turns; growth and fairness are measured once, after
    /// the last round
    #[arg(long, value_name = "N", default_value_t = 5,
          value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: u32,

    /// Only these sections, separated by commas; a target that needs others is not decided
    #[arg(long, value_name = "SECTIONS", value_enum, value_delimiter = ',')]
    pub only: Vec<Section>,

    /// Length of one measurement, after a warm-up of one second
    #[arg(long, value_name = "S", default_value_t = 4,
          value_parser = clap::value_parser!(u64).range(1..=600))]
    pub seconds: u64,

    /// Claims that are remembered where growth is measured
    #[arg(long, value_name = "N", default_value_t = 100_000_000,
          value_parser = clap::value_parser!(u64).range(1_000_000..=10_000_000_000))]
    pub remembered: u64,

    /// Result of a former run: every figure is also shown as a multiple of the former median
    #[arg(long, value_name = "FILE", value_parser = Former::read)]
    pub against: Option<Former>,

    /// Also measure job runners of others where drain is measured; they are built for it
    #[arg(long, requires = "jobs")]
    pub peers: bool,

    /// The program with the job runners
    #[arg(long, hide = true, env = "LETTERBOX_BENCH_JOBS")]
    pub jobs: Option<PathBuf>,

    #[arg(
        long,
        hide = true,
        env = "LETTERBOX_BENCH_FILE",
        default_value = "bench.json"
    )]
    pub file: PathBuf,

    #[arg(long, hide = true, env = "DATABASE_URL", hide_env_values = true)]
    pub database_url: Option<String>,

    #[arg(long, hide = true, env = "AMQP_URL", hide_env_values = true)]
    pub amqp_url: Option<String>,

    #[arg(
        long,
        hide = true,
        env = "LETTERBOX_BENCH_POSTGRES_PID",
        default_value_t = 0
    )]
    pub postgres_pid: u32,

    #[arg(
        long,
        hide = true,
        env = "LETTERBOX_BENCH_RABBITMQ_PID",
        default_value_t = 0
    )]
    pub rabbitmq_pid: u32,

    /// Only say whether these arguments are right
    #[arg(long, hide = true)]
    pub check: bool,

    /// Be a bare server that answers every request with this status
    #[arg(long, hide = true, value_name = "STATUS")]
    pub serve: Option<u16>,
}

/// What is measured together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Section {
    /// The parts alone: bare hyper, publishing, claims, one sender
    Limits,
    /// Signed webhooks, with the worker stopped and running
    Intake,
    /// Form reads and submissions
    Forms,
    /// What is refused or sent again
    Refusals,
    /// The worker: signals, and runs with one request each
    Drain,
    /// Intake with a hundred million remembered claims, in turns with none
    Growth,
    /// A run beside another workspace's trouble, and the cost of a million that wait
    Fairness,
}

impl Section {
    /// Those that are measured in every round, in their order.
    pub const IN_ROUNDS: [Self; 5] = [
        Self::Limits,
        Self::Intake,
        Self::Forms,
        Self::Refusals,
        Self::Drain,
    ];
    /// Those that take too long for that, or hardly vary.
    pub const ONCE: [Self; 2] = [Self::Growth, Self::Fairness];

    pub fn name(self) -> &'static str {
        match self {
            Self::Limits => "limits",
            Self::Intake => "intake",
            Self::Forms => "forms",
            Self::Refusals => "refusals",
            Self::Drain => "drain",
            Self::Growth => "growth",
            Self::Fairness => "fairness",
        }
    }
}

impl Arguments {
    /// Those sections that are to be measured.
    pub fn wanted(&self, sections: &[Section]) -> impl Iterator<Item = Section> {
        let wanted = |section: &Section| self.only.is_empty() || self.only.contains(section);
        sections.iter().copied().filter(wanted)
    }

    pub fn times(&self) -> Times {
        Times {
            warm_up: WARM_UP,
            measure: Duration::from_secs(self.seconds),
        }
    }
}
