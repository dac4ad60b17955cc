//! What checks the signatures of one webhook: its key, how its sender signs, and from where it may
//! send.

use std::net::IpAddr;

use jiff::Timestamp;
use letterbox_common::{
    ids::WebhookId,
    process::networks::Networks,
    sealing::Secret,
    webhook::{DeliveryFault, Headers, Rules, Scheme, SigningKey, WebhookAddress},
};

use super::store::StoredSecret;

/// A request that says who sent it.
#[derive(Clone, Copy)]
pub(crate) struct Presented<'a> {
    pub(crate) headers: &'a Headers,
    pub(crate) body: &'a [u8],
    /// The address that it came from.
    pub(crate) from: IpAddr,
}

/// What is known of a sender that has proven itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Proven {
    pub(crate) scheme: Scheme,
    /// The webhook under whose id the bodies are remembered that it sends.
    pub(crate) memory: WebhookId,
}

/// Checks the signatures of one webhook.
pub(super) struct Verifier {
    pub(super) proven: Proven,
    rules: Rules,
    key: SigningKey,
    /// None is from everywhere.
    allow_from: Option<Networks>,
}

impl Verifier {
    /// Of a webhook whose secret was opened.
    ///
    /// # Errors
    /// When what is stored is not what Letterbox stores.
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

    /// Of the decoy, which signs as the service itself does.
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

    /// Whether a request is signed, and may come from where it came from: always both are looked
    /// at.
    pub(super) fn verifies(&self, request: Presented<'_>) -> bool {
        let Presented { headers, body, .. } = request;
        let now = Timestamp::now().as_second().unsigned_abs();
        let is_signed = self.rules.verifies(&self.key, headers, body, now);
        is_signed & self.may_send(request.from)
    }

    /// What is wrong with a request that does not verify.
    pub(super) fn complaint(&self, request: Presented<'_>) -> DeliveryFault {
        match self.may_send(request.from) {
            true => {
                let now = Timestamp::now().as_second().unsigned_abs();
                self.rules.complaint(request.headers, now)
            }
            false => DeliveryFault::Address,
        }
    }

    fn may_send(&self, from: IpAddr) -> bool {
        let allowed = self.allow_from.as_ref();
        allowed.is_none_or(|networks| networks.contains(from))
    }
}
