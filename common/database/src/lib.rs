//! PostgreSQL for Letterbox's processes: how to reach it, with which rights, and the one way to
//! call it.
//!
//! A store declares its statements with [`statements!`] and runs them through [`Database`]. Nothing
//! else acquires a connection, so time limits, retries, log lines and latencies by statement are
//! decided here, once.

mod connect;
mod connection;
mod database;
mod divide;
mod error;
pub mod health;
mod held;
pub mod metrics;
pub mod migrations;
mod observers;
pub mod presence;
mod refusals;
mod row;
mod settings;
mod silence;
mod statement;
mod tls;
mod transaction;
mod whole;

pub use connect::{Role, connect_once, role_exists};
pub use database::Database;
pub use divide::divide;
pub use error::{DatabaseError, Fault};
pub use letterbox_database_derive::FromRow;
pub use observers::observe;
pub use row::FromRow;
pub use settings::{DATABASE_URL, DatabaseSettings, DatabaseTarget};
pub use statement::{Answer, Answered, Client, Parameters, Statement, ask};
pub use tokio_postgres::{Error as RowError, Row};
pub use transaction::{Transaction, Work};
pub use whole::Whole;

/// Replaces U+0000, which PostgreSQL's `text` can't hold, with U+FFFD.
pub fn replace_nul(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}
