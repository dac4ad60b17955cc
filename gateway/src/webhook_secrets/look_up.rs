//! Looks up the keys of webhooks in batches. Each is fetched once, however many requests ask for it
//! at one moment; for an address without a webhook the result is the decoy's key. A secret is
//! opened, and what a webhook checks besides is parsed, once for each version of its row, so that
//! it takes no time by which a refusal could tell that there is one.

use std::{
    collections::HashMap,
    error::Error,
    sync::Arc,
    time::{Duration, Instant},
};

use letterbox_common::{
    batcher::LookUp,
    cache::Cache,
    sealing::{KeyRing, OpenError, Place, Seal},
    webhook::{WebhookAddress, generate_secret},
};
use letterbox_database::Database;
use parking_lot::Mutex;

use super::{
    store::{self, StoredSecret},
    verifier::{Checks, Verifier},
};
use crate::metrics;

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
const MAX_TOLD: usize = 100;

/// When a gateway last lacked the key of a secret. While that is recent, no signature is called
/// wrong, so that an address without a webhook is answered like a webhook whose secret does not
/// open.
#[derive(Debug, Clone, Default)]
pub(super) struct LookUpTrouble(Arc<Mutex<Option<Instant>>>);

impl LookUpTrouble {
    pub(super) fn is_recent(&self) -> bool {
        let last = *self.0.lock();
        last.is_some_and(|last| last.elapsed() < TROUBLE)
    }

    fn note(&self) {
        *self.0.lock() = Some(Instant::now());
    }
}

/// Looks up webhooks by their addresses. Cheap to clone.
#[derive(Clone)]
pub(super) struct KeysByAddress {
    pub(super) database: Database,
    keys: KeyRing,
    pub(super) trouble: LookUpTrouble,
    /// The webhooks that the log has named recently.
    told: Cache<WebhookAddress, ()>,
    /// The verifiers of webhooks, by the version of their rows.
    verifiers: Cache<(WebhookAddress, i64), MadeVerifier>,
    pub(super) decoy: Arc<Decoy>,
}

/// The verifier of a webhook, or why what is stored makes none.
type MadeVerifier = Result<Arc<Verifier>, String>;

/// Maximum webhooks whose verifiers are kept.
const MAX_VERIFIERS: usize = 10_000;

/// Stands in for a webhook that does not exist, so that its absence takes no less work.
pub(super) struct Decoy {
    sealed: Vec<u8>,
    pub(super) verifier: Arc<Verifier>,
}

impl KeysByAddress {
    /// Creates the look-up and its decoy.
    pub(super) fn new(database: Database, keys: KeyRing) -> Result<Self, Box<dyn Error>> {
        let secret = generate_secret()?;
        let address = WebhookAddress::generate();
        let sealed = keys.seal(place(address), secret.expose())?;
        let verifier = Verifier::new(Checks::decoy(), (address.webhook, 0), &secret, None);
        let verifier = Arc::new(verifier?);
        Ok(Self {
            database,
            keys,
            trouble: LookUpTrouble::default(),
            told: Cache::new(MAX_TOLD, TROUBLE),
            verifiers: Cache::new(MAX_VERIFIERS, Duration::MAX),
            decoy: Arc::new(Decoy { sealed, verifier }),
        })
    }

    /// The verifier of a found webhook, or the decoy's.
    fn verifier_of(&self, found: &StoredSecret) -> MadeVerifier {
        // For what is not live, too, so that it takes as long.
        let key = (found.address, found.version);
        let known = self.verifiers.get(&key).filter(|made| match made {
            Ok(made) => !made.is_over(),
            Err(_) => true,
        });
        match known {
            Some(made) => made,
            None if found.is_live => {
                let made = self.make_verifier(found).map(Arc::new);
                self.verifiers.insert(key, made.clone());
                made
            }
            None => Ok(self.decoy.verifier.clone()),
        }
    }

    fn make_verifier(&self, found: &StoredSecret) -> Result<Verifier, String> {
        let secret = self.keys.open(place(found.address), &found.sealed);
        let secret = secret.map_err(|error| {
            // A key that this gateway lacks is everybody's trouble, what was damaged its webhook's.
            if matches!(error, OpenError::UnknownKey { .. }) {
                self.trouble.note();
            }
            error.to_string()
        })?;
        let of = (found.memory, found.version);
        let former = found.former_sealed.as_ref();
        let former = former.and_then(|sealed| self.keys.open(place(found.address), sealed).ok());
        let former = former.as_ref().zip(found.former_until);
        Verifier::new(Checks::parse(&found.checks)?, of, &secret, former)
    }

    /// The key of a webhook, or the decoy's.
    fn found(&self, found: &StoredSecret) -> FoundSecret {
        let address = found.address;
        let verifier = self.verifier_of(found).inspect_err(|error| {
            metrics::UNSEALING_FAILURES.increment(1);
            // Anyone may send to this address as often as they like, so the log names it once.
            if self.told.get(&address).is_none() {
                self.told.insert(address, ());
                tracing::error!(workspace_id = %address.workspace, webhook_id = %address.webhook,
                    %error, "the stored secret of a webhook can't be used");
            }
        });
        FoundSecret {
            is_live: found.is_live,
            verifier: verifier.ok(),
        }
    }
}

impl LookUp for KeysByAddress {
    type Item = WebhookAddress;
    type Output = FoundSecret;

    async fn look_up(&self, items: Vec<WebhookAddress>) -> Option<Vec<FoundSecret>> {
        let mut wanted = items.clone();
        wanted.sort_unstable();
        wanted.dedup();
        let addresses = wanted.iter().map(|one| (one.workspace, one.webhook));
        let (workspaces, webhooks): (Vec<_>, Vec<_>) = addresses.unzip();
        let decoy = &self.decoy.sealed;
        let finding = store::find_secrets(&self.database, &workspaces, &webhooks, decoy);
        let found = finding.await.ok()?;
        let found = found.iter().map(|one| (one.address, self.found(one)));
        let found: HashMap<_, _> = found.collect();
        let items = items.iter();
        Some(items.map(|address| found[address].clone()).collect())
    }
}

fn place(address: WebhookAddress) -> Place<'static> {
    Place::WebhookSecret {
        workspace: address.workspace,
        webhook: address.webhook,
    }
}
