//! Signature schemes: how senders sign, as data. A scheme says where the signature is, how it is
//! written there, which text is signed, and what the tool asks before it sends.

mod handshake;
mod request;
mod rules;
mod template;

pub use self::{
    handshake::{Handshake, Reply, echo, is_asked},
    request::{Headers, Signed, WebhookRequest},
    rules::{Encoding, Header, Rules, RulesError, SecretEncoding, TimeFormat, secret_for},
    template::Template,
};

#[cfg(test)]
mod tests;
