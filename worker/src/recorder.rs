//! The dependencies shared by everything that records entries.

use std::sync::Arc;

use letterbox_common::ids::WorkspaceId;
use letterbox_database::{Database, DatabaseError, Transaction, Work};

use crate::{executor::Turns, spill, stored_bytes::StoredBytes};

/// The database that entries are recorded in, and the limits that apply. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Recorder {
    pub(crate) database: Database,
    pub(crate) stored_bytes: StoredBytes,
    /// Bytes that a workspace may store in a day; above this its runs are refused.
    pub(crate) max_daily_bytes: u64,
    /// What takes the runs that are recorded, if there is room.
    pub(crate) turns: Arc<Turns>,
}

/// What entries become, recorded in batches.
pub(crate) trait Recorded: Sized {
    fn workspace(&self) -> WorkspaceId;

    /// Stores all of a batch, or nothing, and takes these messages out of the spill. It is
    /// committed when this returns.
    ///
    /// # Errors
    /// Transient when the database is unavailable: whether it committed is then unknown, and
    /// doesn't matter because a repeat changes nothing. Permanent when one breaks a constraint.
    fn store(
        recorder: &Recorder,
        batch: &[&Self],
        spilled: &[i64],
    ) -> impl Future<Output = Result<(), DatabaseError>> + Send;
}

impl Recorder {
    /// Stores entries in one transaction, in which these messages leave the spill.
    ///
    /// # Errors
    /// When it is not committed: what it stores must not be acknowledged then.
    pub(crate) async fn store<W: Work>(
        &self,
        name: &'static str,
        work: &W,
        spilled: &[i64],
    ) -> Result<W::Output, DatabaseError> {
        let leaving = Leaving { work, spilled };
        let stored = self.database.transaction(name, &leaving).await?;
        stored.ok_or_else(|| DatabaseError::gone(name))
    }
}

struct Leaving<'w, W> {
    work: &'w W,
    spilled: &'w [i64],
}

impl<W: Work> Work for Leaving<'_, W> {
    type Output = W::Output;

    async fn run(&self, transaction: &Transaction<'_>) -> Result<Option<W::Output>, DatabaseError> {
        match spill::leave(transaction, self.spilled).await? {
            true => self.work.run(transaction).await,
            false => Ok(None),
        }
    }
}
