//! The errors between a process and the broker, and the time limit of every wait for the broker,
//! including that for the end of a channel.

use std::time::Duration;

use lapin::{
    Channel, ErrorKind,
    protocol::{AMQPErrorKind, AMQPHardError, AMQPSoftError},
};

pub(crate) const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Why a session ended before it was stopped.
#[derive(Debug, Clone, thiserror::Error)]
pub enum BrokerError {
    /// An error of the AMQP client, or one that the broker answered with.
    #[error(transparent)]
    Lapin(#[from] lapin::Error),
    /// The broker did not answer within this time.
    #[error("no answer from the broker within {0:?}")]
    TimedOut(Duration),
    /// The broker or a queue did something that ends the session.
    #[error("{0}")]
    Ended(String),
}

impl BrokerError {
    /// Whether the broker rejects the login, the virtual host, a missing right, or a queue that
    /// exists with other arguments: a retry fails, too, until an operator changes that.
    pub fn is_refusal(&self) -> bool {
        use AMQPSoftError::{ACCESSREFUSED, PRECONDITIONFAILED};
        matches!(
            self.answer(),
            Some(
                AMQPErrorKind::Soft(ACCESSREFUSED | PRECONDITIONFAILED)
                    | AMQPErrorKind::Hard(AMQPHardError::NOTALLOWED)
            )
        )
    }

    /// Whether the broker answered that the thing asked for does not exist.
    pub(crate) fn is_not_found(&self) -> bool {
        self.answer() == Some(&AMQPErrorKind::Soft(AMQPSoftError::NOTFOUND))
    }

    /// The error that the broker answered with, if it did.
    fn answer(&self) -> Option<&AMQPErrorKind> {
        match self {
            Self::Lapin(error) => match error.kind() {
                ErrorKind::ProtocolError(error) => Some(error.kind()),
                _ => None,
            },
            _ => None,
        }
    }
}

/// Closes a channel that is no longer needed, before its connection is closed. lapin would close it
/// on drop, and log what arrives in between as an error. Nothing depends on the broker's answer.
pub async fn close_channel(channel: &Channel) {
    let _ = with_timeout(CLOSE_TIMEOUT, channel.close(200, "done".into())).await;
}

/// Waits for the broker, at most for `limit`.
///
/// # Errors
/// When it does not answer in time, or lapin fails.
pub async fn with_timeout<T>(
    limit: Duration,
    work: impl Future<Output = lapin::Result<T>>,
) -> Result<T, BrokerError> {
    match tokio::time::timeout(limit, work).await {
        Ok(result) => Ok(result?),
        Err(_) => Err(BrokerError::TimedOut(limit)),
    }
}
