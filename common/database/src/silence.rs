//! Notices that a database does not answer any more: then calls fail at once, instead of each being
//! held until its time limit. Only the check of readiness goes on asking, once a second, and its
//! first answer ends the silence.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
/// How long nothing must have been answered.
const SILENT_AFTER: Duration = Duration::from_secs(4);
/// A call that failed sooner was refused, or found nobody: that is no silence.
const HELD_FOR: Duration = Duration::from_secs(1);

/// Whether the database answers, as far as the calls of one process tell.
#[derive(Debug)]
pub(crate) struct Silence(Mutex<State>);

#[derive(Debug)]
struct State {
    /// When a call was last answered.
    answered: Instant,
    is_silent: bool,
    /// Whether something goes on asking. Otherwise no silence would end.
    is_watched: bool,
}

impl Default for Silence {
    fn default() -> Self {
        Self(Mutex::new(State {
            answered: Instant::now(),
            is_silent: false,
            is_watched: false,
        }))
    }
}

impl Silence {
    /// Notes that the caller goes on asking whatever [`Self::is_silent`] says.
    pub(crate) fn watch(&self) {
        self.0.lock().is_watched = true;
    }

    /// Whether a call need not be tried.
    pub(crate) fn is_silent(&self) -> bool {
        self.0.lock().is_silent
    }

    /// Notes that the server has answered something, if only an error.
    pub(crate) fn note_answer(&self) {
        let mut state = self.0.lock();
        state.answered = Instant::now();
        if std::mem::take(&mut state.is_silent) {
            tracing::info!("the database answers again");
        }
    }

    /// Notes that a call that began at a time got no answer.
    pub(crate) fn note_failure(&self, began: Instant) {
        let mut state = self.0.lock();
        let was_held = began.elapsed() >= HELD_FOR && state.answered.elapsed() >= SILENT_AFTER;
        if state.is_watched && was_held && !state.is_silent {
            state.is_silent = true;
            tracing::warn!("the database does not answer: calls fail at once until it does");
        }
    }
}
