//! The outcomes of processing: an entry is done, tried again later, or dead-lettered.
//!
//! A message is never returned to the broker to mean "not now": every return counts against it, and
//! after enough of them the broker would dead-letter it although nothing is wrong with it.

use std::time::Duration;

use letterbox_broker::retry_delays;
use letterbox_common::text_enum;
use letterbox_database::{DatabaseError, Fault};

/// The outcome of processing an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum EntryOutcome {
    /// Its effect is committed: acknowledge it.
    Done,
    /// The database is unavailable, or a row is locked: try again. Nothing is wrong with it.
    Retry,
    /// A row of its workspace is locked: try again, apart from others.
    Locked,
    /// It can never be processed: dead-letter it with this reason.
    Reject(Rejection),
}

/// Why an entry can never be processed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rejection {
    /// For the metrics.
    pub(crate) cause: Cause,
    /// Shown to operators.
    pub(crate) reason: String,
}

text_enum! {
    /// The kinds of rejections, by their words for the metrics.
    pub(crate) enum Cause {
        /// It can't be decoded.
        Malformed = "malformed",
        /// No gateway has claimed it.
        Unclaimed = "unclaimed",
        /// The database refuses it.
        Refused = "refused",
        /// The workers that processed it died.
        Deadly = "deadly",
    }
}

impl From<&DatabaseError> for EntryOutcome {
    fn from(error: &DatabaseError) -> Self {
        match error.fault {
            Fault::Transient => Self::Retry,
            Fault::Permanent => Self::Reject(Rejection {
                cause: Cause::Refused,
                reason: error.to_string(),
            }),
        }
    }
}

impl EntryOutcome {
    /// One word for metrics.
    pub(crate) fn label(&self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Retry | Self::Locked => "retry",
            Self::Reject(_) => "rejected",
        }
    }
}

/// Pauses between tries: short at first, then longer. Never ends.
pub(crate) fn pauses() -> impl Iterator<Item = Duration> + Send {
    retry_delays(Duration::from_millis(100))
}
