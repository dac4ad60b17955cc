//! The dependencies shared by everything that records entries.

use std::{collections::HashSet, sync::Arc};

use letterbox_common::ids::WorkspaceId;
use letterbox_database::{Database, DatabaseError, Transaction, Work};

use parking_lot::Mutex;
use tokio::join;

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

/// Why nothing of a batch is stored.
pub(crate) enum StoreError {
    /// No gateway has claimed these items of it, told by their positions.
    Unclaimed(HashSet<usize>),
    Database(DatabaseError),
}

impl From<DatabaseError> for StoreError {
    fn from(error: DatabaseError) -> Self {
        Self::Database(error)
    }
}

/// What entries become, recorded in batches.
pub(crate) trait Recorded: Sized {
    fn workspace(&self) -> WorkspaceId;

    /// The positions of items that no gateway has claimed.
    fn unclaimed(
        transaction: &Transaction<'_>,
        batch: &[&Self],
    ) -> impl Future<Output = Result<HashSet<usize>, DatabaseError>> + Send;

    /// Stores all of a batch, or nothing, and takes these messages out of the spill. It is
    /// committed when this returns.
    ///
    /// # Errors
    /// When items are unclaimed. Transient when the database is unavailable: whether it committed
    /// is then unknown, and doesn't matter because a repeat changes nothing. Permanent when one
    /// breaks a constraint.
    fn store(
        recorder: &Recorder,
        batch: &[&Self],
        spilled: &[i64],
    ) -> impl Future<Output = Result<(), StoreError>> + Send;
}

impl Recorder {
    /// Stores a batch in one transaction, in which these messages leave the spill, if all of it is
    /// claimed.
    ///
    /// # Errors
    /// When it is not committed: what it stores must not be acknowledged then.
    pub(crate) async fn store<T: Recorded + Sync, W: Work>(
        &self,
        name: &'static str,
        batch: &[&T],
        work: &W,
        spilled: &[i64],
    ) -> Result<W::Output, StoreError> {
        let storing = Storing {
            batch,
            work,
            spilled,
            unclaimed: Mutex::default(),
        };
        let stored = Box::pin(self.database.transaction(name, &storing)).await?;
        stored.ok_or_else(|| match storing.unclaimed.into_inner() {
            unclaimed if unclaimed.is_empty() => DatabaseError::gone(name).into(),
            unclaimed => StoreError::Unclaimed(unclaimed),
        })
    }
}

struct Storing<'w, T, W> {
    batch: &'w [&'w T],
    work: &'w W,
    spilled: &'w [i64],
    unclaimed: Mutex<HashSet<usize>>,
}

impl<T: Recorded + Sync, W: Work> Work for Storing<'_, T, W> {
    type Output = W::Output;

    async fn run(&self, transaction: &Transaction<'_>) -> Result<Option<W::Output>, DatabaseError> {
        let storing = async || match spill::leave(transaction, self.spilled).await? {
            true => self.work.run(transaction).await,
            false => Ok(None),
        };
        // At once, because hardly ever something is unclaimed.
        let (unclaimed, stored) = join!(biased; T::unclaimed(transaction, self.batch), storing());
        let unclaimed = unclaimed?;
        if unclaimed.is_empty() {
            return stored;
        }
        *self.unclaimed.lock() = unclaimed;
        Ok(None)
    }
}
