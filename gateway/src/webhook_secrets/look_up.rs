//! Looks up the keys of webhooks in batches. Each is fetched and opened once, however many requests
//! ask for it at one moment; for an address without a webhook the result is the decoy's key. What a
//! webhook checks besides is parsed once for each version of its row, so that it takes no time by
//! which a refusal could tell that there is one.

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
    verifier::{Checks, Verifier},
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
    #[error("{0}")]
    Key(String),
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

/// Looks up webhooks by their addresses. Cheap to clone.
#[derive(Clone)]
pub(super) struct KeysByAddress {
    database: Database,
    keys: KeyRing,
    pub(super) trouble: Trouble,
    /// The webhooks that the log has named recently.
    told: Cache<WebhookAddress, ()>,
    /// What webhooks check, by the version of their rows.
    checks: Cache<(WebhookAddress, String), ParsedChecks>,
    decoy: Arc<Decoy>,
}

/// What a webhook checks, or why that can't be parsed.
type ParsedChecks = Result<Arc<Checks>, String>;

/// Maximum webhooks whose checks are kept.
const MAX_CHECKS: u64 = 10_000;

/// Stands in for a webhook that does not exist, so that its absence takes no less work.
struct Decoy {
    address: WebhookAddress,
    sealed: Vec<u8>,
    checks: Arc<Checks>,
}

impl KeysByAddress {
    /// Creates the look-up and its decoy, and also returns the decoy's verifier.
    ///
    /// # Errors
    /// When the operating system gives no random bytes.
    pub(super) fn new(database: Database, keys: KeyRing) -> Result<(Self, Verifier), DecoyError> {
        let (secret, address) = (generate_secret()?, WebhookAddress::generate());
        let sealed = keys.seal(place(address), secret.expose())?;
        let checks = Arc::new(Checks::decoy());
        let verifier = Verifier::new(checks.clone(), address.webhook, &secret);
        let looking_up = Self {
            database,
            keys,
            trouble: Trouble::default(),
            told: Cache::builder()
                .max_capacity(MAX_TOLD)
                .time_to_live(TROUBLE)
                .build(),
            checks: Cache::new(MAX_CHECKS),
            decoy: Arc::new(Decoy {
                address,
                sealed,
                checks,
            }),
        };
        Ok((looking_up, verifier.map_err(DecoyError::Key)?))
    }

    /// What a found webhook checks, or the decoy.
    fn checks_of(&self, found: &StoredSecret) -> ParsedChecks {
        let parse = || match found.is_live {
            true => Checks::parse(&found.checks).map(Arc::new),
            false => Ok(self.decoy.checks.clone()),
        };
        // For what is not live, too, so that it takes as long.
        let key = (found.address, found.version.clone());
        self.checks.get(&key).unwrap_or_else(|| {
            let parsed = parse();
            if found.is_live {
                self.checks.insert(key, parsed.clone());
            }
            parsed
        })
    }

    /// Opens a secret, the webhook's or the decoy's.
    fn open(&self, found: &StoredSecret) -> FoundSecret {
        let address = found.address;
        let sealed_for = if found.is_live {
            address
        } else {
            self.decoy.address
        };
        let checks = self.checks_of(found);
        let opened = self.keys.open(place(sealed_for), &found.sealed);
        let opened = opened.map_err(|error| error.to_string());
        let verifier = checks.and_then(|checks| Verifier::new(checks, found.memory, &opened?));
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
