//! The relay: publishes spilled messages when the broker is back, oldest first, under the same ids.
//! Every gateway runs one, so messages of a gateway that died are published, too. It takes a few
//! messages at a time, to leave the broker to live traffic; messages that can't be published now
//! let others go first.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use letterbox_database::DatabaseError;
use tokio_util::sync::CancellationToken;

use super::{Outlet, Spill, store};

/// Messages published at once.
const PAGE: i64 = 16;
const PAUSE: Duration = Duration::from_secs(1);
/// How much longer than a publish may take other gateways leave a message to the one that has taken
/// it. If one takes it too soon nevertheless, it is published twice under one id.
const SETTLING: Duration = Duration::from_secs(1);
/// How long a message that could not be published is put off.
const PUT_OFF: Duration = Duration::from_secs(3);

/// Publishes spilled messages.
pub(crate) struct SpillRelay {
    pub(crate) spill: Arc<Spill>,
    pub(crate) outlet: Arc<Outlet>,
    /// How long a publish may take.
    pub(crate) publish_timeout: Duration,
}

impl SpillRelay {
    /// Runs until `stop`, then finishes the messages that it has taken.
    pub(crate) async fn run(self, stop: CancellationToken) {
        // Failures are logged where they happen, and tried again after the pause.
        while stop
            .run_until_cancelled(tokio::time::sleep(PAUSE))
            .await
            .is_some()
        {
            self.outlet.report();
            if self.spill.measure(self.outlet.is_open()).await.is_err() {
                continue;
            }
            let began = Instant::now();
            // Back to the top once a second at least, so that the size of the spill stays current.
            while !self.spill.is_empty() && !stop.is_cancelled() && began.elapsed() < PAUSE {
                match self.relay_page().await {
                    Ok(true) => {}
                    _ => break,
                }
            }
        }
    }

    /// Publishes a few messages. Returns `true` if there may be more that can be published now.
    async fn relay_page(&self) -> Result<bool, DatabaseError> {
        if !self.outlet.is_open() {
            return Ok(false);
        }
        let database = &self.spill.database;
        let lease = self.publish_timeout + SETTLING;
        let taken = store::take_spilled(database, PAGE, lease).await?;
        let results = join_all(taken.iter().map(|one| self.outlet.relay(one))).await;
        let (mut confirmed, mut failed) = (Vec::new(), Vec::new());
        for (message, result) in taken.iter().zip(results) {
            match result {
                Ok(()) => confirmed.push(message.batch),
                Err(_) => failed.push(message.batch),
            }
        }
        if !confirmed.is_empty() {
            store::close(database, &confirmed).await?;
        }
        if !failed.is_empty() {
            // Put off, so that messages for other queues are taken next.
            store::put_off_spilled(database, &failed, PUT_OFF).await?;
        }
        Ok(!taken.is_empty())
    }
}
