//! A pooled connection that may be abandoned at any await.
//!
//! Dropping the future of a query does not stop the query: the next user of the connection would
//! wait behind it. So a connection returns to the pool only when its holder releases it as idle;
//! otherwise it is closed.

use std::{ops::Deref, time::Instant};

use deadpool_postgres::{Client, Pool};
use letterbox_common::process::metrics::OneMore;

use crate::{DatabaseError, metrics, refusals::Refusals};

/// A connection checked out of a pool. Closed when dropped before [`Connection::release`].
pub(crate) struct Connection {
    client: Option<Client>,
    _in_use: OneMore,
}

impl Connection {
    /// Waits for a free connection, as long as the pool allows.
    pub(crate) async fn acquire(pool: &Pool, refusals: &Refusals) -> Result<Self, DatabaseError> {
        let began = Instant::now();
        let is_new = pool.status().available == 0;
        if is_new {
            refusals.may_try()?;
        }
        let client = pool.get().await.map_err(DatabaseError::from);
        if is_new {
            refusals.note(&client);
        }
        let client = client?;
        metrics::CONNECTION_WAIT.record::<&str>([], began.elapsed());
        Ok(Self {
            client: Some(client),
            _in_use: metrics::CONNECTIONS_IN_USE.hold(),
        })
    }

    /// Returns the connection to the pool. Nothing may be in flight on it.
    pub(crate) fn release(mut self) {
        self.client.take();
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // Detached from the pool, the client is closed when it is dropped.
        self.client.take().map(Client::take);
    }
}

impl Deref for Connection {
    type Target = Client;

    #[expect(
        clippy::expect_used,
        reason = "taken only by release and drop, which consume it"
    )]
    fn deref(&self) -> &Client {
        self.client
            .as_ref()
            .expect("held until released or dropped")
    }
}
