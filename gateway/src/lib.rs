//! The gateway: the two doors of Letterbox. It does the cheap checks, claims, publishes with confirm, answers, and knows
//! nothing of what becomes of what it took.
//!
//! A request goes `listener` → `router` → `handlers` → `intake`, which reads top to bottom; everything else is what intake
//! stands on.

mod answer;
pub mod batcher;
mod body;
pub mod claims;
pub mod config;
mod cors;
mod error;
mod handlers;
mod intake;
mod json;
mod listener;
mod router;
mod server;
mod trace;
mod webhook_secrets;

pub use server::{Sockets, run};
