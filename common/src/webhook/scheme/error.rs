//! Why rules are none.

use super::words::Handshake;

/// Why a custom scheme is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RulesError {
    /// Not JSON, or not of this shape.
    #[error("{0}")]
    Shape(String),
    /// A header name is invalid.
    #[error("{0} must be the name of a header")]
    Header(&'static str),
    /// Nothing would ever be put in its place. Holds what is between the braces.
    #[error(
        "unknown placeholder {{{0}}}; known: {{body}}, {{timestamp}}, {{id}}, {{method}}, {{url}}, \
         {{path}}, {{query}}"
    )]
    Placeholder(String),
    /// The signed text does not contain the body once, or is too long.
    #[error("signed must contain {{body}} exactly once and have at most 200 characters")]
    Body,
    /// A sender could change a time that is not signed.
    #[error(
        "signed must contain {{timestamp}} exactly once with timestamp_key, timestamp_place or \
         timestamp_header, and not at all without"
    )]
    Timestamp,
    /// A sender could change an id that is not signed.
    #[error("signed must contain {{id}} exactly once with id_header, and not at all without")]
    Id,
    /// What is signed of one part could be moved into the next.
    #[error(
        "signed must have a sign other than a letter or digit between {{timestamp}}, {{id}}, \
         {{url}}, {{path}} and {{query}}; {{timestamp}} and {{id}} may stand next to each other \
         with a timestamp_format that is checked, and everything next to {{body}}"
    )]
    Adjacent,
    /// There are two places for the time.
    #[error("timestamp_key, timestamp_place and timestamp_header exclude each other")]
    TwoTimes,
    /// The separator is missing or unsuitable.
    #[error(
        "separator must be one or two of ',', ';', '.', '&' and ' ', and is required with \
         timestamp_key and timestamp_place; timestamp_key must not be empty or contain '='; \
         neither timestamp_key nor prefix may contain the separator"
    )]
    Separator,
    /// The tolerance is zero or too long.
    #[error("tolerance_seconds must be from 1 to 86400")]
    Tolerance,
    /// A handshake is answered with an HMAC-SHA256, or compared with one.
    #[error("the handshake {0} does not go with these rules")]
    Handshake(Handshake),
}
