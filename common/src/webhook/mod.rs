//! What a webhook's two sides agree on: its address, and how a body is signed.

mod address;
mod signature;

pub use address::{WebhookAddress, seal_place};
pub use signature::{InvalidSignature, SIGNATURE_HEADER, Signature, SigningKey, generate_secret};
