//! The spill: messages that gateways could not publish wait in the database. When the broker is
//! back, they are published under the same ids, oldest first. Workers do this, because a gateway
//! that was taken over must not be able to remove what was accepted.
//!
//! A few messages are taken at a time, to leave the broker to live traffic; those that can't be
//! published now let others go first.

mod store;

use std::time::Duration;

use futures_util::future::join_all;
use letterbox_broker::Publisher;
use letterbox_database::{Database, DatabaseError};
use tokio_util::sync::CancellationToken;

pub(crate) use self::store::STATEMENTS;
use self::store::Spilled;

/// Messages published at once.
const PAGE: i64 = 16;
const PAUSE: Duration = Duration::from_secs(1);
/// How long a publish may take.
const PUBLISH_FOR: Duration = Duration::from_secs(2);
/// How long other workers leave a message to the one that has taken it. If one takes it too soon
/// nevertheless, it is published twice under one id, which changes nothing.
const LEASE: Duration = Duration::from_secs(3);
/// How long a message that could not be published is put off.
const PUT_OFF: Duration = Duration::from_secs(3);

/// Publishes spilled messages.
pub(crate) struct SpillRelay {
    pub(crate) database: Database,
    pub(crate) publisher: Publisher,
    /// The name of this process.
    pub(crate) name: String,
}

impl SpillRelay {
    /// Runs until `stop`, then finishes the messages that it has taken.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let pause = || tokio::time::sleep(PAUSE);
        while stop.run_until_cancelled(pause()).await.is_some() {
            // Failures are logged where they happen, and tried again after the pause.
            while self.publisher.is_open() && !stop.is_cancelled() {
                match self.relay().await {
                    Ok(true) => {}
                    _ => break,
                }
            }
        }
    }

    /// Publishes a few messages. Returns `true` if there may be more that can be published now.
    async fn relay(&self) -> Result<bool, DatabaseError> {
        let taken = store::take(&self.database, PAGE, LEASE).await?;
        let published = join_all(taken.iter().map(|one| self.publish(one))).await;
        let (mut confirmed, mut failed) = (Vec::new(), Vec::new());
        for (message, is_confirmed) in taken.iter().zip(published) {
            match is_confirmed {
                true => confirmed.push(message.batch),
                false => failed.push(message.batch),
            }
        }
        if !confirmed.is_empty() {
            store::close(&self.database, &confirmed).await?;
        }
        if !failed.is_empty() {
            store::put_off(&self.database, &failed, PUT_OFF).await?;
        }
        Ok(!taken.is_empty())
    }

    /// Whether the broker has confirmed a message.
    async fn publish(&self, spilled: &Spilled) -> bool {
        let (key, id) = (spilled.routing_key.clone(), spilled.batch.to_string());
        let message = spilled.body.clone().into_message(key, id, &self.name);
        let publishing = self.publisher.publish(message);
        let published = tokio::time::timeout(PUBLISH_FOR, publishing).await;
        matches!(published, Ok(Ok(())))
    }
}
