//! Who may deliver: a webhook's secret, looked up, opened, kept for a while, and used to check a
//! signature.
//!
//! A refusal is never decided from what is kept. A request that is about to be refused has always
//! cost one signature check against what is kept (or a decoy), one look into the database, and one
//! more check: whether the webhook exists, is known here, was deleted, or belongs to another
//! workspace changes nothing that a sender could measure. A request with a right signature is
//! served from what is kept; should its webhook be gone by then, the claim says so.

mod store;

use std::{sync::Arc, time::Duration};

use deadpool_postgres::Pool;
use letterbox_common::{
    sealing::{KeyRing, SealError},
    webhook::{Signature, SigningKey, WebhookAddress, generate_secret, seal_place},
};
use moka::sync::Cache;
use tokio_util::task::TaskTracker;

pub use self::store::FIND_SECRETS;
use self::store::{Found, Lookup};
use crate::batcher::{Batcher, Limits};

const KEPT_WEBHOOKS: u64 = 10_000;
const KEPT_FOR: Duration = Duration::from_secs(60);
const LOOKUPS: Limits = Limits {
    queue: 4_096,
    batch: 256,
    lanes: 1,
};

/// Why a signature could not be confirmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VerifyError {
    /// Wrong signature, no such webhook: nobody learns which.
    Refused,
    /// The secret could not be looked up or opened; the sender is not to blame.
    Unavailable,
}

/// The secrets of all webhooks, as far as they are needed.
pub struct WebhookSecrets {
    lookup: Batcher<Lookup>,
    keys: KeyRing,
    kept: Cache<WebhookAddress, Arc<SigningKey>>,
    decoy: Decoy,
}

/// Stands in for a webhook that is not there, so that its absence takes no less work.
struct Decoy {
    key: SigningKey,
    address: WebhookAddress,
    sealed: Vec<u8>,
}

impl WebhookSecrets {
    /// Starts the look-ups as tasks of `tasks`.
    ///
    /// # Errors
    /// When the operating system gives no random bytes for the decoy.
    pub fn start(pool: Pool, keys: KeyRing, tasks: &TaskTracker) -> Result<Self, SealError> {
        let decoy = Decoy::new(&keys)?;
        let lookup = Lookup {
            pool,
            decoy: decoy.sealed.clone(),
        };
        Ok(Self {
            lookup: Batcher::start("webhook_secrets", LOOKUPS, lookup, tasks),
            decoy,
            keys,
            kept: Cache::builder()
                .max_capacity(KEPT_WEBHOOKS)
                .time_to_live(KEPT_FOR)
                .build(),
        })
    }

    /// Checks that `signature` is the webhook's over `body`. A missing or malformed signature is
    /// `None`.
    ///
    /// # Errors
    /// See [`VerifyError`].
    pub async fn verify(
        &self,
        address: WebhookAddress,
        body: &[u8],
        signature: Option<Signature>,
    ) -> Result<(), VerifyError> {
        let kept = self.kept.get(&address);
        if check(kept.as_deref(), &self.decoy.key, body, signature) {
            return Ok(());
        }
        let found = self
            .lookup
            .submit(address)
            .await
            .map_err(|_| VerifyError::Unavailable)?;
        let key = self.open(address, &found)?;
        if !check(found.lives.then_some(&key), &key, body, signature) {
            return Err(VerifyError::Refused);
        }
        self.kept.insert(address, Arc::new(key));
        Ok(())
    }

    /// Forgets a webhook that turned out to be gone.
    pub fn forget(&self, address: WebhookAddress) {
        self.kept.invalidate(&address);
    }

    /// The key of what was found: the webhook's, or the decoy's.
    fn open(&self, address: WebhookAddress, found: &Found) -> Result<SigningKey, VerifyError> {
        let sealed_to = if found.lives {
            address
        } else {
            self.decoy.address
        };
        let opened = self.keys.open(seal_place(&sealed_to), &found.sealed);
        opened.map(|secret| SigningKey::new(&secret)).map_err(|error| {
            metrics::counter!("letterbox_unsealing_failures_total").increment(1);
            tracing::error!(workspace_id = %address.workspace, webhook_id = %address.webhook, %error, "a webhook's secret does not open");
            VerifyError::Unavailable
        })
    }
}

/// One signature check, whatever there is to check with.
fn check(
    key: Option<&SigningKey>,
    decoy: &SigningKey,
    body: &[u8],
    signature: Option<Signature>,
) -> bool {
    let verified = key
        .unwrap_or(decoy)
        .verifies(body, &signature.unwrap_or(Signature::ZERO));
    verified && key.is_some() && signature.is_some()
}

impl Decoy {
    fn new(keys: &KeyRing) -> Result<Self, SealError> {
        let secret = generate_secret()?;
        let address = WebhookAddress::generate();
        let sealed = keys.seal(seal_place(&address), secret.expose())?;
        Ok(Self {
            key: SigningKey::new(&secret),
            address,
            sealed,
        })
    }
}
