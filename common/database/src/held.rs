//! A transaction that is held open on its connection while calls are made in it.

use crate::{
    DatabaseError,
    connection::Connection,
    transaction::{Call, Session, Transaction, say},
};

/// A connection on which a transaction is under way.
pub(crate) struct HeldTransaction {
    /// `None` after the first failure: the connection is closed, and so everything rolled back.
    connection: Option<Connection>,
}

impl HeldTransaction {
    pub(crate) async fn begin(
        connection: Connection,
        order: &str,
        said: &[(&'static str, String)],
    ) -> Result<Self, DatabaseError> {
        let transaction = Transaction::begin_as(Session::new(&connection), order).await?;
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

    pub(crate) async fn commit(&mut self) -> Result<(), DatabaseError> {
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
