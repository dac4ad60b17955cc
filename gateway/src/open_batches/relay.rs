//! The relay: publishes what was spilled when the broker is back, oldest first, under the same ids.
//! Every gateway runs one, so what a gateway has left behind goes out all the same. It takes a few
//! messages at a time, and so leaves the broker to live traffic.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use letterbox_database::DatabaseError;
use tokio_util::sync::CancellationToken;

use super::{Outlet, Spill, Spillable, store};

/// Messages that are published at once.
const PAGE: i64 = 16;
const PAUSE: Duration = Duration::from_secs(1);

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
            if self.spill.measure().await.is_err() {
                continue;
            }
            while !self.spill.is_empty() && !stop.is_cancelled() {
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
        // Of a broker that did not answer, one message asks whether it does now.
        let count = if self.outlet.is_suspect() { 1 } else { PAGE };
        let database = &self.spill.database;
        let taken = store::take_spilled(database, count, self.lease).await?;
        let publishing = taken.iter().map(|one| self.publish(one));
        let results = join_all(publishing).await;
        let pairs = || taken.iter().zip(&results);
        let (confirmed, failed): (Vec<_>, Vec<_>) = pairs().partition(|(_, is_safe)| **is_safe);
        let ids = |list: Vec<(&Spillable, _)>| -> Vec<_> {
            list.into_iter().map(|(one, _)| one.batch).collect()
        };
        let (confirmed, failed) = (ids(confirmed), ids(failed));
        if !confirmed.is_empty() {
            store::close(database, &confirmed).await?;
        }
        if !failed.is_empty() {
            store::return_spilled(database, &failed).await?;
            return Ok(false);
        }
        Ok(!taken.is_empty())
    }

    async fn publish(&self, message: &Spillable) -> bool {
        self.outlet.probe(message).await.is_ok()
    }
}
