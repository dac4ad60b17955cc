//! A pooled connection that may be given up at any await.
//!
//! Dropping a query's future does not stop the query: the next user of the connection would wait
//! behind it. So a connection returns to the pool only when its holder says that it is idle;
//! whatever else happens closes it.

use std::ops::{Deref, DerefMut};

use deadpool_postgres::{Client, Pool};

use crate::DatabaseError;

/// A connection checked out of a pool. Closed when dropped before [`Connection::release`].
pub(crate) struct Connection(Option<Client>);

impl Connection {
    /// Waits for a free connection, as long as the pool allows.
    ///
    /// # Errors
    /// When none becomes free in time, or none can be opened.
    pub(crate) async fn acquire(pool: &Pool) -> Result<Self, DatabaseError> {
        Ok(Self(Some(pool.get().await?)))
    }

    /// Returns the connection to the pool: nothing is in flight on it.
    pub(crate) fn release(mut self) {
        self.0.take();
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.take().map(Client::take);
    }
}

impl Deref for Connection {
    type Target = Client;

    #[expect(
        clippy::expect_used,
        reason = "taken only by release and drop, which consume it"
    )]
    fn deref(&self) -> &Client {
        self.0.as_ref().expect("held until released or dropped")
    }
}

impl DerefMut for Connection {
    #[expect(
        clippy::expect_used,
        reason = "taken only by release and drop, which consume it"
    )]
    fn deref_mut(&mut self) -> &mut Client {
        self.0.as_mut().expect("held until released or dropped")
    }
}
