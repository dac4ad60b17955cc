//! The number of queues that this gateway publishes to. It begins with one, and uses more as soon
//! as the number is in the database, where workers read it, so that no queue is without a worker.

mod store;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU16, Ordering::Relaxed},
    },
    time::Duration,
};

use letterbox_broker::retry_delays;
use letterbox_database::Database;
use tokio_util::sync::CancellationToken;

pub(crate) use self::store::STATEMENTS;

const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// The number of queues in each family.
#[derive(Debug)]
pub(crate) struct WorkQueues(AtomicU16);

impl Default for WorkQueues {
    fn default() -> Self {
        Self(AtomicU16::new(1))
    }
}

impl WorkQueues {
    /// The number of queues of a family that may be published to now.
    pub(crate) fn count(&self) -> u16 {
        self.0.load(Relaxed)
    }

    /// Writes the number of queues in each family to the database, and tries again until that
    /// succeeds or `stop`.
    pub(crate) async fn announce(
        self: Arc<Self>,
        database: Database,
        queues: u16,
        stop: CancellationToken,
    ) {
        for pause in retry_delays(FIRST_PAUSE) {
            let announcing = store::announce_work_queues(&database, queues.into());
            if announcing.await.is_ok() {
                self.0.store(queues, Relaxed);
                return;
            }
            let pause = stop.run_until_cancelled(tokio::time::sleep(pause));
            if pause.await.is_none() {
                return;
            }
        }
    }
}
