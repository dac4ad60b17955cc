//! A second look at refused requests, for the owners of their webhooks: what would have to be
//! different for them to be right. It costs what no request may cost, so it is taken when the
//! refusal is written, at a few requests at a time, at one to an address in a minute, and at none
//! of a client with many wrong signatures. Whether there is a webhook decides nothing of that.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use letterbox_common::{
    cache::Cache,
    json_object,
    webhook::{DeliveryFault, Headers, WebhookAddress, WebhookRequest, tools_that_fit},
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::verifier::{Presented, Verifier};
use crate::faults::SecondLook;

/// Maximum requests that wait for their second look.
const AT_ONCE: usize = 4;
const EVERY: Duration = Duration::from_secs(60);
const MAX_RECENT: usize = 1_000;
/// Maximum length of what is told, in characters: as the database takes it.
const MAX_TOLD: usize = 200;
/// Where a tool says its secret before there is any.
const ISSUED: &str = "/verification_token";

/// Chooses the requests.
pub(super) struct SecondLooks {
    places: Arc<Semaphore>,
    recent: Cache<WebhookAddress, ()>,
}

impl Default for SecondLooks {
    fn default() -> Self {
        Self {
            places: Arc::new(Semaphore::new(AT_ONCE)),
            recent: Cache::new(MAX_RECENT, EVERY),
        }
    }
}

impl SecondLooks {
    /// A second look at this refused request, if it is its turn.
    pub(super) fn at(
        &self,
        address: WebhookAddress,
        verifier: &Arc<Verifier>,
        presented: Presented<'_>,
        reason: DeliveryFault,
    ) -> Option<SecondLook> {
        if self.recent.get(&address).is_some() {
            return None;
        }
        let place = self.places.clone().try_acquire_owned().ok()?;
        self.recent.insert(address, ());
        let request = presented.request;
        let refused = Refused {
            verifier: verifier.clone(),
            reason,
            method: request.method.to_owned(),
            base: request.base.to_owned(),
            target: request.target.to_owned(),
            headers: request.headers.clone(),
            body: request.body.to_owned(),
            at: Timestamp::now(),
            _place: place,
        };
        Some(Box::new(move || refused.finding()))
    }
}

/// A refused request, to be looked at once more.
struct Refused {
    verifier: Arc<Verifier>,
    reason: DeliveryFault,
    method: String,
    base: String,
    target: String,
    headers: Headers,
    body: Vec<u8>,
    at: Timestamp,
    _place: OwnedSemaphorePermit,
}

impl Refused {
    /// What would make it right, or what it shows; `None` if nothing more is known of it.
    fn finding(&self) -> Option<String> {
        let request = WebhookRequest {
            method: &self.method,
            base: &self.base,
            target: &self.target,
            headers: &self.headers,
            body: &self.body,
        };
        let told = match self.reason {
            DeliveryFault::NoSecretYet => self.issued()?,
            DeliveryFault::Address | DeliveryFault::Handshake => return None,
            _ => self.fitting(&request).or_else(|| self.coding())?,
        };
        Some(told.chars().take(MAX_TOLD).collect())
    }

    fn fitting(&self, request: &WebhookRequest<'_>) -> Option<String> {
        let now = self.at.as_second().unsigned_abs();
        let (rules, secret) = self.verifier.rules_and_secret();
        if rules.algorithm.has_public_key() {
            return None;
        }
        if let Some(tools) = tools_that_fit(secret, request, now) {
            return Some(format!("it is right for the tool {tools}"));
        }
        let other = rules.near_miss(secret, request, now)?;
        Some(format!("it is right with {other}"))
    }

    /// How its body is compressed: perhaps another one was signed.
    fn coding(&self) -> Option<String> {
        let coding = self.headers.get("content-encoding")?.to_str().ok()?;
        Some(format!("its body is compressed ({coding})"))
    }

    /// The secret of a tool that first sends it here, unsigned. Its owner compares it.
    fn issued(&self) -> Option<String> {
        let text = std::str::from_utf8(&self.body).ok()?;
        let issued = json_object::at(text, ISSUED)?;
        let issued: String = serde_json::from_str(issued).ok()?;
        let is_plain = issued.bytes().all(|byte| byte.is_ascii_graphic());
        let told = format!("verification_token {issued}");
        // A part of it would be taken for all.
        (is_plain && told.len() <= MAX_TOLD).then_some(told)
    }
}
