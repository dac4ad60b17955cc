//! Whether the database answers and has a schema that this program knows, asked once a second.

use std::time::Duration;

use deadpool_postgres::Pool;
use tokio_util::sync::CancellationToken;

use super::{Checkout, DatabaseError, migrations};
use crate::process::readiness::Part;

const EVERY: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(3);

/// Keeps the readiness of the part "database" true to the facts until `stop`.
pub async fn watch(pool: Pool, part: Part, stop: CancellationToken) {
    loop {
        match check(&pool).await {
            Ok(()) => part.ready(),
            Err(reason) => part.waits_for(reason),
        }
        tokio::select! { () = stop.cancelled() => return, () = tokio::time::sleep(EVERY) => {} }
    }
}

/// One look: the database answers, and its schema is at least as new as this program. A newer one
/// is accepted, because migrations only add what older programs do not need, and are applied before
/// new programs are rolled out.
///
/// # Errors
/// In words for operators.
pub async fn check(pool: &Pool) -> Result<(), String> {
    let version = tokio::time::timeout(PATIENCE, database_version(pool))
        .await
        .map_err(|_| "the database does not answer".to_owned())?
        .map_err(|error| error.to_string())?;
    let known = migrations::known_version();
    if version < known {
        return Err(format!(
            "the schema has version {version}, this program needs {known}: run 'letterbox migrate'"
        ));
    }
    Ok(())
}

async fn database_version(pool: &Pool) -> Result<i32, DatabaseError> {
    let client = Checkout::get(pool).await?;
    let version = migrations::database_version(&***client).await;
    client.done();
    version
}
