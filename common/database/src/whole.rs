//! Many calls in one transaction: all of them take effect, or none.

use std::sync::Arc;

use tokio::sync::Mutex;

use crate::{
    Database, DatabaseError,
    connection::Connection,
    database::{Call, say},
    transaction::{Session, Transaction},
};

/// A database all of whose calls are one transaction. Nothing takes effect before it is committed;
/// when it is dropped, everything is rolled back.
pub struct Whole {
    database: Database,
    held: Arc<Mutex<HeldTransaction>>,
}

impl Whole {
    /// Begins.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn begin(database: &Database) -> Result<Self, DatabaseError> {
        let (database, held) = database.hold().await?;
        Ok(Self { database, held })
    }

    /// The database as this transaction sees it.
    #[must_use]
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

/// A connection on which a transaction is under way.
pub(crate) struct HeldTransaction {
    /// `None` after the first failure: the connection is closed, and so everything rolled back.
    connection: Option<Connection>,
}

impl HeldTransaction {
    pub(crate) async fn begin(
        connection: Connection,
        said: &[(&'static str, String)],
    ) -> Result<Self, DatabaseError> {
        let transaction = Transaction::begin(Session::new(&connection)).await?;
        say(&transaction, said).await?;
        let connection = Some(connection);
        Ok(Self { connection })
    }

    /// Makes a call as a part of the transaction.
    pub(crate) async fn call<C: Call>(&mut self, call: &C) -> Result<C::Output, DatabaseError> {
        // Put back only if all went well, also not when this is abandoned.
        let connection = self.connection.take().ok_or_else(over)?;
        let output = call.call(Session::part_of_one(&connection)).await?;
        self.connection = Some(connection);
        Ok(output)
    }

    async fn commit(&mut self) -> Result<(), DatabaseError> {
        let connection = self.connection.take().ok_or_else(over)?;
        Session::new(&connection)
            .client
            .batch_execute("COMMIT")
            .await?;
        connection.release();
        Ok(())
    }
}

fn over() -> DatabaseError {
    DatabaseError::rolled_back("whole transaction")
}
