//! The words of rules: how signatures, times and secrets are written, and what a tool asks.

use crate::{text_enum, webhook::algorithm::Algorithm};

text_enum! {
    /// How a signature is written.
    pub enum Encoding {
        /// Lower-case hexadecimal digits
        Hex = "hex",
        /// Upper-case hexadecimal digits
        UpperHex = "upper_hex",
        /// As in RFC 4648, section 4
        Base64 = "base64",
        /// As in RFC 4648, section 5, with or without padding
        Base64Url = "base64url",
    }
}

text_enum! {
    /// How the time of a request is written.
    #[derive(Default)]
    pub enum TimeFormat {
        /// Seconds since 1970
        #[default]
        Seconds = "seconds",
        /// Milliseconds since 1970
        Milliseconds = "milliseconds",
        /// As ISO 8601, with a time zone
        Iso8601 = "iso8601",
        /// In any way: it is signed, and not compared with the clock
        Unchecked = "unchecked",
    }
}

text_enum! {
    /// How the text of a secret encodes the key.
    #[derive(Default)]
    pub enum SecretEncoding {
        /// The key itself
        #[default]
        Text = "text",
        /// The key in base64, optionally with the prefix `whsec_`
        Base64 = "base64",
        /// The key in hexadecimal digits
        Hex = "hex",
    }
}

text_enum! {
    /// What a tool asks before it sends events.
    pub enum Handshake {
        /// A signed event url_verification, whose challenge is wanted back
        Slack = "slack",
        /// A signed event endpoint.url_validation, whose token is wanted back with its HMAC
        Zoom = "zoom",
        /// A GET with hub.challenge, which is wanted back, and a token that its owner has typed in
        Meta = "meta",
        /// A GET with a signed crc_token, whose HMAC is wanted
        X = "x",
        /// A signed callback verification, whose challenge is wanted back as text
        Twitch = "twitch",
        /// A signed ping
        Discord = "discord",
    }
}

impl Handshake {
    /// Whether webhooks with this algorithm can answer.
    pub(super) fn goes_with(self, algorithm: Algorithm) -> bool {
        match self {
            Self::Zoom | Self::Meta | Self::X => algorithm == Algorithm::HmacSha256,
            Self::Slack | Self::Twitch | Self::Discord => true,
        }
    }
}
