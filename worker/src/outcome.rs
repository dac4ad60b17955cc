//! What can come of a message, and what that means for it: acknowledged, held and tried again, or
//! dead-lettered.
//!
//! Nothing is ever returned to the broker to say 'not now': every return counts against the
//! message, and after enough of them the broker would dead-letter it although nothing is wrong with
//! it.

use std::time::Duration;

use letterbox_broker::retry_delays;
use letterbox_database::{DatabaseError, Fault};

/// What came of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Its effect is committed: acknowledge it.
    Done,
    /// A server is away: hold it and try again. Nothing is wrong with it.
    Retry,
    /// It can never be processed: dead-letter it with this reason.
    Reject(Rejection),
}

/// Why an entry can never be processed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rejection {
    /// For the metrics.
    pub(crate) cause: Cause,
    /// For people.
    pub(crate) reason: String,
}

/// The kinds of reasons.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// It can't be read.
    Malformed,
    /// No gateway has claimed it.
    Unclaimed,
    /// The database refuses it.
    Refused,
    /// Its workers died.
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

impl From<&DatabaseError> for Outcome {
    fn from(error: &DatabaseError) -> Self {
        match error.fault {
            Fault::Transient => Self::Retry,
            Fault::Permanent => Self::Reject(error.into()),
        }
    }
}

impl Outcome {
    /// One word for metrics.
    pub(crate) fn label(&self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Retry => "retry",
            Self::Reject(_) => "rejected",
        }
    }
}

/// Pauses between tries: short at first, then longer, without end.
pub(crate) fn pauses() -> impl Iterator<Item = Duration> + Send {
    retry_delays(Duration::from_millis(100))
}
