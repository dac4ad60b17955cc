//! PostgreSQL for Letterbox's processes: how it is reached, under which rights, and the one way to
//! ask it something.
//!
//! A store declares its statements with [`statements!`] and runs them through [`Database`]. Nothing
//! else acquires a connection, so that time limits, retries, log lines and latencies by statement
//! are decided here, once.

mod connect;
mod connection;
mod database;
mod error;
pub mod health;
pub mod metrics;
pub mod migrations;
mod settings;
mod statement;
mod tls;
mod transaction;

pub use connect::{Role, connect_once, role_exists};
pub use database::Database;
pub use error::{DatabaseError, Fault};
pub use settings::{DATABASE_URL, DatabaseSettings, DatabaseTarget};
pub use statement::Statement;
pub use transaction::{BoundStatement, Parameters, Transaction, Work};

/// Text that PostgreSQL can store: U+0000, which its `text` can't hold, becomes U+FFFD.
#[must_use]
pub fn replace_nul(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}
