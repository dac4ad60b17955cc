//! The dependencies shared by everything that records entries.

use letterbox_database::Database;

use crate::{executor::Hand, stored_bytes::StoredBytes};

/// The database that entries are recorded in, and the limits that apply. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Recorder {
    pub(crate) database: Database,
    pub(crate) stored_bytes: StoredBytes,
    /// Bytes that a workspace may store in a day; above this its runs are refused.
    pub(crate) max_daily_bytes: u64,
    /// Told when runs are recorded: it may have places for them.
    pub(crate) hand: Hand,
}
