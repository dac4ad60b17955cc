//! Webhooks: their addresses, the tools that send to them, how those sign, and the headers that are
//! kept.

mod address;
mod algorithm;
mod fault;
mod kept;
mod keys;
mod public_key;
mod same_by;
mod scheme;
mod signature;
mod tools;

pub use address::WebhookAddress;
pub use algorithm::Algorithm;
pub use fault::DeliveryFault;
pub use kept::{InvalidKept, KeptHeaders, KeptNames};
pub use keys::{InvalidKey, Keys, Kinds};
pub use same_by::{InvalidSameBy, SameBy};
pub use scheme::{
    Encoding, Handshake, Header, Headers, Reply, Rules, RulesError, SecretEncoding, Signed,
    Template, TimeFormat, WebhookRequest, echo, is_asked, only, secret_for,
};
pub use signature::{InvalidSignature, SIGNATURE_HEADER, Signature, SigningKey, generate_secret};
pub use tools::{Described, KindPlace, SecretMaker, Tool, UnknownTool, tools_of, tools_that_fit};
