//! Many calls in one transaction: all of them see one moment, and take effect, or none.

use std::sync::Arc;

use tokio::sync::Mutex;

use crate::{Database, DatabaseError, held::HeldTransaction};

/// A database all of whose calls are one transaction, at the isolation level REPEATABLE READ: what
/// somebody else has changed since it began, it can't change ([`DatabaseError::asks_for_retry`]).
/// Nothing takes effect before it is committed; when it is dropped, everything is rolled back.
pub struct Whole {
    database: Database,
    held: Arc<Mutex<HeldTransaction>>,
}

impl Whole {
    /// Begins.
    pub async fn begin(database: &Database) -> Result<Self, DatabaseError> {
        Self::begin_as(database, "BEGIN ISOLATION LEVEL REPEATABLE READ").await
    }

    /// Begins one that PostgreSQL lets read only: nothing is written, and no row is locked.
    pub async fn begin_reading(database: &Database) -> Result<Self, DatabaseError> {
        Self::begin_as(database, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await
    }

    async fn begin_as(database: &Database, order: &str) -> Result<Self, DatabaseError> {
        let (database, held) = database.hold(order).await?;
        Ok(Self { database, held })
    }

    /// The database as this transaction sees it.
    pub fn database(&self) -> &Database {
        &self.database
    }

    /// Commits all calls.
    ///
    /// # Errors
    /// When one of them has failed, whatever became of that, or the database does not answer: then
    /// it is not known whether they take effect.
    pub async fn commit(self) -> Result<(), DatabaseError> {
        self.held.lock().await.commit().await
    }
}
