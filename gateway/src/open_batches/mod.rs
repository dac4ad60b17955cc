//! Open batches: the state of items that were claimed together. A batch is one message to the
//! broker and one row in the database, which exists as long as the outcome of the batch is open.
//!
//! ```text
//!            ┌─confirmed────────> closed: the row is deleted
//! open ──────┼─spilled──────────> closed: what it had is in the spill, durably
//!            └─not published────> the lease ends at once; the row stays
//! ```
//! A row that stays leaves its claims free to be taken over; deleting it would mean that they are
//! recorded. A gateway that dies leaves an open row, whose lease ends by itself. The protocol is in
//! `acceptance/README.md`.

mod outlet;
mod settlements;
mod spill;
mod store;

use postgres_types::{FromSql, ToSql};

pub use self::settlements::Settlements;
pub(crate) use self::{
    outlet::Outlet,
    spill::Spill,
    store::{STATEMENTS, SpillSize, Spillable},
};

/// The id of a batch and of its message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, ToSql, FromSql)]
#[postgres(transparent)]
pub struct BatchId(i64);

impl BatchId {
    /// Generates an id of 62 random bits. A collision with a closed batch would only make a few old
    /// claims look open for a moment.
    pub fn generate() -> Self {
        Self((uuid::Uuid::new_v4().as_u64_pair().1 & (u64::MAX >> 2)) as i64)
    }
}

impl std::fmt::Display for BatchId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}
