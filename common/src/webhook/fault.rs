//! Why a delivery was refused, and what its owner can do about it.

use crate::text_enum;

text_enum! {
    /// Why a delivery was refused. The owner of the webhook may know, its sender may not.
    pub enum DeliveryFault {
        /// The signature header is missing
        Missing = "missing",
        /// The signature header occurs more than once
        Repeated = "repeated",
        /// The signature has a prefix, such as sha256=
        Prefix = "prefix",
        /// The signature has digits A to F instead of a to f
        UpperCase = "upper_case",
        /// The signature has the wrong length
        Length = "length",
        /// The signature is not hexadecimal
        NotHex = "not_hex",
        /// The signature belongs to another body or another secret
        Digest = "digest",
        /// The scheme is violated: a part is missing or malformed
        Scheme = "scheme",
        /// The time is out of tolerance: it was sent long ago, or a clock is wrong
        Time = "time",
        /// Signed, but sent from an address that may not send
        Address = "address",
        /// More than 65,536 bytes
        TooLarge = "too_large",
        /// Signed, but not JSON
        NotJson = "not_json",
        /// Signed, but without the content type of JSON
        ContentType = "content_type",
        /// Signed, but form-encoded: choose JSON in the tool
        FormEncoded = "form_encoded",
        /// Signed, but compressed: switch compression off in the tool
        Compressed = "compressed",
        /// Its secret was not set yet
        NoSecretYet = "no_secret_yet",
        /// The tool has asked for an answer, with another verify token or unsigned
        Handshake = "handshake",
    }
}

impl DeliveryFault {
    /// The cause and the mend, in a sentence for the owner of the webhook.
    pub fn advice(self) -> &'static str {
        match self {
            Self::Missing => {
                "It had no signature in the header where this tool puts it: set the secret in the \
                 tool, or create the webhook for the tool that sends."
            }
            Self::Repeated => {
                "The signature header came twice: something between the tool and Letterbox adds \
                 one."
            }
            Self::Prefix => {
                "Before the signature stands a prefix, such as sha256=: the webhook was created \
                 for another tool, or its rules lack the prefix."
            }
            Self::UpperCase => "The signature has capital letters: sign in lower case.",
            Self::Length => {
                "The signature has another length: it is written in another way, such as base64, \
                 or made by another algorithm."
            }
            Self::NotHex => "The signature is not written in hexadecimal digits.",
            Self::Digest => {
                "The signature belongs to another secret, or the body was changed on its way: set \
                 the same secret on both sides, and let no proxy rewrite the body."
            }
            Self::Scheme => {
                "The signature, its time or its id is missing or not in the form of this tool: the \
                 webhook was created for another one, or its rules don't fit."
            }
            Self::Time => "It was signed too long ago, or one of the clocks is wrong.",
            Self::Address => "It is signed, and came from a network that may not send here.",
            Self::TooLarge => {
                "It is larger than 65,536 bytes: choose fewer or smaller events in the tool. This \
                 one is lost."
            }
            Self::NotJson => "It is signed, and its body is not JSON.",
            Self::ContentType => {
                "It is signed, and is not sent as JSON: choose application/json in the tool."
            }
            Self::FormEncoded => {
                "It is signed, and form-encoded: choose JSON, application/json, in the tool."
            }
            Self::Compressed => "It is signed, and compressed: switch that off in the tool.",
            Self::NoSecretYet => {
                "The secret that the tool has made was not set here yet: set it, and let the tool \
                 send again."
            }
            Self::Handshake => {
                "The tool asked whether this is the right address, and did not prove who it is: \
                 give it the verify token that was shown with the secret."
            }
        }
    }
}
