//! Webhooks: their addresses, and the signatures of bodies.

mod address;
mod scheme;
mod signature;

pub use address::WebhookAddress;
pub use scheme::{
    DeliveryFault, Encoding, Headers, InvalidSecret, Rules, RulesError, Scheme, SecretEncoding,
    Signed, secret_for,
};
pub use signature::{InvalidSignature, SIGNATURE_HEADER, Signature, SigningKey, generate_secret};
