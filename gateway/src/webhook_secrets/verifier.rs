//! The verifier of one webhook: its key, its signature scheme, and the networks that may send.

use std::net::IpAddr;

use jiff::Timestamp;
use letterbox_common::{
    ids::WebhookId,
    process::networks::Networks,
    sealing::Secret,
    webhook::{DeliveryFault, Headers, Rules, Scheme, SigningKey},
};

use super::store::StoredChecks;

/// A request whose signature is to be verified.
#[derive(Clone, Copy)]
pub(crate) struct Presented<'a> {
    pub(crate) headers: &'a Headers,
    pub(crate) body: &'a [u8],
    /// The address of the client.
    pub(crate) from: IpAddr,
}

/// The result of a successful verification.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Proven {
    pub(crate) scheme: Scheme,
    /// The webhook under whose id its bodies are remembered.
    pub(crate) memory: WebhookId,
}

/// What a webhook checks, apart from its secret.
pub(super) struct Checks {
    scheme: Scheme,
    rules: Rules,
    /// The networks that may send; `None` for all.
    allow_from: Option<Networks>,
}

impl Checks {
    /// Parses what is stored.
    ///
    /// # Errors
    /// When the stored scheme, rules or networks are invalid.
    pub(super) fn parse(stored: &StoredChecks) -> Result<Self, String> {
        let scheme = stored.scheme.parse::<Scheme>();
        let scheme = scheme.map_err(|error| error.to_string())?;
        let rules = match (&stored.rules, scheme.rules()) {
            (Some(rules), None) => Rules::parse(rules).map_err(|error| error.to_string())?,
            (_, rules) => rules.ok_or("a custom scheme has no rules")?,
        };
        let networks = stored.allow_from.as_ref();
        let allow_from = networks.map(|text| text.parse::<Networks>()).transpose();
        Ok(Self {
            scheme,
            rules,
            allow_from: allow_from.map_err(|error| error.to_string())?,
        })
    }

    /// The checks of the decoy, which uses Letterbox's own scheme.
    #[expect(
        clippy::expect_used,
        reason = "only a custom scheme has no rules of its own"
    )]
    pub(super) fn decoy() -> Self {
        Self {
            scheme: Scheme::Letterbox,
            rules: Scheme::Letterbox.rules().expect("it is not custom"),
            allow_from: None,
        }
    }
}

/// Checks the signatures of one webhook.
pub(super) struct Verifier {
    pub(super) proven: Proven,
    checks: Checks,
    key: SigningKey,
}

impl Verifier {
    /// Creates the verifier of a webhook whose secret was opened. `memory` is the webhook under
    /// whose id its bodies are remembered.
    ///
    /// # Errors
    /// When the secret is invalid.
    pub(super) fn new(checks: Checks, memory: WebhookId, secret: &Secret) -> Result<Self, String> {
        let key = checks
            .rules
            .key(secret)
            .map_err(|error| error.to_string())?;
        let proven = Proven {
            scheme: checks.scheme,
            memory,
        };
        Ok(Self {
            proven,
            checks,
            key,
        })
    }

    /// Whether a request is signed and comes from a network that may send. Always checks both.
    pub(super) fn verifies(&self, request: Presented<'_>) -> bool {
        let Presented { headers, body, .. } = request;
        let now = Timestamp::now().as_second().unsigned_abs();
        let is_signed = self.checks.rules.verifies(&self.key, headers, body, now);
        is_signed & self.may_send(request.from)
    }

    /// Why a request does not verify.
    pub(super) fn complaint(&self, request: Presented<'_>) -> DeliveryFault {
        if !self.may_send(request.from) {
            return DeliveryFault::Address;
        }
        let now = Timestamp::now().as_second().unsigned_abs();
        self.checks.rules.complaint(request.headers, now)
    }

    fn may_send(&self, from: IpAddr) -> bool {
        let allowed = self.checks.allow_from.as_ref();
        allowed.is_none_or(|networks| networks.contains(from))
    }
}
