//! Signature schemes: how senders sign, as data. A scheme says which header holds the signature,
//! how it is written there, and which text is signed; all of them use HMAC-SHA256. `rules.rs`
//! defines schemes, `request.rs` applies them to requests.

mod request;
mod rules;

use super::signature::SIGNATURE_HEADER;
use crate::text_enum;

use self::rules::TOLERANCE;
pub use self::{
    request::{DeliveryFault, Headers, Signed},
    rules::{Encoding, InvalidSecret, Rules, RulesError, SecretEncoding, secret_for},
};

text_enum! {
    /// The signature scheme of a webhook.
    pub enum Scheme {
        /// Letterbox's own: 64 hexadecimal digits in X-Service-Signature, over the body
        Letterbox = "letterbox",
        /// As GitHub signs
        Github = "github",
        /// As Stripe signs
        Stripe = "stripe",
        /// As Slack signs; the gateway answers its challenges
        Slack = "slack",
        /// As Shopify signs
        Shopify = "shopify",
        /// As standardwebhooks.com specifies
        StandardWebhooks = "standard-webhooks",
        /// As Svix signs, and tools that send through it
        Svix = "svix",
        /// By the webhook's own rules
        Custom = "custom",
    }
}

impl Scheme {
    /// The rules of a scheme; `None` for `custom`, whose rules each webhook has.
    #[must_use]
    pub fn rules(self) -> Option<Rules> {
        let plain = |header: &str, prefix: &str, encoding, signed: &str| Rules {
            header: header.to_owned(),
            prefix: prefix.to_owned(),
            separator: None,
            timestamp_key: None,
            timestamp_header: None,
            tolerance_seconds: TOLERANCE,
            id_header: None,
            encoding,
            signed: signed.to_owned(),
            secret: SecretEncoding::Text,
        };
        Some(match self {
            Self::Letterbox => plain(SIGNATURE_HEADER, "", Encoding::Hex, "{body}"),
            Self::Github => plain("x-hub-signature-256", "sha256=", Encoding::Hex, "{body}"),
            Self::Shopify => plain("x-shopify-hmac-sha256", "", Encoding::Base64, "{body}"),
            Self::Stripe => Rules {
                separator: Some(','),
                timestamp_key: Some("t".to_owned()),
                ..plain(
                    "stripe-signature",
                    "v1=",
                    Encoding::Hex,
                    "{timestamp}.{body}",
                )
            },
            Self::Slack => Rules {
                timestamp_header: Some("x-slack-request-timestamp".to_owned()),
                ..plain(
                    "x-slack-signature",
                    "v0=",
                    Encoding::Hex,
                    "v0:{timestamp}:{body}",
                )
            },
            Self::StandardWebhooks => Rules {
                separator: Some(' '),
                timestamp_header: Some("webhook-timestamp".to_owned()),
                id_header: Some("webhook-id".to_owned()),
                secret: SecretEncoding::Base64,
                ..plain(
                    "webhook-signature",
                    "v1,",
                    Encoding::Base64,
                    "{id}.{timestamp}.{body}",
                )
            },
            Self::Svix => Rules {
                header: "svix-signature".to_owned(),
                timestamp_header: Some("svix-timestamp".to_owned()),
                id_header: Some("svix-id".to_owned()),
                ..Self::StandardWebhooks.rules()?
            },
            Self::Custom => return None,
        })
    }
}

#[cfg(test)]
mod tests;
