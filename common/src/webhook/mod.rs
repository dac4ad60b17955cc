//! Webhooks: their addresses, the signatures of bodies, and the headers that are kept.

mod address;
mod kept;
mod scheme;
mod signature;

pub use address::WebhookAddress;
pub use kept::{InvalidKept, KeptHeaders, KeptNames};
pub use scheme::{
    DeliveryFault, Encoding, Headers, InvalidSecret, Rules, RulesError, Scheme, SecretEncoding,
    Signed, secret_for,
};
pub use signature::{InvalidSignature, SIGNATURE_HEADER, Signature, SigningKey, generate_secret};
