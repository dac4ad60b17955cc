//! The gateway: the public side of Letterbox. It does the cheap checks, claims, publishes with
//! confirm, answers, and knows nothing of signals and runs.
//! A request goes through `listener`, `router`, `handlers` and `intake`, which reads top to bottom;
//! items that pass its checks go to `acceptance`. The other modules support these.

mod acceptance;
mod admission;
mod body;
mod ceilings;
pub mod claims;
mod config;
mod cors;
mod error;
mod faults;
mod form_page;
#[doc(hidden)]
pub mod fuzzing;
mod handlers;
mod intake;
mod json;
mod listener;
mod metrics;
pub mod open_batches;
mod program;
mod proof;
mod recent;
mod repeats;
mod request_id;
mod request_log;
mod response;
mod router;
mod server;
mod state;
mod strict_head;
mod trace;
pub mod validation;
mod webhook_secrets;
mod work_queues;

use letterbox_common::process::metrics::Metric;
use letterbox_database::{Statement, stores};

pub use program::main;

/// Every statement that finds rows by their keys only, for the test that checks their plans.
pub fn keyed_statements() -> impl Iterator<Item = &'static Statement> {
    let lookups = stores! { webhook_secrets ceilings admission claims };
    let lookups = lookups.chain([admission::DEFINITION_STATEMENTS]);
    lookups.flatten().copied()
}

/// Every statement of the gateway, for the test that prepares them under its role.
pub fn statements() -> impl Iterator<Item = &'static Statement> {
    let others = stores! { open_batches faults work_queues };
    let others = others.chain([admission::SWEEPING_STATEMENTS]);
    keyed_statements().chain(others.flatten().copied())
}

/// Every metric that the gateway exports.
pub fn all_metrics() -> impl Iterator<Item = &'static Metric> {
    let all = [
        metrics::ALL,
        letterbox_common::metrics::ALL,
        letterbox_broker::metrics::ALL,
        letterbox_database::metrics::ALL,
    ];
    all.into_iter().flatten()
}
