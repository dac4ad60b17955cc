//! What both sides of a webhook agree on: its address, and how a body is signed.

mod address;
mod scheme;
mod signature;

pub use address::WebhookAddress;
pub use scheme::{
    DeliveryFault, Encoding, Headers, InvalidSecret, Rules, RulesError, Scheme, SecretText, Signed,
    secret_for,
};
pub use signature::{InvalidSignature, SIGNATURE_HEADER, Signature, SigningKey, generate_secret};
