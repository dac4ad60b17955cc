//! The versions of the schema: numbered files in `migrations/`, embedded here.

use refinery_core::{Error, Migration, Runner, error::Kind};
use tokio_postgres::{Client, error::SqlState};

use crate::DatabaseError;

/// The names and the texts of the files.
const FILES: &[(&str, &str)] = &include!(concat!(env!("OUT_DIR"), "/migrations.rs"));

/// The advisory lock that makes migrating processes wait for each other. An arbitrary number.
const MIGRATION_LOCK: i64 = 0x6c65_7474_6572_626f;

/// What names mean in the migrations, and in the functions that they pin.
const PIN: &str =
    "SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', false)";

/// Why the schema could not be brought up to date.
#[derive(Debug, thiserror::Error)]
pub enum MigrationError {
    /// The lock between migrating processes could not be taken.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// The migrations that the database has applied differ from those that this program knows.
    #[error(
        "the database has a schema that this program does not know, such as one from before the \
         first release: migrate an empty database"
    )]
    UnknownSchema,
    /// A migration failed. Holds which, and why.
    #[error("{0}: {1}")]
    Migration(String, DatabaseError),
    /// The migrations of this program can't be applied at all.
    #[error(transparent)]
    Unusable(Error),
}

impl From<Error> for MigrationError {
    fn from(error: Error) -> Self {
        match error.kind() {
            Kind::DivergentVersion(..) | Kind::MissingVersion(..) => Self::UnknownSchema,
            Kind::Connection(doing, cause) => match cause.downcast_ref::<tokio_postgres::Error>() {
                Some(cause) => Self::Migration(doing.clone(), cause.into()),
                None => Self::Unusable(error),
            },
            _ => Self::Unusable(error),
        }
    }
}

/// An applied migration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// `4` for `V4__forms.sql`.
    pub version: i32,
    /// `forms` for `V4__forms.sql`.
    pub name: String,
}

/// Brings the schema up to this program's version and returns the migrations that were applied.
///
/// # Errors
/// When a migration fails (it is rolled back), or the migrations that the database has applied
/// differ from those that this program knows.
pub async fn migrate(client: &mut Client) -> Result<Vec<Applied>, MigrationError> {
    let pinned = client.execute(PIN, &[]).await;
    pinned.map_err(DatabaseError::from)?;
    let lock = "SELECT pg_advisory_lock($1)";
    let locked = client.execute(lock, &[&MIGRATION_LOCK]).await;
    locked.map_err(DatabaseError::from)?;
    let report = match known() {
        Ok(known) => Runner::new(&known).run_async(client).await,
        Err(error) => Err(error),
    };
    // If this fails the session is gone, and its lock with it.
    let unlock = "SELECT pg_advisory_unlock($1)";
    let _ = client.execute(unlock, &[&MIGRATION_LOCK]).await;
    let applied = report?
        .applied_migrations()
        .iter()
        .map(|m| Applied {
            version: m.version(),
            name: m.name().to_owned(),
        })
        .collect();
    Ok(applied)
}

/// The version that this program was built for.
pub fn known_version() -> i32 {
    let known = known().unwrap_or_default();
    known.iter().map(Migration::version).max().unwrap_or(0)
}

/// The migrations of this program.
fn known() -> Result<Vec<Migration>, Error> {
    let files = FILES.iter();
    files
        .map(|(name, sql)| Migration::unapplied(name, sql))
        .collect()
}

/// The version of the database's schema; 0 if it has none.
pub(crate) async fn database_version(client: &Client) -> Result<i32, DatabaseError> {
    // database_version: the newest migration applied
    const DATABASE_VERSION: &str =
        "SELECT coalesce(max(version), 0) AS version FROM refinery_schema_history";
    match client.query_one(DATABASE_VERSION, &[]).await {
        Ok(row) => Ok(row.try_get("version")?),
        Err(error) if error.code() == Some(&SqlState::UNDEFINED_TABLE) => Ok(0),
        Err(error) => Err(error.into()),
    }
}
