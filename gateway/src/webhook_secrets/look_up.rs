//! Looks up the keys of webhooks in batches. Each is fetched and opened once, however many requests
//! ask for it at one moment; for an address without a webhook the result is the decoy's key.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use letterbox_common::{
    RandomError,
    sealing::{KeyRing, Place, SealError},
    webhook::{WebhookAddress, generate_secret},
};
use letterbox_database::{Database, DatabaseError};
use moka::sync::Cache;

use super::{
    store::{self, StoredSecret},
    verifier::Verifier,
};
use crate::metrics;
use letterbox_common::batcher::LookUp;

/// The decoy could not be created.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DecoyError {
    #[error(transparent)]
    Random(#[from] RandomError),
    #[error(transparent)]
    Seal(#[from] SealError),
}

/// The result of a look-up.
#[derive(Clone)]
pub(super) struct FoundSecret {
    /// Whether the webhook is live; if not, `verifier` is the decoy's.
    pub(super) is_live: bool,
    /// `None` if the stored secret can't be used.
    pub(super) verifier: Option<Arc<Verifier>>,
}

/// How long a secret that could not be used is remembered.
const TROUBLE: Duration = Duration::from_secs(60);
/// Maximum webhooks that the log names in that time.
const MAX_TOLD: u64 = 100;

/// When a secret last could not be used. While that is recent, no signature is called wrong, so
/// that an address without a webhook is answered like a webhook whose secret does not open.
#[derive(Debug, Clone, Default)]
pub(super) struct Trouble(Arc<Mutex<Option<Instant>>>);

impl Trouble {
    pub(super) fn is_recent(&self) -> bool {
        let last = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.is_some_and(|last| last.elapsed() < TROUBLE)
    }

    fn note(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }
}

/// Looks up webhooks by their addresses.
pub(super) struct KeysByAddress {
    database: Database,
    keys: KeyRing,
    pub(super) trouble: Trouble,
    /// The webhooks that the log has named recently.
    told: Cache<WebhookAddress, ()>,
    decoy: Decoy,
}

/// Stands in for a webhook that does not exist, so that its absence takes no less work.
struct Decoy {
    address: WebhookAddress,
    sealed: Vec<u8>,
}

impl KeysByAddress {
    /// Creates the look-up and its decoy, and also returns the decoy's verifier.
    ///
    /// # Errors
    /// When the operating system gives no random bytes.
    pub(super) fn new(database: Database, keys: KeyRing) -> Result<(Self, Verifier), DecoyError> {
        let (secret, address) = (generate_secret()?, WebhookAddress::generate());
        let sealed = keys.seal(place(address), secret.expose())?;
        let looking_up = Self {
            database,
            keys,
            trouble: Trouble::default(),
            told: Cache::builder()
                .max_capacity(MAX_TOLD)
                .time_to_live(TROUBLE)
                .build(),
            decoy: Decoy { address, sealed },
        };
        Ok((looking_up, Verifier::decoy(&secret, address)))
    }

    /// Opens a secret, the webhook's or the decoy's.
    fn open(&self, found: &StoredSecret) -> FoundSecret {
        let address = found.address;
        let sealed_for = if found.is_live {
            address
        } else {
            self.decoy.address
        };
        let opened = self.keys.open(place(sealed_for), &found.sealed);
        let opened = opened.map_err(|error| error.to_string());
        let verifier = opened.and_then(|secret| Verifier::new(found, &secret));
        let verifier = verifier.inspect_err(|error| {
            metrics::UNSEALING_FAILURES.increment(1);
            self.trouble.note();
            // Anyone may send to this address as often as they like, so the log names it once.
            if self.told.get(&address).is_none() {
                self.told.insert(address, ());
                tracing::error!(workspace_id = %address.workspace, webhook_id = %address.webhook,
                    %error, "the stored secret of a webhook can't be used");
            }
        });
        FoundSecret {
            is_live: found.is_live,
            verifier: verifier.ok().map(Arc::new),
        }
    }
}

impl LookUp for KeysByAddress {
    type Item = WebhookAddress;
    type Output = FoundSecret;
    type Error = DatabaseError;

    async fn look_up(&self, items: Vec<WebhookAddress>) -> Result<Vec<FoundSecret>, DatabaseError> {
        let mut wanted = items.clone();
        wanted.sort_unstable();
        wanted.dedup();
        let found = store::find(&self.database, &wanted, &self.decoy.sealed).await?;
        let found: HashMap<_, _> = found
            .iter()
            .map(|one| (one.address, self.open(one)))
            .collect();
        Ok(items.iter().map(|address| found[address].clone()).collect())
    }
}

fn place(address: WebhookAddress) -> Place<'static> {
    Place::WebhookSecret {
        workspace: address.workspace,
        webhook: address.webhook,
    }
}
