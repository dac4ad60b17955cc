//! Whether the broker still answers: on any channel of a session, and of the sessions before it.
//!
//! If nothing comes back on any channel, the session ends, and the next one goes to the next node.
//! Where that does not help, as when a single queue is silent and nothing is sent to another,
//! sessions end ever more seldom.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::BrokerError;

/// How long a message may be unconfirmed while nothing else is confirmed on its channel.
pub(super) const SILENT_FOR: Duration = Duration::from_secs(10);
/// After how many sessions that ended so a session's patience no longer doubles: it is 40 s.
const MAX_DOUBLINGS: u32 = 2;

/// What the broker has answered on all channels.
pub(super) struct BrokerAnswers(Mutex<AnswerState>);

struct AnswerState {
    last: Instant,
    /// How many sessions have ended since, because nothing came back.
    silent_sessions: u32,
}

impl Default for BrokerAnswers {
    /// As if it had answered just now.
    fn default() -> Self {
        Self(Mutex::new(AnswerState::answered(Instant::now())))
    }
}

impl BrokerAnswers {
    /// Something has come back.
    pub(super) fn note(&self, now: Instant) {
        *self.0.lock() = AnswerState::answered(now);
    }

    /// Fails if nothing has come back for [`SILENT_FOR`], or for longer if former sessions ended
    /// so: then this one is to end, too.
    pub(super) fn expect(&self) -> Result<(), BrokerError> {
        let mut state = self.0.lock();
        let longer = 1 << state.silent_sessions.min(MAX_DOUBLINGS);
        if state.last.elapsed() < SILENT_FOR * longer {
            return Ok(());
        }
        state.last = Instant::now();
        state.silent_sessions += 1;
        Err(BrokerError::Ended("the broker confirms nothing".into()))
    }
}

impl AnswerState {
    fn answered(now: Instant) -> Self {
        Self {
            last: now,
            silent_sessions: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const A_MOMENT: Duration = Duration::from_millis(1);

    #[tokio::test(start_paused = true)]
    async fn patience_doubles_twice_and_an_answer_makes_it_short_again() {
        let answers = BrokerAnswers::default();
        for _ in 0..2 {
            for doubled in [1, 2, 4, 4] {
                advance(SILENT_FOR * doubled - A_MOMENT).await;
                assert!(answers.expect().is_ok(), "{doubled}");
                advance(A_MOMENT).await;
                assert!(answers.expect().is_err(), "{doubled}");
            }
            answers.note(Instant::now());
        }
    }
}
