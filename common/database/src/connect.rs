//! Connections that never wait forever and have no more rights than their process needs.
//!
//! Every session takes the role of its process when it starts and sets timeouts for statements,
//! locks and idle transactions; the pool has timeouts for waiting, connecting and recycling. TCP
//! keep-alive detects a lost peer.

use std::time::Duration;

use deadpool_postgres::{Manager, ManagerConfig, Pool, RecyclingMethod, Runtime, Timeouts};
use tokio_postgres::{Client, Config};

use letterbox_common::process::settings::SettingError;

use crate::{DatabaseError, DatabaseTarget, tls};

/// The rights of a session. See `migrations/V1__roles.sql`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// `letterbox_gateway`
    Gateway,
    /// `letterbox_worker`
    Worker,
    /// `letterbox_operator`
    Operator,
    /// `letterbox_desk`: people by their sessions
    Desk,
    /// The login of the URL itself: for migrations.
    Login,
}

impl Role {
    fn name(self) -> Option<&'static str> {
        match self {
            Self::Gateway => Some("letterbox_gateway"),
            Self::Worker => Some("letterbox_worker"),
            Self::Operator => Some("letterbox_operator"),
            Self::Desk => Some("letterbox_desk"),
            Self::Login => None,
        }
    }

    /// The time limit of one call, including the wait for a connection and retries.
    pub(crate) fn time_limit(self) -> Duration {
        match self {
            // A sender waits for the answer.
            Self::Gateway => Duration::from_secs(5),
            Self::Worker | Self::Desk => Duration::from_secs(10),
            Self::Operator | Self::Login => Duration::from_secs(30),
        }
    }

    /// How long a statement may wait for a lock. What gateways and workers do for everybody goes on
    /// without the tenant whose row is locked, while senders still wait.
    fn lock_timeout(self) -> &'static str {
        match self {
            Self::Gateway | Self::Worker => "1s",
            _ => "3s",
        }
    }

    /// Gateways and workers find rows by their keys and never scan a table. Their sessions tell the
    /// planner so, because a plan that was made and kept while a table was small would scan it for
    /// every batch. A scan that a statement can't do without would hide what else it costs, so a
    /// table of one row has a key, too. An equality of the first column of a key would still let it
    /// go through a whole index in that order, so joins with what is empty at times have
    /// `= ANY (ARRAY[…])` there, and for the whole key where a further table has the rest of it.
    /// Generic plans do not depend on the arguments, so no statement is planned twice. Compiling a
    /// plan would take longer than executing it.
    fn planner_options(self) -> &'static str {
        match self {
            Self::Gateway | Self::Worker => {
                " -c enable_seqscan=off -c enable_hashjoin=off -c enable_mergejoin=off \
                 -c plan_cache_mode=force_generic_plan -c jit=off"
            }
            _ => "",
        }
    }
}

/// How long a connection outside of any pool may take, with its handshake.
const ONCE_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// How long a caller waits for a free connection.
const WAIT_TIMEOUT: Duration = Duration::from_secs(3);
/// The timeouts of a session, and the isolation that functions of the database count on: each of
/// their statements sees what was committed before it. Migrations are exempt.
const SESSION: &str = "-c statement_timeout=4s \
    -c idle_in_transaction_session_timeout=10s -c default_transaction_isolation=read\\ committed";

/// Creates a pool of at most `size` connections, without connecting yet.
pub(crate) fn create_pool(
    target: &DatabaseTarget,
    role: Role,
    application: &str,
    size: usize,
) -> Result<Pool, SettingError> {
    let connector = tls::connector(&target.check)?;
    let config = session(target, role, application);
    let recycling = ManagerConfig {
        recycling_method: RecyclingMethod::Fast,
    };
    let manager = Manager::from_config(config, connector, recycling);
    Pool::builder(manager)
        .max_size(size)
        .runtime(Runtime::Tokio1)
        .timeouts(Timeouts {
            wait: Some(WAIT_TIMEOUT),
            create: Some(CONNECT_TIMEOUT),
            recycle: Some(WAIT_TIMEOUT),
        })
        .build()
        .map_err(|error| SettingError::new("LETTERBOX_DATABASE_POOL_SIZE", error))
}

/// Opens one connection outside of any pool: for migrations, and for tests that inspect the
/// database.
pub async fn connect_once(
    target: &DatabaseTarget,
    role: Role,
    application: &str,
) -> Result<Client, DatabaseError> {
    let connector =
        tls::connector(&target.check).map_err(|error| DatabaseError::setting(&error))?;
    let session = session(target, role, application);
    let connecting = tokio::time::timeout(ONCE_TIMEOUT, session.connect(connector));
    let connected = connecting.await;
    let (client, connection) =
        connected.map_err(|_| DatabaseError::timed_out("connecting", ONCE_TIMEOUT))??;
    tokio::spawn(async move {
        // The client's own calls report what ends the connection.
        let _ = connection.await;
    });
    Ok(client)
}

/// Whether a role exists. Asks as the login of the URL, which needs no role.
pub async fn role_exists(
    target: &DatabaseTarget,
    role: Role,
    application: &str,
) -> Result<bool, DatabaseError> {
    let client = connect_once(target, Role::Login, application).await?;
    let asked = "SELECT to_regrole($1) IS NOT NULL AS it_exists";
    let row = client.query_one(asked, &[&role.name()]).await?;
    Ok(row.try_get("it_exists")?)
}

fn session(target: &DatabaseTarget, role: Role, application: &str) -> Config {
    let mut config = target.config.clone();
    let given = config.get_options().unwrap_or_default().to_owned();
    if let Some(name) = role.name() {
        config.options(format!(
            "{given} {SESSION} -c lock_timeout={}{} -c role={name}",
            role.lock_timeout(),
            role.planner_options()
        ));
    }
    // Of several hosts the next one is tried in time, when one is silent.
    let hosts = config.get_hosts().len().max(1);
    let each = CONNECT_TIMEOUT / u32::try_from(hosts).unwrap_or(u32::MAX);
    config
        .application_name(application)
        .connect_timeout(each)
        .keepalives(true)
        .keepalives_idle(Duration::from_secs(30))
        .tcp_user_timeout(Duration::from_secs(10));
    config
}
