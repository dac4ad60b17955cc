//! Checks once a second that the database answers and has a schema that this program knows.

use std::time::{Duration, Instant};

use letterbox_common::process::readiness::Component;
use tokio_util::sync::CancellationToken;

use crate::{
    Database, DatabaseError, migrations,
    transaction::{Call, Session},
};

const INTERVAL: Duration = Duration::from_secs(1);
const TIME_LIMIT: Duration = Duration::from_secs(3);

/// Keeps the readiness of `component` up to date until `stop`.
pub async fn watch(database: Database, component: Component, stop: CancellationToken) {
    database.silence.watch();
    loop {
        database.note_pool();
        match check(&database).await {
            Ok(()) => component.ready(),
            Err(reason) => component.not_ready(reason),
        }
        tokio::select! { () = stop.cancelled() => return, () = tokio::time::sleep(INTERVAL) => {} }
    }
}

/// Checks once that the database answers, takes writes, and has a schema at least as new as this
/// program. A newer one is accepted, because migrations only add what older programs do not need,
/// and are applied before new programs are rolled out.
///
/// # Errors
/// Says what is wrong, for operators.
pub async fn check(database: &Database) -> Result<(), String> {
    let asking = async {
        let version = schema_version(database).await?;
        takes_writes(database).await?;
        Ok::<_, DatabaseError>(version)
    };
    let began = Instant::now();
    let version = tokio::time::timeout(TIME_LIMIT, asking)
        .await
        .map_err(|_| {
            database.silence.note_failure(began);
            DatabaseError::silent().to_string()
        })?
        .map_err(|error| error.to_string())?;
    let known = migrations::known_version();
    if version < known {
        return Err(OldSchema { version, known }.to_string());
    }
    Ok(())
}

/// The schema lacks migrations that this program needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the schema has version {version}, this program needs {known}: run 'letterbox migrate'")]
pub struct OldSchema {
    /// The last migration that was applied; 0 before the first.
    pub version: i32,
    /// The last migration that this program knows.
    pub known: i32,
}

/// The version of the schema; 0 where there is none.
pub async fn schema_version(database: &Database) -> Result<i32, DatabaseError> {
    // Not `Database::query`: readiness logs a change once, not every failed check.
    database.attempt(&SchemaVersion).await
}

struct SchemaVersion;

impl Call for SchemaVersion {
    type Output = i32;

    async fn call(&self, Session { client, .. }: Session<'_>) -> Result<i32, DatabaseError> {
        migrations::database_version(client).await
    }
}

/// What mends a standby.
pub const LEAVE_STANDBY: &str = "let DATABASE_URL name the primary, or promote this one";
/// What mends a database that an operator has made read-only.
pub const ALLOW_WRITES: &str = "ALTER SYSTEM RESET default_transaction_read_only; SELECT \
     pg_reload_conf(); or ALTER DATABASE or ALTER ROLE, where it was set there";

/// Checks that a transaction may write, and commits durably.
///
/// # Errors
/// When it may not, in words for operators; and when the database can't be asked.
pub async fn takes_writes(database: &Database) -> Result<(), DatabaseError> {
    database.attempt(&TakesWrites).await
}

/// takes_writes: whether a transaction may write, and commits durably.
const TAKES_WRITES: &str = "SELECT pg_is_in_recovery() AS is_standby,
    current_setting('transaction_read_only') = 'on' AS is_read_only,
    current_setting('synchronous_commit') = 'off' AS is_not_durable";

struct TakesWrites;

impl Call for TakesWrites {
    type Output = ();

    async fn call(&self, Session { client, .. }: Session<'_>) -> Result<(), DatabaseError> {
        let row = client.query_one(TAKES_WRITES, &[]).await?;
        // An error also keeps this connection from being used again.
        if row.try_get("is_standby")? {
            let told = format!("the database refuses writes, a read-only standby: {LEAVE_STANDBY}");
            return Err(DatabaseError::read_only(&told));
        }
        if row.try_get("is_read_only")? {
            let told = format!("the database refuses writes, it is read-only: {ALLOW_WRITES}");
            return Err(DatabaseError::read_only(&told));
        }
        match row.try_get("is_not_durable")? {
            true => Err(DatabaseError::not_durable("synchronous_commit is off")),
            false => Ok(()),
        }
    }
}
