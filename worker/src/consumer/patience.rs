//! Waits for an unavailable server while messages are held.

use std::time::Duration;

use letterbox_broker::BrokerError;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::outcome;

/// How long messages are held while the database is unavailable. Well under the 30 minutes after
/// which the broker takes back every unacknowledged message.
pub(super) const MAX_HOLD: Duration = Duration::from_secs(1_500);
/// Why a consumer that held messages ended.
pub(super) const AWAY_TOO_LONG: &str = "the database or the broker was unavailable for too long";
pub(super) const STOPPED_WHILE_AWAY: &str =
    "stopped while the database or the broker was unavailable";

/// Paces retries against an unavailable server, for as long as a message may be held. After that
/// the message returns to its queue.
pub(super) struct Patience<'s> {
    began: Instant,
    pauses: Box<dyn Iterator<Item = Duration> + Send>,
    stop: &'s CancellationToken,
}

impl<'s> Patience<'s> {
    pub(super) fn new(stop: &'s CancellationToken) -> Self {
        Self {
            began: Instant::now(),
            pauses: Box::new(outcome::pauses()),
            stop,
        }
    }

    /// Waits before the next try.
    ///
    /// # Errors
    /// When a message may not be held any longer, or at `stop`.
    pub(super) async fn pause(&mut self) -> Result<(), BrokerError> {
        // Ending the session is what returns the message to its queue.
        if self.began.elapsed() > MAX_HOLD {
            return Err(BrokerError::Ended(AWAY_TOO_LONG.into()));
        }
        let pause = self.pauses.next().unwrap_or(MAX_HOLD);
        tokio::select! {
            () = tokio::time::sleep(pause) => Ok(()),
            () = self.stop.cancelled() => Err(BrokerError::Ended(STOPPED_WHILE_AWAY.into())),
        }
    }
}
