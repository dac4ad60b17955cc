//! What recording an entry needs, whatever it becomes.

use letterbox_database::Database;

use crate::{executor::RelayHints, stored_bytes::StoredBytes};

/// Where entries are recorded, and within which bounds. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Recorder {
    pub(crate) database: Database,
    pub(crate) stored_bytes: StoredBytes,
    /// What a workspace may store in a day: beyond, runs are refused.
    pub(crate) max_daily_bytes: u64,
    /// Told of runs that are due.
    pub(crate) relay: RelayHints,
}
