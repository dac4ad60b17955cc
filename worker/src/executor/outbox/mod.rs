//! The relay: hands due wakes to RabbitMQ, in turn for each workspace, and no more than workers
//! have places for. What is over that waits in the outbox. If the relay dies before it publishes,
//! or the broker loses a wake (somebody empties a queue), it is due again some time later; a run
//! that is woken twice is taken once.
//!
//! Every worker has a relay, and one of them is at work. Another one takes its place within
//! seconds when its lease is over.

mod dispatcher;
mod fairness;
mod store;

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use futures_util::future;
use letterbox_broker::{Publisher, RunWake};
use letterbox_database::{Database, DatabaseError};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

pub(super) use self::store::STATEMENTS;
use self::{
    dispatcher::{Look, Memory},
    store::HandedOver,
};
pub(crate) use self::{fairness::Limits, store::wake_again};
use crate::metrics;

/// Pause when nothing is due.
const IDLE_PAUSE: Duration = Duration::from_millis(100);
/// Pause when something was, or waits for room.
const BUSY_PAUSE: Duration = Duration::from_millis(10);
/// How often to look whether nobody relays.
const STANDBY_PAUSE: Duration = Duration::from_millis(250);
/// Pause when a server is away.
const OUTAGE_PAUSE: Duration = Duration::from_secs(1);
/// How often to say that this worker is alive.
const NOTE_EVERY: Duration = Duration::from_secs(5);

/// What the rest of the worker tells its relay. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct RelayHints {
    more: Arc<Notify>,
    backlog: Arc<AtomicU32>,
    stands_by: Arc<AtomicBool>,
    refused_since: Arc<Mutex<Option<Instant>>>,
}

impl RelayHints {
    /// A run is due, or a place is free: to look now saves the pause.
    pub(crate) fn look(&self) {
        self.more.notify_one();
    }

    /// Whether another worker's relay is known to be at work. While the database does not answer
    /// nobody knows, and it stays as it was.
    pub(crate) fn stands_by(&self) -> bool {
        self.stands_by.load(Ordering::Relaxed)
    }

    fn note_standing(&self, stands_by: bool) {
        self.stands_by.store(stands_by, Ordering::Relaxed);
        if stands_by {
            *self.refused_since() = None;
        }
    }

    /// For how long the broker has taken no wake although there were some.
    pub(crate) fn refused_for(&self) -> Duration {
        let since = *self.refused_since();
        since.map(|since| since.elapsed()).unwrap_or_default()
    }

    /// What became of wakes that were published. What is refused is due again at once, so that
    /// where nothing was to be published nothing is refused any more: it is held, or over.
    fn note_published(&self, taken: usize, refused: usize) {
        let mut since = self.refused_since();
        *since = match (taken, refused) {
            (0, 1..) => since.or_else(|| Some(Instant::now())),
            _ => None,
        };
    }

    fn refused_since(&self) -> MutexGuard<'_, Option<Instant>> {
        self.refused_since
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// How many wakes are in the queue that no worker has.
    pub(crate) fn note_backlog(&self, wakes: u32) {
        self.backlog.store(wakes, Ordering::Relaxed);
    }
}

/// Hands over wakes.
pub(crate) struct Relay {
    pub(crate) database: Database,
    pub(crate) publisher: Publisher,
    /// Names this process.
    pub(crate) name: String,
    /// Runs that this worker executes at once.
    pub(crate) places: u16,
    pub(crate) limits: Limits,
    pub(crate) hints: RelayHints,
}

impl Relay {
    /// Relays until `stop`.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let worker = Uuid::new_v4();
        let (mut memory, mut noted): (Option<Memory>, Option<Instant>) = (None, None);
        while !stop.is_cancelled() {
            if noted.is_none_or(|at| at.elapsed() > NOTE_EVERY) {
                let noting = store::note_worker(&self.database, worker, &self.name, self.places);
                noted = noting.await.is_ok().then(Instant::now);
            }
            let pause = match self.turn(worker, &mut memory).await {
                Ok(pause) => {
                    self.hints.note_standing(memory.is_none());
                    pause
                }
                Err(_) => {
                    // Whether the last look was committed is not known.
                    memory = None;
                    OUTAGE_PAUSE
                }
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.hints.more.notified(), if memory.is_some() => {}
                () = stop.cancelled() => {}
            }
        }
        // Where this fails, others find out by the time.
        let _ = store::forget_worker(&self.database, worker).await;
    }

    /// Looks at the outbox, and publishes what that gives. Gives the pause until the next turn.
    /// Nothing is locked while the broker is waited for.
    async fn turn(
        &self,
        worker: Uuid,
        memory: &mut Option<Memory>,
    ) -> Result<Duration, DatabaseError> {
        if memory.is_none() && !store::may_lead(&self.database, worker).await? {
            return Ok(STANDBY_PAUSE);
        }
        let look = Look {
            worker,
            limits: self.limits,
            has_backlog: self.hints.backlog.load(Ordering::Relaxed) > 0,
            memory: memory.as_ref(),
        };
        let Some(looked) = self.database.transaction("relay", &look).await? else {
            // Another relay leads.
            *memory = None;
            return Ok(STANDBY_PAUSE);
        };
        *memory = Some(looked.memory);
        let lost = self.publish(&looked.handed_over).await;
        if !lost.is_empty() {
            store::take_back(&self.database, &lost).await?;
            return Ok(OUTAGE_PAUSE);
        }
        Ok(match looked.is_busy {
            true => BUSY_PAUSE,
            false => IDLE_PAUSE,
        })
    }

    /// Publishes wakes; gives those that the broker has not confirmed.
    async fn publish<'w>(&self, wakes: &'w [HandedOver]) -> Vec<&'w HandedOver> {
        let publishing = wakes.iter().map(|wake| {
            let (workspace, run) = (wake.lane.workspace, wake.run);
            let message = RunWake { workspace, run }.message(&self.name);
            self.publisher.publish(message)
        });
        let results = future::join_all(publishing).await;
        let confirmed = results.iter().filter(|result| result.is_ok()).count();
        metrics::RUN_WAKES.increment(confirmed as u64);
        self.hints
            .note_published(confirmed, results.len() - confirmed);
        let lost = wakes.iter().zip(&results);
        lost.filter(|(_, result)| result.is_err())
            .map(|(wake, _)| wake)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wakes_get_older_for_as_long_as_the_broker_refuses_them() {
        let hints = RelayHints::default();
        hints.note_published(0, 0);
        assert_eq!(hints.refused_for(), Duration::ZERO);
        hints.note_published(0, 2);
        let first = hints.refused_for();
        hints.note_published(0, 1);
        assert!(hints.refused_for() > first, "since the first");
        let ends: [fn(&RelayHints); 3] = [
            |hints| hints.note_published(1, 1),
            |hints| hints.note_published(0, 0),
            |hints| hints.note_standing(true),
        ];
        for end in ends {
            hints.note_published(0, 1);
            assert!(hints.refused_for() > Duration::ZERO);
            end(&hints);
            assert_eq!(hints.refused_for(), Duration::ZERO);
        }
    }
}
