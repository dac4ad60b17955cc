//! The worker: takes what the gateways have published, makes signals and runs of it, and
//! acknowledges after its commit.
//!
//! `consumer` receives and acknowledges, `apply` says what a batch of messages does to the
//! database, `outcome` what an outcome means for a message. `executor` brings runs through their
//! `actions`, as the `policy` allows, out through `egress`. `owner` is what the operator command
//! line (`bin/letterbox`) orders.

mod accounts;
pub mod actions;
mod apply;
pub mod config;
mod consumer;
mod dead_letters;
pub mod definition;
mod egress;
pub mod executor;
mod outcome;
pub mod owner;
pub mod policy;
pub mod runs;
mod server;
pub mod signals;

pub use server::run;
