//! One publish: its message, and what its caller is told.

use tokio::sync::oneshot;

use crate::Message;

/// Why a message is not known to be safe with the broker. After [`PublishError::TimedOut`] and
/// [`PublishError::Lost`] it may be there nevertheless.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    /// There is no connection, or the broker blocks publishing. The message was not sent.
    #[error("no broker connection takes messages now")]
    Unavailable,
    /// Too many messages wait to be published. The message was not sent.
    #[error("too many messages wait to be published")]
    Overloaded,
    /// The broker answered with a negative acknowledgement.
    #[error("the broker refused the message")]
    Refused,
    /// The broker may still take it: republish under the same id only.
    #[error("no confirm in time")]
    TimedOut,
    /// The broker may have taken it: republish under the same id only.
    #[error("the connection broke, or the broker blocked it, before the confirm")]
    Lost,
}

impl PublishError {
    /// The value of the metrics' label.
    pub fn label(self) -> &'static str {
        match self {
            Self::Unavailable => "unavailable",
            Self::Overloaded => "overloaded",
            Self::Refused => "refused",
            Self::TimedOut => "timed_out",
            Self::Lost => "lost",
        }
    }
}

/// A message to publish, and who waits for its confirm.
pub(super) struct Job {
    pub(super) message: Message,
    pub(super) confirm: ConfirmSender,
}

/// Carries the result of one publish to its caller.
pub(super) type ConfirmSender = oneshot::Sender<Result<(), PublishError>>;
