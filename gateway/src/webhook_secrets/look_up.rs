//! What a batch of look-ups gives: the key of each webhook that was asked for, found and opened
//! once however many ask for it at one moment; the decoy's key where there is none.

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
use crate::{batcher::LookUp, metrics};

/// The decoy could not be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DecoyError {
    #[error(transparent)]
    Random(#[from] RandomError),
    #[error(transparent)]
    Seal(#[from] SealError),
}

/// What is known of a webhook.
#[derive(Clone)]
pub(super) struct Found {
    /// Whether it is there; if not, `verifier` is the decoy's.
    pub(super) is_live: bool,
    /// None where the secret does not open.
    pub(super) verifier: Option<Arc<Verifier>>,
}

/// How long it is remembered that a secret did not open.
const TROUBLE: Duration = Duration::from_secs(60);
/// Webhooks that the log names in that time.
const MAX_TOLD: u64 = 100;

/// When a secret did not open. As long as this is recent, nobody can be blamed for a signature, and
/// who asks for a webhook that is not there is told the same as who asks for one that does not
/// open.
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
    /// The webhooks that the log has named of late.
    told: Cache<WebhookAddress, ()>,
    decoy: Decoy,
}

/// Stands in for a webhook that does not exist, so that its absence takes no less work.
struct Decoy {
    address: WebhookAddress,
    sealed: Vec<u8>,
}

impl KeysByAddress {
    /// With a decoy, whose key is given, too.
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

    /// What checks the signatures of what was found: the webhook's, or the decoy's.
    fn open(&self, found: &StoredSecret) -> Found {
        let address = found.address;
        let sealed_for = match found.is_live {
            true => address,
            false => self.decoy.address,
        };
        let opened = self.keys.open(place(sealed_for), &found.sealed);
        let opened = opened.map_err(|error| error.to_string());
        let verifier = opened.and_then(|secret| Verifier::new(found, &secret));
        let verifier = verifier.inspect_err(|error| {
            metrics::UNSEALING_FAILURES.increment(1);
            self.trouble.note();
            // Anybody may ask for it, as often as they like.
            if self.told.get(&address).is_none() {
                self.told.insert(address, ());
                tracing::error!(workspace_id = %address.workspace, webhook_id = %address.webhook,
                    %error, "what is stored of a webhook can't be used");
            }
        });
        Found {
            is_live: found.is_live,
            verifier: verifier.ok().map(Arc::new),
        }
    }
}

impl LookUp for KeysByAddress {
    type Item = WebhookAddress;
    type Output = Found;
    type Error = DatabaseError;

    async fn look_up(&self, items: Vec<WebhookAddress>) -> Result<Vec<Found>, DatabaseError> {
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
