//! Why deliveries were refused, for the owners of their webhooks: senders are told nothing. Written
//! down beside the requests, and only so much at a time. Webhooks share the room evenly, and those
//! that are not there have another: a flood hides little from the owners of others.

mod kept;
mod store;

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use letterbox_common::{
    process::vital::vital,
    webhook::{DeliveryFault, WebhookAddress},
};
use letterbox_database::Database;
use tokio::sync::Notify;
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};

use self::kept::Kept;
pub(crate) use self::store::STATEMENTS;

/// How often they are written down.
const PAUSE: Duration = Duration::from_secs(1);

/// Why a delivery was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) reason: DeliveryFault,
    /// Whether its webhook was found; false also where nobody looked.
    pub(crate) is_found: bool,
}

/// A refused delivery.
#[derive(Debug, Clone)]
struct Refused {
    address: WebhookAddress,
    at: Timestamp,
    reason: DeliveryFault,
    request_id: Option<String>,
}

/// Writes refusals down.
pub(crate) struct Faults {
    shared: Arc<Shared>,
    _ends: DropGuard,
}

#[derive(Default)]
struct Shared {
    kept: Mutex<Kept>,
    has_some: Notify,
}

impl Faults {
    /// Starts writing as a task of `tasks`, which ends when the value is dropped.
    pub(crate) fn start(database: Database, tasks: &TaskTracker) -> Self {
        let (shared, ended) = (Arc::<Shared>::default(), CancellationToken::new());
        let writing = write(database, shared.clone());
        let until = ended.clone();
        tasks.spawn(vital("faults", async move {
            let _ = until.run_until_cancelled(writing).await;
        }));
        Self {
            shared,
            _ends: ended.drop_guard(),
        }
    }

    /// Notes a refusal. Best effort, and the same work for every address.
    pub(crate) fn note(&self, address: WebhookAddress, fault: Fault, request_id: Option<String>) {
        let refused = Refused {
            address,
            at: Timestamp::now(),
            reason: fault.reason,
            request_id,
        };
        let mut kept = self.shared.kept.lock();
        let kept = kept
            .as_deref_mut()
            .unwrap_or_else(|poisoned| poisoned.get_mut());
        kept.add(refused, fault.is_found);
        self.shared.has_some.notify_one();
    }
}

async fn write(database: Database, shared: Arc<Shared>) {
    loop {
        shared.has_some.notified().await;
        let kept = std::mem::take(&mut *shared.kept.lock().unwrap_or_else(PoisonError::into_inner));
        if let Err(error) = store::note(&database, &kept.into_refused()).await {
            tracing::debug!(%error, "refusals are not written down");
        }
        tokio::time::sleep(PAUSE).await;
    }
}
