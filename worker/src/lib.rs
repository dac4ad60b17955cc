//! The worker: consumes what the gateways have published or spilled, stores it as signals and runs,
//! executes the runs, and acknowledges after each commit.
//!
//! ```text
//! consumer ── apply ──> claims            was it claimed?
//!                  └──> signals, runs     stored in one transaction,
//!                       spill             what could not be published, or not be stored yet
//! executor ── turns ──> active runs       takes due runs, many at once
//!          └──────────> egress            a run's actions, one after the other, under the policy
//! memory ── mover ───> segments          what was recorded long ago, in few bytes
//! subscriptions ─────> RabbitMQ, egress  signals, to those who want them
//! notices ───────────> SMTP, egress      what people are told
//! grants ────────────> egress            the tokens of accounts, before they end
//! ```
//!
//! `outcome` defines how a message ends, `dead_letters` publishes entries that can't be processed.
//! The language of workflows is the crate `letterbox-workflow`.

mod apply;
mod claims;
mod config;
mod consumer;
mod dead_letters;
mod egress;
#[doc(hidden)] // public for the tests of states, which call its stores
pub mod executor;
mod grants;
mod leased;
pub mod memory;
mod metrics;
mod notices;
mod outcome;
mod program;
mod recorder;
mod runs;
mod server;
mod signals;
mod spill;
mod stored_bytes;
mod subscriptions;
mod upkeep;
mod worker;

use letterbox_common::process::metrics::Metric;
use letterbox_database::{Statement, stores};

pub use program::main;

/// Every statement of the worker, for the test that prepares them under the worker's role.
pub fn statements() -> impl Iterator<Item = &'static Statement> {
    let stores = stores! {
        consumer claims signals runs stored_bytes memory notices grants spill subscriptions
    };
    stores
        .chain(executor::statements())
        .chain(upkeep::STATEMENTS.iter().copied())
        .flatten()
        .copied()
}

/// Every metric that the worker exports.
pub fn all_metrics() -> impl Iterator<Item = &'static Metric> {
    [
        metrics::ALL,
        letterbox_common::metrics::ALL,
        letterbox_broker::metrics::ALL,
        letterbox_database::metrics::ALL,
    ]
    .into_iter()
    .flatten()
}
