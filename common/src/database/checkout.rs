//! A pooled connection that may be given up at any await.
//!
//! Dropping a query's future does not stop the query: the next user of the connection would wait
//! behind it. So a connection goes back to the pool only when its holder says that it is done;
//! whatever else happens closes it.

use std::ops::{Deref, DerefMut};

use deadpool_postgres::{Client, Pool};

use super::DatabaseError;

/// A connection checked out of a pool. Closed when dropped before [`Checkout::done`].
pub struct Checkout(Option<Client>);

impl Checkout {
    /// Waits for a free connection, as long as the pool allows.
    ///
    /// # Errors
    /// When there is none in time, or none can be made.
    pub async fn get(pool: &Pool) -> Result<Self, DatabaseError> {
        Ok(Self(Some(pool.get().await?)))
    }

    /// Nothing is under way on the connection: the next one may have it.
    pub fn done(mut self) {
        self.0.take();
    }
}

impl Drop for Checkout {
    fn drop(&mut self) {
        self.0.take().map(Client::take);
    }
}

impl Deref for Checkout {
    type Target = Client;

    #[expect(
        clippy::expect_used,
        reason = "taken only by done and drop, which consume the checkout"
    )]
    fn deref(&self) -> &Client {
        self.0.as_ref().expect("held until done or dropped")
    }
}

impl DerefMut for Checkout {
    #[expect(
        clippy::expect_used,
        reason = "taken only by done and drop, which consume the checkout"
    )]
    fn deref_mut(&mut self) -> &mut Client {
        self.0.as_mut().expect("held until done or dropped")
    }
}
