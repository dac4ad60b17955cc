//! PostgreSQL: settings, the pool under a least-rights role, migrations, and what an error means
//! for a retry.

mod call;
mod checkout;
mod connect;
mod error;
pub mod health;
pub mod migrations;
mod settings;
mod tls;

pub use call::{storable, within};
pub use checkout::Checkout;
pub use connect::{Role, connect_once, create_pool};
pub use error::{DatabaseError, Fault};
pub use settings::{DatabaseSettings, DatabaseTarget};
