//! The verifier of one webhook: its key, its signature scheme, and the networks that may send.

use std::net::IpAddr;

use jiff::Timestamp;
use letterbox_common::{
    ids::WebhookId,
    process::networks::Networks,
    sealing::Secret,
    webhook::{DeliveryFault, Headers, KeptHeaders, KeptNames, Rules, Scheme, SigningKey},
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
#[derive(Debug)]
pub(crate) struct Proven {
    pub(crate) scheme: Scheme,
    /// The webhook under whose id its bodies are remembered.
    pub(crate) memory: WebhookId,
    /// The version of the webhook that verified it.
    pub(crate) version: i64,
    /// What is kept of the headers.
    pub(crate) headers: KeptHeaders,
    /// The sender's id, if by that it is the same as another one.
    pub(crate) same_by: Option<String>,
}

/// What a webhook checks, apart from its secret.
pub(super) struct Checks {
    scheme: Scheme,
    rules: Rules,
    kept: KeptNames,
    same_by_id: bool,
    /// The networks that may send; `None` for all.
    allow_from: Option<Networks>,
}

impl Checks {
    /// Parses what is stored.
    pub(super) fn parse(stored: &StoredChecks) -> Result<Self, String> {
        let scheme = stored.scheme.parse::<Scheme>();
        let scheme = scheme.map_err(|error| error.to_string())?;
        let rules = match (&stored.rules, scheme.rules()) {
            (Some(rules), None) => Rules::parse(rules).map_err(|error| error.to_string())?,
            (_, rules) => rules.ok_or("a custom scheme has no rules")?,
        };
        let kept = KeptNames::of_stored(scheme, &rules, &stored.kept_headers);
        let networks = stored.allow_from.as_ref();
        let allow_from = networks.map(|text| text.parse::<Networks>()).transpose();
        Ok(Self {
            scheme,
            rules,
            kept,
            same_by_id: stored.same_by_id,
            allow_from: allow_from.map_err(|error| error.to_string())?,
        })
    }

    /// The checks of the decoy, which uses Letterbox's own scheme.
    #[expect(
        clippy::expect_used,
        reason = "only a custom scheme has no rules of its own"
    )]
    pub(super) fn decoy() -> Self {
        let scheme = Scheme::Letterbox;
        let rules = scheme.rules().expect("it is not custom");
        let kept = KeptNames::of_stored(scheme, &rules, &[]);
        Self {
            scheme,
            rules,
            kept,
            same_by_id: false,
            allow_from: None,
        }
    }
}

/// Checks the signatures of one webhook.
pub(super) struct Verifier {
    checks: Checks,
    memory: WebhookId,
    version: i64,
    key: SigningKey,
}

impl Verifier {
    /// Creates the verifier of a version of a webhook whose secret was opened. `memory` is the
    /// webhook under whose id its bodies are remembered.
    pub(super) fn new(
        checks: Checks,
        (memory, version): (WebhookId, i64),
        secret: &Secret,
    ) -> Result<Self, String> {
        let key = checks
            .rules
            .key(secret)
            .map_err(|error| error.to_string())?;
        Ok(Self {
            checks,
            memory,
            version,
            key,
        })
    }

    /// What these headers prove, once they are verified.
    pub(super) fn proven(&self, headers: &Headers) -> Proven {
        let checks = &self.checks;
        // An empty one would make all of them the same.
        let id = checks.rules.id(headers);
        let id = id.filter(|id| checks.same_by_id && !id.is_empty());
        Proven {
            scheme: checks.scheme,
            memory: self.memory,
            version: self.version,
            headers: checks.kept.keep(headers),
            same_by: id.map(str::to_owned),
        }
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
