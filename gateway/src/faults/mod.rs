//! Faults: why deliveries were refused, for the owners of their webhooks; senders are not told. And
//! how many were taken before, and how many requests to a form were asked to wait. Written apart
//! from the requests, and a bounded number at a time. Webhooks share that bound evenly, and
//! addresses without a webhook have another, so a flood hides little from other owners.

mod kept;
mod store;

use std::{
    collections::HashMap,
    hash::Hash,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use futures_util::FutureExt;
use jiff::Timestamp;
use letterbox_common::{
    form::TokenHash,
    process::vital::vital,
    webhook::{DeliveryFault, WebhookAddress},
};
use letterbox_database::{Database, DatabaseError};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};

use self::kept::{KeptFaults, Refused};
pub(crate) use self::{kept::SecondLook, store::STATEMENTS};

/// Maximum webhooks whose repeats are counted between two writes, and links whose waits are.
const MAX_COUNTED: usize = 1_024;
/// The pause between two writes.
const PAUSE: Duration = Duration::from_secs(1);

/// Why a delivery was refused.
pub(crate) struct WebhookFault {
    pub(crate) reason: DeliveryFault,
    /// What was received, as far as that explains it.
    pub(crate) detail: Option<String>,
    /// Whether its webhook was found; `false` also if it was not looked up.
    pub(crate) is_found: bool,
    /// A look at it that takes more time, if it is its turn.
    pub(crate) second_look: Option<SecondLook>,
}

/// Writes refusals to the database.
pub(crate) struct Faults {
    shared: Arc<SharedFaults>,
    _ends: DropGuard,
}

#[derive(Default)]
struct SharedFaults {
    kept: Mutex<KeptFaults>,
    repeats: Mutex<HashMap<WebhookAddress, i64>>,
    waits: Mutex<HashMap<TokenHash, i64>>,
    has_some: Notify,
}

impl Faults {
    /// Starts the writer as a task of `tasks`, which ends when the value is dropped.
    pub(crate) fn start(database: Database, tasks: &TaskTracker) -> Self {
        let shared = Arc::<SharedFaults>::default();
        let ended = CancellationToken::new();
        let writing = write(database, shared.clone());
        let writing = ended.clone().run_until_cancelled_owned(writing);
        tasks.spawn(vital("faults", writing.map(drop)));
        Self {
            shared,
            _ends: ended.drop_guard(),
        }
    }

    /// Counts a delivery that was taken before. Best effort.
    pub(crate) fn count_repeat(&self, address: WebhookAddress) {
        self.count(&self.shared.repeats, address);
    }

    /// Counts a request that a live form link lets wait. Best effort.
    pub(crate) fn count_wait(&self, link: TokenHash) {
        self.count(&self.shared.waits, link);
    }

    fn count<K: Eq + Hash>(&self, counts: &Mutex<HashMap<K, i64>>, of: K) {
        let mut counts = counts.lock();
        if counts.len() < MAX_COUNTED || counts.contains_key(&of) {
            *counts.entry(of).or_default() += 1;
            self.shared.has_some.notify_one();
        }
    }

    /// Notes a refusal. Best effort, and the same work for every address.
    pub(crate) fn note(
        &self,
        address: WebhookAddress,
        fault: WebhookFault,
        request_id: Option<String>,
    ) {
        let refused = Refused {
            address,
            at: Timestamp::now(),
            reason: fault.reason,
            detail: fault.detail,
            second_look: fault.second_look,
            request_id,
        };
        self.shared.kept.lock().add(refused, fault.is_found);
        self.shared.has_some.notify_one();
    }
}

async fn write(database: Database, shared: Arc<SharedFaults>) {
    loop {
        shared.has_some.notified().await;
        let refused = std::mem::take(&mut *shared.kept.lock()).into_refused();
        let refused = look_again(refused).await;
        let repeats = std::mem::take(&mut *shared.repeats.lock());
        let waits = std::mem::take(&mut *shared.waits.lock());
        let noting = async {
            if !refused.is_empty() {
                store::note(&database, &refused).await?;
            }
            if !repeats.is_empty() {
                store::count(&database, &repeats).await?;
            }
            if !waits.is_empty() {
                store::count_waits_of(&database, &waits).await?;
            }
            Ok::<_, DatabaseError>(())
        };
        if let Err(error) = noting.await {
            tracing::debug!(%error, "refusals, repeats or waits were not written");
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Adds what a second look at some of them finds.
async fn look_again(refused: Vec<Refused>) -> Vec<Refused> {
    let looking = |mut one: Refused| {
        let look = one.second_look.take();
        // A panic is the failure of this look alone.
        let found = look.and_then(|look| catch_unwind(AssertUnwindSafe(look)).ok().flatten());
        one.detail = found.or(one.detail);
        one
    };
    if refused.iter().all(|one| one.second_look.is_none()) {
        return refused;
    }
    let looking = move || refused.into_iter().map(looking).collect();
    tokio::task::spawn_blocking(looking)
        .await
        .unwrap_or_default()
}
