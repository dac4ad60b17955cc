//! The subjects of rate limits, and their limits.

use letterbox_common::form::TokenHash;

use letterbox_common::process::client_address::ClientAddress;

/// Maximum requests with one token in any 60 seconds.
const MAX_PER_TOKEN: i32 = 20;
/// Maximum requests of one client in any 60 seconds.
const MAX_PER_CLIENT: i32 = 60;

/// A subject whose requests are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Subject {
    Client(ClientAddress),
    Token(TokenHash),
}

impl Subject {
    /// Maximum requests in any 60 seconds.
    pub(super) fn limit(self) -> i32 {
        match self {
            Self::Client(_) => MAX_PER_CLIENT,
            Self::Token(_) => MAX_PER_TOKEN,
        }
    }

    /// The value of the metric's label.
    pub(super) fn kind(self) -> &'static str {
        match self {
            Self::Client(_) => "client",
            Self::Token(_) => "token",
        }
    }

    /// The key in the table. Prefixes keep the two kinds apart.
    pub(super) fn key(self) -> Vec<u8> {
        match self {
            Self::Client(address) => [b"c", address.bytes().as_slice()].concat(),
            Self::Token(token) => [b"t", token.as_bytes().as_slice()].concat(),
        }
    }
}
