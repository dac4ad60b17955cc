//! Batches that fail are halved until the item at fault stands alone.

use letterbox_database::{DatabaseError, Fault};
use tokio_postgres::error::SqlState;

/// Whether one item of a batch may be at fault: the database refuses it, it is too much for one
/// statement, or somebody keeps its row locked. Otherwise the database is unavailable for all.
pub(crate) fn may_be_one_of(error: &DatabaseError) -> bool {
    let of_an_item = [
        SqlState::QUERY_CANCELED,
        SqlState::LOCK_NOT_AVAILABLE,
        SqlState::CARDINALITY_VIOLATION,
    ];
    error.fault == Fault::Permanent
        || error
            .code
            .as_ref()
            .is_some_and(|code| of_an_item.contains(code))
}
