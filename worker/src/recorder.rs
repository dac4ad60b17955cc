//! The dependencies shared by everything that records entries.

use letterbox_database::Database;

use crate::{executor::RelayHints, stored_bytes::StoredBytes};

/// The database that entries are recorded in, and the limits that apply. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Recorder {
    pub(crate) database: Database,
    pub(crate) stored_bytes: StoredBytes,
    /// Bytes that a workspace may store in a day; above this its runs are refused.
    pub(crate) max_daily_bytes: u64,
    /// Notified when runs are due.
    pub(crate) relay: RelayHints,
}
