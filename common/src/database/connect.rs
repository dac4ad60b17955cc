//! Connections that can't wait for ever and can't do more than their process may.
//!
//! Every session takes its process's role when it starts and carries time-outs for statements,
//! locks and idle transactions; the pool has time-outs for waiting, connecting and recycling. A
//! lost peer is noticed by TCP keep-alive.

use std::time::Duration;

use deadpool_postgres::{Manager, ManagerConfig, Pool, RecyclingMethod, Runtime, Timeouts};
use tokio_postgres::{Client, Config};

use super::{DatabaseError, DatabaseSettings, DatabaseTarget, tls};
use crate::process::settings::SettingError;

/// Under which rights a session works. See `migrations/V1__roles.sql`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Gateway,
    Worker,
    Operator,
    /// The login of the URL itself: for migrations.
    Login,
}

impl Role {
    fn name(self) -> Option<&'static str> {
        match self {
            Self::Gateway => Some("letterbox_gateway"),
            Self::Worker => Some("letterbox_worker"),
            Self::Operator => Some("letterbox_operator"),
            Self::Login => None,
        }
    }
}

impl Role {
    /// The gateway touches rows by their keys and never reads a table through. It says so, because
    /// a plan that was made while a table was small and kept since would do just that, for every
    /// batch.
    fn planning(self) -> &'static str {
        match self {
            Self::Gateway => {
                " -c enable_seqscan=off -c enable_hashjoin=off -c enable_mergejoin=off"
            }
            _ => "",
        }
    }
}

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// How long a caller waits for a free connection before it hears that the database is not to be
/// had.
const WAIT_TIMEOUT: Duration = Duration::from_secs(3);
/// What one statement may take. A migration may take longer.
const SESSION: &str =
    "-c statement_timeout=4s -c lock_timeout=3s -c idle_in_transaction_session_timeout=10s";

/// Opens a pool; connects to nothing yet.
///
/// # Errors
/// When the URL or its certificates can't be read.
pub fn create_pool(
    settings: &DatabaseSettings,
    role: Role,
    application: &str,
) -> Result<Pool, SettingError> {
    let target = settings.target()?;
    let connector = tls::connector(&target.check)?;
    let config = session(&target, role, application);
    let manager = Manager::from_config(
        config,
        connector,
        ManagerConfig {
            recycling_method: RecyclingMethod::Fast,
        },
    );
    Pool::builder(manager)
        .max_size(usize::from(settings.database_pool_size))
        .runtime(Runtime::Tokio1)
        .timeouts(Timeouts {
            wait: Some(WAIT_TIMEOUT),
            create: Some(CONNECT_TIMEOUT),
            recycle: Some(WAIT_TIMEOUT),
        })
        .build()
        .map_err(|error| SettingError::new("LETTERBOX_DATABASE_POOL_SIZE", error))
}

/// Opens one connection, for a command that does one thing.
///
/// # Errors
/// When the server can't be reached or refuses.
pub async fn connect_once(
    target: &DatabaseTarget,
    role: Role,
    application: &str,
) -> Result<Client, DatabaseError> {
    let connector =
        tls::connector(&target.check).map_err(|error| DatabaseError::setting(&error))?;
    let (client, connection) = session(target, role, application)
        .connect(connector)
        .await?;
    tokio::spawn(async move {
        // The client's own calls report what ends the connection.
        let _ = connection.await;
    });
    Ok(client)
}

fn session(target: &DatabaseTarget, role: Role, application: &str) -> Config {
    let mut config = target.config.clone();
    let given = config
        .get_options()
        .map(|options| format!("{options} "))
        .unwrap_or_default();
    if let Some(name) = role.name() {
        config.options(format!(
            "{given}{SESSION}{} -c role={name}",
            role.planning()
        ));
    }
    config
        .application_name(application)
        .connect_timeout(CONNECT_TIMEOUT)
        .keepalives(true)
        .keepalives_idle(Duration::from_secs(30))
        .tcp_user_timeout(Duration::from_secs(10));
    config
}
