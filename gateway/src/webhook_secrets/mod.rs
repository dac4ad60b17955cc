//! Signature checks: the secret of a webhook is looked up, opened, cached for a while, and used to
//! verify signatures.
//!
//! A refusal is never decided from the cache. Every refused request has cost one signature check
//! with the cached key (or a decoy), one look-up, and one more check, each by every algorithm that
//! a webhook here has: whether the webhook exists, is cached, was deleted, or belongs to another
//! workspace changes nothing that a sender could measure. A request with a valid signature is
//! served from the cache, where look-ups of others can't delay it; if its webhook is gone by then,
//! the claim fails.

mod look_up;
mod second_look;
mod store;
mod verifier;

use std::{error::Error, net::IpAddr, sync::Arc, time::Duration};

use futures_util::FutureExt;
use letterbox_common::{
    batcher::{BatchLimits, Batcher, LookUps},
    cache::Cache,
    process::{client_address::ClientAddress, vital::vital},
    sealing::KeyRing,
    webhook::{DeliveryFault, Kinds, Reply, Rules, Tool, WebhookAddress, tools_of},
};
use letterbox_database::Database;
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};

use self::look_up::{FoundSecret, KeysByAddress};
use self::{second_look::SecondLooks, verifier::Verifier};
pub(crate) use self::{
    store::STATEMENTS,
    verifier::{Presented, Proven},
};
use crate::{faults::WebhookFault, recent::Counts};

const MAX_CACHED: usize = 10_000;
/// Long, so that a webhook in use is never looked up: what its key opens is claimed only while the
/// webhook is live.
const CACHE_TTL: Duration = Duration::from_secs(3600);
/// Wrong signatures of one client in a minute that make it suspect.
const MANY: u32 = 60;
const MANY_WITHIN: Duration = Duration::from_secs(60);
const MAX_CLIENTS: usize = 100_000;
/// How often the gateway looks which algorithms there are. No request makes it look.
const KINDS_EVERY: Duration = Duration::from_secs(30);

/// Why a signature could not be confirmed.
pub(crate) enum VerifyError {
    /// The signature is wrong, or there is no such webhook: the sender must not learn which. The
    /// owner may know the fault.
    Refused(WebhookFault),
    /// The secret could not be looked up or opened, which is not the sender's fault.
    Unavailable,
}

/// Verifies signatures.
pub(crate) struct WebhookSecrets {
    lookup: Batcher<LookUps<KeysByAddress>>,
    /// Look-ups for clients with many wrong signatures: the flood of one does not hold up the first
    /// request of another's webhook. They are answered like all, because many senders may share an
    /// address.
    suspect_lookup: Batcher<LookUps<KeysByAddress>>,
    wrong_signatures: Counts<ClientAddress>,
    cache: Cache<WebhookAddress, Arc<Verifier>>,
    /// Has the decoy, which is checked if no key is cached.
    by_address: KeysByAddress,
    second_looks: SecondLooks,
    kinds: Arc<Kinds>,
    _ends: DropGuard,
}

impl WebhookSecrets {
    /// Starts the look-ups as tasks of `tasks`.
    pub(crate) fn start(
        database: Database,
        keys: KeyRing,
        tasks: &TaskTracker,
    ) -> Result<Self, Box<dyn Error>> {
        let by_address = KeysByAddress::new(database, keys)?;
        let kinds = Arc::<Kinds>::default();
        let noticing = notice_kinds(by_address.database.clone(), kinds.clone());
        let ended = CancellationToken::new();
        let noticing = ended.clone().run_until_cancelled_owned(noticing);
        tasks.spawn(vital("webhook_kinds", noticing.map(drop)));
        let start = |name| {
            let lookups = LookUps(by_address.clone());
            Batcher::start(name, BatchLimits::SMALL_ITEMS, lookups, tasks)
        };
        Ok(Self {
            second_looks: SecondLooks::default(),
            kinds,
            _ends: ended.drop_guard(),
            lookup: start("webhook_secrets"),
            suspect_lookup: start("suspect_webhook_secrets"),
            wrong_signatures: Counts::new(MAX_CLIENTS, MANY_WITHIN),
            cache: Cache::new(MAX_CACHED, CACHE_TTL),
            by_address,
        })
    }

    /// Verifies the signature of a request.
    pub(crate) async fn verify(
        &self,
        address: WebhookAddress,
        presented: Presented<'_>,
    ) -> Result<Proven, VerifyError> {
        self.prove(address, presented, Verifier::proves).await
    }

    /// The answer to the question in a query, to who has proven to be the tool.
    pub(crate) async fn answer(
        &self,
        address: WebhookAddress,
        presented: Presented<'_>,
    ) -> Result<Reply, VerifyError> {
        let answers =
            |verifier: &Verifier, presented| Some((verifier.answers(presented)?, verifier.version));
        let (reply, version) = self.prove(address, presented, answers).await?;
        self.find(address, presented.from, version).await?;
        Ok(reply)
    }

    async fn prove<'p, T>(
        &self,
        address: WebhookAddress,
        presented: Presented<'p>,
        by: impl Fn(&Verifier, Presented<'p>) -> Option<T>,
    ) -> Result<T, VerifyError> {
        // Also by the decoy, whose result is ignored: the same work for every address.
        let check = |verifier: Option<&Verifier>, decoy: &Verifier| {
            let checked = by(verifier.unwrap_or(decoy), presented);
            let proven = checked.filter(|_| verifier.is_some());
            if proven.is_none() {
                let keys = &verifier.unwrap_or(decoy).keys;
                self.kinds.even_out(keys, presented.request.body);
            }
            proven
        };
        let cached = self.cache.get(&address).filter(|cached| !cached.is_over());
        if let Some(proven) = check(cached.as_deref(), &self.by_address.decoy.verifier) {
            return Ok(proven);
        }
        let client = presented.from.into();
        let found = self.look_up(address, client).await?;
        let verifier = found.verifier.ok_or(VerifyError::Unavailable)?;
        let Some(proven) = check(found.is_live.then_some(&*verifier), &verifier) else {
            let is_suspect = self.is_suspect(client);
            self.wrong_signatures.add(&client);
            let reason = verifier.complaint(presented);
            // Looked for whatever the reason is, so that it takes as long.
            let tools = tools_of(presented.request.headers);
            let look = || self.second_looks.at(address, &verifier, presented, reason);
            return Err(self.refuse(WebhookFault {
                reason,
                is_found: found.is_live,
                detail: tools.filter(|_| reason == DeliveryFault::Missing),
                second_look: (!is_suspect).then(look).flatten(),
            }));
        };
        self.cache.insert(address, verifier);
        Ok(proven)
    }

    fn refuse(&self, fault: WebhookFault) -> VerifyError {
        // A webhook whose secret can't be decrypted answers the same: they must not be told apart.
        if self.by_address.trouble.is_recent() {
            VerifyError::Unavailable
        } else {
            VerifyError::Refused(fault)
        }
    }

    /// Checks that the webhook still exists in this version, regardless of the cache.
    pub(crate) async fn find(
        &self,
        address: WebhookAddress,
        from: IpAddr,
        version: i64,
    ) -> Result<(), VerifyError> {
        let found = self.look_up(address, from.into()).await?;
        let is_same = |verifier: Arc<Verifier>| verifier.version == version;
        if found.is_live && found.verifier.is_some_and(is_same) {
            return Ok(());
        }
        self.forget(address);
        if found.is_live {
            // Another version may say otherwise: it is asked when the sender tries again.
            return Err(VerifyError::Unavailable);
        }
        Err(VerifyError::Refused(WebhookFault {
            reason: DeliveryFault::Digest,
            is_found: false,
            detail: None,
            second_look: None,
        }))
    }

    /// Whether this webhook was found recently.
    pub(crate) fn knows(&self, address: WebhookAddress) -> bool {
        self.cache.get(&address).is_some()
    }

    async fn look_up(
        &self,
        address: WebhookAddress,
        client: ClientAddress,
    ) -> Result<FoundSecret, VerifyError> {
        let lookup = match self.is_suspect(client) {
            true => &self.suspect_lookup,
            false => &self.lookup,
        };
        let found = lookup.ask(address).await;
        found.ok_or(VerifyError::Unavailable)
    }

    fn is_suspect(&self, client: ClientAddress) -> bool {
        self.wrong_signatures.of(&client) >= MANY
    }

    /// Forgets a webhook that turned out to be gone.
    pub(crate) fn forget(&self, address: WebhookAddress) {
        self.cache.remove(&address);
    }
}

/// Sees to it that refusals take as long as the slowest algorithms that webhooks have.
async fn notice_kinds(database: Database, kinds: Arc<Kinds>) {
    loop {
        let ways = store::find_ways(&database).await.unwrap_or_default();
        for (tool, rules) in ways {
            let known = tool.parse::<Tool>().ok().and_then(Tool::rules);
            let custom = || Rules::parse(rules.as_deref()?).ok();
            if let Some(rules) = known.or_else(custom) {
                kinds.add(rules.algorithm);
            }
        }
        tokio::time::sleep(KINDS_EVERY).await;
    }
}
