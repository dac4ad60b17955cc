//! The verifier of one webhook: its key, its signature scheme, and the networks that may send.

use std::net::IpAddr;

use jiff::Timestamp;
use letterbox_common::{
    ids::WebhookId,
    process::networks::Networks,
    sealing::Secret,
    webhook::{DeliveryFault, Headers, Rules, Scheme, SigningKey, WebhookAddress},
};

use super::store::StoredSecret;

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

/// Checks the signatures of one webhook.
pub(super) struct Verifier {
    pub(super) proven: Proven,
    rules: Rules,
    key: SigningKey,
    /// The networks that may send; `None` for all.
    allow_from: Option<Networks>,
}

impl Verifier {
    /// Creates the verifier of a webhook whose secret was opened.
    ///
    /// # Errors
    /// When the stored scheme, rules, networks or secret are invalid.
    pub(super) fn new(stored: &StoredSecret, secret: &Secret) -> Result<Self, String> {
        let scheme = stored.scheme.parse::<Scheme>();
        let scheme = scheme.map_err(|error| error.to_string())?;
        let rules = match (&stored.rules, scheme.rules()) {
            (Some(rules), None) => Rules::parse(rules).map_err(|error| error.to_string())?,
            (_, rules) => rules.ok_or("a custom scheme has no rules")?,
        };
        let allow_from = stored
            .allow_from
            .as_ref()
            .map(|text| text.parse::<Networks>());
        Ok(Self {
            proven: Proven {
                scheme,
                memory: stored.memory,
            },
            key: rules.key(secret).map_err(|error| error.to_string())?,
            rules,
            allow_from: allow_from.transpose().map_err(|error| error.to_string())?,
        })
    }

    /// Creates the verifier of the decoy, which uses Letterbox's own scheme.
    #[expect(
        clippy::expect_used,
        reason = "only a custom scheme has no rules of its own"
    )]
    pub(super) fn decoy(secret: &Secret, address: WebhookAddress) -> Self {
        Self {
            proven: Proven {
                scheme: Scheme::Letterbox,
                memory: address.webhook,
            },
            rules: Scheme::Letterbox.rules().expect("it is not custom"),
            key: SigningKey::new(secret),
            allow_from: None,
        }
    }

    /// Whether a request is signed and comes from a network that may send. Always checks both.
    pub(super) fn verifies(&self, request: Presented<'_>) -> bool {
        let Presented { headers, body, .. } = request;
        let now = Timestamp::now().as_second().unsigned_abs();
        let is_signed = self.rules.verifies(&self.key, headers, body, now);
        is_signed & self.may_send(request.from)
    }

    /// Why a request does not verify.
    pub(super) fn complaint(&self, request: Presented<'_>) -> DeliveryFault {
        if !self.may_send(request.from) {
            return DeliveryFault::Address;
        }
        let now = Timestamp::now().as_second().unsigned_abs();
        self.rules.complaint(request.headers, now)
    }

    fn may_send(&self, from: IpAddr) -> bool {
        let allowed = self.allow_from.as_ref();
        allowed.is_none_or(|networks| networks.contains(from))
    }
}
