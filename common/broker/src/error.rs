//! What can go wrong between a process and the broker, and the time limit that every wait for the
//! broker has.

use std::time::Duration;

use lapin::{
    ErrorKind,
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
    /// Whether the broker refuses the login, the virtual host, or what the login may not do, or
    /// knows another queue by this name: until somebody changes that, it will refuse it again.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        let Self::Lapin(error) = self else {
            return false;
        };
        let ErrorKind::ProtocolError(error) = error.kind() else {
            return false;
        };
        matches!(
            error.kind(),
            AMQPErrorKind::Soft(AMQPSoftError::ACCESSREFUSED | AMQPSoftError::PRECONDITIONFAILED)
                | AMQPErrorKind::Hard(AMQPHardError::NOTALLOWED)
        )
    }
}

/// Waits for the broker, for a limited time.
pub(crate) async fn with_timeout<T>(
    limit: Duration,
    work: impl Future<Output = lapin::Result<T>>,
) -> Result<T, BrokerError> {
    match tokio::time::timeout(limit, work).await {
        Ok(result) => Ok(result?),
        Err(_) => Err(BrokerError::TimedOut(limit)),
    }
}
