//! Whose requests are counted, and how many each may make.

use letterbox_common::form::TokenHash;

use crate::client_address::ClientAddress;

/// Requests a minute with one token.
const MAX_PER_TOKEN: i32 = 20;
/// Requests a minute from one client.
const MAX_PER_CLIENT: i32 = 60;

/// Whose requests are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Subject {
    Client(ClientAddress),
    Token(TokenHash),
}

impl Subject {
    /// Requests in any 60 seconds.
    pub(super) fn limit(self) -> i32 {
        match self {
            Self::Client(_) => MAX_PER_CLIENT,
            Self::Token(_) => MAX_PER_TOKEN,
        }
    }

    /// Label of the metric.
    pub(super) fn kind(self) -> &'static str {
        match self {
            Self::Client(_) => "client",
            Self::Token(_) => "token",
        }
    }

    /// The table's key.
    pub(super) fn key(self) -> Vec<u8> {
        match self {
            Self::Client(address) => [b"c", address.bytes().as_slice()].concat(),
            Self::Token(token) => [b"t", token.as_bytes().as_slice()].concat(),
        }
    }
}
