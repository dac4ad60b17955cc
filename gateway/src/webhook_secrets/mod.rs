//! Who may deliver: the secret of a webhook is looked up, opened, cached for a while, and used to
//! verify signatures.
//!
//! A refusal is never decided from the cache. A request that is about to be refused has always cost
//! one signature check against the cached key (or a decoy), one look-up, and one more check:
//! whether the webhook exists, is known here, was deleted, or belongs to another workspace changes
//! nothing that a sender could measure. A request with a valid signature is served from the cache;
//! should its webhook be gone by then, the claim says so.

mod look_up;
mod store;

use std::{sync::Arc, time::Duration};

use letterbox_common::{
    sealing::KeyRing,
    webhook::{Signature, SigningKey, WebhookAddress},
};
use letterbox_database::Database;
use moka::sync::Cache;
use tokio_util::task::TaskTracker;

use self::look_up::{Found, KeysByAddress, Trouble};
pub(crate) use self::{look_up::DecoyError, store::STATEMENTS};
use crate::batcher::{Batcher, Limits, LookUps};

const MAX_CACHED: u64 = 10_000;
const CACHE_TTL: Duration = Duration::from_secs(60);
const LOOKUPS: Limits = Limits {
    max_queued: 4_096,
    max_bytes: 1 << 20,
    max_batch: 256,
    max_batch_bytes: 1 << 20,
    max_in_flight: 1,
};

/// Why a signature could not be confirmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VerifyError {
    /// The signature is wrong, or there is no such webhook: the sender must not learn which.
    Refused,
    /// The secret could not be looked up or opened. The sender is not to blame.
    Unavailable,
}

/// Verifies signatures.
pub(crate) struct WebhookSecrets {
    lookup: Batcher<LookUps<KeysByAddress>>,
    cache: Cache<WebhookAddress, Arc<SigningKey>>,
    /// Checked where nothing is cached.
    decoy: SigningKey,
    trouble: Trouble,
}

impl WebhookSecrets {
    /// Starts the look-ups as tasks of `tasks`.
    ///
    /// # Errors
    /// When the operating system gives no random bytes for the decoy.
    pub(crate) fn start(
        database: Database,
        keys: KeyRing,
        tasks: &TaskTracker,
    ) -> Result<Self, DecoyError> {
        let (lookup, decoy) = KeysByAddress::new(database, keys)?;
        let trouble = lookup.trouble.clone();
        Ok(Self {
            trouble,
            lookup: Batcher::start("webhook_secrets", LOOKUPS, LookUps(lookup), tasks),
            cache: Cache::builder()
                .max_capacity(MAX_CACHED)
                .time_to_live(CACHE_TTL)
                .build(),
            decoy,
        })
    }

    /// Checks that `signature` is the webhook's over `body`. A missing or malformed signature is
    /// `None`.
    ///
    /// # Errors
    /// See [`VerifyError`].
    pub(crate) async fn verify(
        &self,
        address: WebhookAddress,
        body: &[u8],
        signature: Option<Signature>,
    ) -> Result<(), VerifyError> {
        let cached = self.cache.get(&address);
        if check(cached.as_deref(), &self.decoy, body, signature) {
            return Ok(());
        }
        let found = self.look_up(address).await?;
        let key = found.key.ok_or(VerifyError::Unavailable)?;
        if !check(found.is_live.then_some(&*key), &key, body, signature) {
            return Err(self.refuse());
        }
        self.cache.insert(address, key);
        Ok(())
    }

    fn refuse(&self) -> VerifyError {
        match self.trouble.is_recent() {
            true => VerifyError::Unavailable,
            false => VerifyError::Refused,
        }
    }

    /// Looks whether the webhook is there now, whatever is cached.
    ///
    /// # Errors
    /// See [`VerifyError`].
    pub(crate) async fn find(&self, address: WebhookAddress) -> Result<(), VerifyError> {
        if self.look_up(address).await?.is_live {
            return Ok(());
        }
        self.forget(address);
        Err(VerifyError::Refused)
    }

    async fn look_up(&self, address: WebhookAddress) -> Result<Found, VerifyError> {
        let found = self.lookup.look_up(address).await;
        found.map_err(|_| VerifyError::Unavailable)
    }

    /// Forgets a webhook that turned out to be gone.
    pub(crate) fn forget(&self, address: WebhookAddress) {
        self.cache.invalidate(&address);
    }
}

/// One signature check, with the key or, where there is none, the decoy.
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
