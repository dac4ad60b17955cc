//! The relay: publishes what was spilled when the broker is back, oldest first, under the same ids.
//! Every gateway runs one, so what a gateway has left behind goes out all the same. It takes a few
//! messages at a time, and so leaves the broker to live traffic; what can't be published now lets
//! others go first.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use letterbox_database::DatabaseError;
use tokio_util::sync::CancellationToken;

use super::{Outlet, Spill, store};

/// Messages that are published at once.
const PAGE: i64 = 16;
const PAUSE: Duration = Duration::from_secs(1);
/// How long a message that could not be published lets others go first.
const PUT_OFF: Duration = Duration::from_secs(3);

/// Publishes what is spilled.
pub(crate) struct Relay {
    pub(crate) spill: Arc<Spill>,
    pub(crate) outlet: Arc<Outlet>,
    /// How long others leave a message to this gateway; longer than a publish may take.
    pub(crate) lease: Duration,
}

impl Relay {
    /// Works until `stop`. What it has taken by then, it finishes.
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
            while !self.spill.is_empty() && !stop.is_cancelled() && began.elapsed() < PAUSE {
                match self.relay_page().await {
                    Ok(true) => {}
                    _ => break,
                }
            }
        }
    }

    /// Publishes a few messages. True when there may be more that can be published now.
    async fn relay_page(&self) -> Result<bool, DatabaseError> {
        if !self.outlet.is_open() {
            return Ok(false);
        }
        let database = &self.spill.database;
        let taken = store::take_spilled(database, PAGE, self.lease).await?;
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
            // Not at once: what waits for another queue is next.
            store::put_off_spilled(database, &failed, PUT_OFF).await?;
        }
        Ok(!taken.is_empty())
    }
}
