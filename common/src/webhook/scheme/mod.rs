//! Signature schemes: how senders sign, as data. A scheme says where the signature is, how it is
//! written there, which text is signed, and what the tool asks before it sends.

mod error;
mod handshake;
mod near_miss;
mod parts;
mod request;
mod rules;
mod template;
mod words;

pub use self::{
    error::RulesError,
    handshake::{Reply, echo, is_asked},
    parts::{Headers, WebhookRequest, only},
    request::Signed,
    rules::{Header, Rules, secret_for},
    template::Template,
    words::{Encoding, Handshake, SecretEncoding, TimeFormat},
};

#[cfg(test)]
mod tests;
