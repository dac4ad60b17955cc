//! The outcomes of processing: an entry is done, tried again later, or dead-lettered.
//!
//! A message is never returned to the broker to mean "not now": every return counts against it, and
//! after enough of them the broker would dead-letter it although nothing is wrong with it.

use std::time::Duration;

use letterbox_broker::retry_delays;
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

/// The kinds of rejections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// It can't be decoded.
    Malformed,
    /// No gateway has claimed it.
    Unclaimed,
    /// The database refuses it.
    Refused,
    /// The workers that processed it died.
    Deadly,
}

impl Cause {
    /// One word for metrics.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::Unclaimed => "unclaimed",
            Self::Refused => "refused",
            Self::Deadly => "deadly",
        }
    }
}

impl From<&DatabaseError> for Rejection {
    fn from(error: &DatabaseError) -> Self {
        Self {
            cause: Cause::Refused,
            reason: error.to_string(),
        }
    }
}

impl From<&DatabaseError> for EntryOutcome {
    fn from(error: &DatabaseError) -> Self {
        match error.fault {
            Fault::Transient => Self::Retry,
            Fault::Permanent => Self::Reject(error.into()),
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
