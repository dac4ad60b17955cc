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
mod verifier;

use std::{sync::Arc, time::Duration};

use letterbox_common::{
    sealing::KeyRing,
    webhook::{DeliveryFault, WebhookAddress},
};
use letterbox_database::Database;
use moka::sync::Cache;
use tokio_util::task::TaskTracker;

use self::look_up::{Found, KeysByAddress, Trouble};
use self::verifier::Verifier;
pub(crate) use self::{
    look_up::DecoyError,
    store::STATEMENTS,
    verifier::{Presented, Proven},
};
use crate::{
    batcher::{Batcher, Limits, LookUps},
    faults::Fault,
};

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
    /// The signature is wrong, or there is no such webhook: the sender must not learn which. Its
    /// owner may know what was wrong.
    Refused(Fault),
    /// The secret could not be looked up or opened. The sender is not to blame.
    Unavailable,
}

/// Verifies signatures.
pub(crate) struct WebhookSecrets {
    lookup: Batcher<LookUps<KeysByAddress>>,
    cache: Cache<WebhookAddress, Arc<Verifier>>,
    /// Checked where nothing is cached.
    decoy: Verifier,
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

    /// Checks that a request is signed as the webhook's sender signs.
    ///
    /// # Errors
    /// See [`VerifyError`].
    pub(crate) async fn verify(
        &self,
        address: WebhookAddress,
        request: Presented<'_>,
    ) -> Result<Proven, VerifyError> {
        let cached = self.cache.get(&address);
        if let Some(proven) = check(cached.as_deref(), &self.decoy, request) {
            return Ok(proven);
        }
        let found = self.look_up(address).await?;
        let verifier = found.verifier.ok_or(VerifyError::Unavailable)?;
        let Some(proven) = check(found.is_live.then_some(&*verifier), &verifier, request) else {
            return Err(self.refuse(Fault {
                reason: verifier.complaint(request),
                is_found: found.is_live,
            }));
        };
        self.cache.insert(address, verifier);
        Ok(proven)
    }

    fn refuse(&self, fault: Fault) -> VerifyError {
        match self.trouble.is_recent() {
            true => VerifyError::Unavailable,
            false => VerifyError::Refused(fault),
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
        Err(VerifyError::Refused(Fault {
            reason: DeliveryFault::Digest,
            is_found: false,
        }))
    }

    /// Whether this webhook has been found of late.
    pub(crate) fn knows(&self, address: WebhookAddress) -> bool {
        self.cache.contains_key(&address)
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

/// One signature check, by the webhook's rules or, where there is none, the decoy's.
fn check(verifier: Option<&Verifier>, decoy: &Verifier, request: Presented<'_>) -> Option<Proven> {
    let is_verified = verifier.unwrap_or(decoy).verifies(request);
    verifier
        .filter(|_| is_verified)
        .map(|verifier| verifier.proven)
}
