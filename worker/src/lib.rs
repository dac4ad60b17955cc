//! The worker: takes what the gateways have published, makes signals and runs of it, and acknowledges after its commit.
//!
//! `consumer` receives and acknowledges, `apply` says what a batch of messages does to the database, `outcome` what an
//! outcome means for a message. `owner` is what the operator command line (`bin/letterbox`) orders.

mod apply;
pub mod config;
mod consumer;
mod dead_letters;
mod outcome;
pub mod owner;
pub mod runs;
mod server;
pub mod signals;

pub use server::run;
