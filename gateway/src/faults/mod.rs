//! Why deliveries were refused, for the owners of their webhooks: senders are told nothing. Written
//! down beside the requests, and only so much a second; whether there is such a webhook, the
//! statement finds out.

mod store;

use std::time::Duration;

use jiff::Timestamp;
use letterbox_common::{
    process::vital::vital,
    webhook::{DeliveryFault, WebhookAddress},
};
use letterbox_database::Database;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio_util::task::TaskTracker;

pub(crate) use self::store::STATEMENTS;

/// Faults that may wait to be written down. One more is not.
const MAX_WAITING: usize = 512;
/// Faults that are written down at once, and how often: a flood of them costs no more.
const MAX_BATCH: usize = 256;
const PAUSE: Duration = Duration::from_secs(1);

/// A refused delivery.
#[derive(Debug, Clone)]
struct Refused {
    address: WebhookAddress,
    at: Timestamp,
    reason: DeliveryFault,
    request_id: Option<String>,
}

/// Writes refusals down.
pub(crate) struct Faults(Sender<Refused>);

impl Faults {
    /// Starts writing as a task of `tasks`, which ends when the value is dropped.
    pub(crate) fn start(database: Database, tasks: &TaskTracker) -> Self {
        let (refusals, waiting) = mpsc::channel(MAX_WAITING);
        tasks.spawn(vital("faults", write(database, waiting)));
        Self(refusals)
    }

    /// Notes a refusal. Best effort, and the same work for every address.
    pub(crate) fn note(
        &self,
        address: WebhookAddress,
        reason: DeliveryFault,
        request_id: Option<String>,
    ) {
        let refused = Refused {
            address,
            at: Timestamp::now(),
            reason,
            request_id,
        };
        // What is too much is not written down.
        let _ = self.0.try_send(refused);
    }
}

async fn write(database: Database, mut waiting: Receiver<Refused>) {
    let mut refused = Vec::with_capacity(MAX_BATCH);
    while waiting.recv_many(&mut refused, MAX_BATCH).await > 0 && !waiting.is_closed() {
        if let Err(error) = store::note(&database, &refused).await {
            tracing::debug!(%error, "refusals are not written down");
        }
        refused.clear();
        tokio::time::sleep(PAUSE).await;
    }
}
