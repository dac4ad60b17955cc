//! Waiting for a server that is away, while messages are held.

use std::time::Duration;

use letterbox_broker::BrokerError;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{AWAY_TOO_LONG, MAX_HOLD, STOPPED_WHILE_AWAY};
use crate::outcome;

/// Waits for a server that is away, as long as a message may be held. What is not done by then
/// returns to the queue.
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
    pub(super) async fn pause(&mut self) -> Result<(), BrokerError> {
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
