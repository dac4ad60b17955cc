//! Notices that the server has no connection left: then the process does without another one for a
//! moment, instead of asking with every call. Each attempt takes, until it is refused, a place that
//! somebody else could have, even the one that the administrator needs to look what is wrong.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio_postgres::error::SqlState;

use crate::DatabaseError;

/// How long nothing is asked for after a refusal.
const PAUSE: Duration = Duration::from_millis(500);

/// Whether the server has refused a connection, as far as the calls of one process tell.
#[derive(Debug, Default)]
pub(crate) struct Refusals(Mutex<Option<ConnectionRefusal>>);

#[derive(Debug)]
struct ConnectionRefusal {
    error: DatabaseError,
    /// When one call may try again.
    until: Instant,
}

impl Refusals {
    /// Lets a call try to open a connection.
    ///
    /// # Errors
    /// The last refusal, if that was a moment ago, or another call is trying.
    pub(crate) fn may_try(&self) -> Result<(), DatabaseError> {
        match &mut *self.0.lock() {
            Some(refused) if refused.until > Instant::now() => Err(refused.error.clone()),
            Some(refused) => {
                refused.until = Instant::now() + PAUSE;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Notes what came of getting a connection.
    pub(crate) fn note<T>(&self, got: &Result<T, DatabaseError>) {
        let is_full = |error: &DatabaseError| error.code == Some(SqlState::TOO_MANY_CONNECTIONS);
        let refusal = got.as_ref().err().filter(|error| is_full(error));
        *self.0.lock() = refusal.map(|error| ConnectionRefusal {
            error: error.clone(),
            until: Instant::now() + PAUSE,
        });
    }
}
