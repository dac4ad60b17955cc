//! Open batches: what becomes of what was claimed together. A batch is one message to the broker
//! and one row in the database, which is there as long as the batch's outcome is open.
//!
//! ```text
//!            ┌─confirmed────────> closed: the row is deleted
//! open ──────┼─spilled──────────> the row holds the message, durably ──published later──> closed
//!            └─not published────> the lease ends at once; the row stays
//! ```
//! A row that stays keeps its claims free to be taken over. To delete it would say that they are
//! recorded. A gateway that dies leaves an open row, whose lease ends by itself. The protocol is in
//! `acceptance/README.md`.

mod outlet;
mod relay;
mod settlements;
mod spill;
mod store;

use postgres_types::{FromSql, ToSql};

pub use self::settlements::Settlements;
pub(crate) use self::{
    outlet::Outlet,
    relay::Relay,
    spill::{Spill, SpillLimits, Spillable},
    store::STATEMENTS,
};

/// A batch, and the message that carries it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, ToSql, FromSql)]
#[postgres(transparent)]
pub struct BatchId(i64);

impl BatchId {
    /// A new one: 62 random bits. One that was there before, long closed, would only make a few old
    /// claims look open for a moment.
    #[must_use]
    pub fn generate() -> Self {
        Self((uuid::Uuid::new_v4().as_u64_pair().1 & (u64::MAX >> 2)) as i64)
    }
}

impl std::fmt::Display for BatchId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}
