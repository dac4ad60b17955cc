//! The algorithms by which tools sign.

use crate::text_enum;

text_enum! {
    /// How a tool signs.
    #[derive(Default)]
    pub enum Algorithm {
        /// HMAC with SHA-256
        #[default]
        HmacSha256 = "hmac-sha256",
        /// HMAC with SHA-512
        HmacSha512 = "hmac-sha512",
        /// HMAC with SHA-1, which is sound in an HMAC
        HmacSha1 = "hmac-sha1",
        /// Ed25519, with the tool's public key
        Ed25519 = "ed25519",
        /// ECDSA over P-256 with SHA-256, with the tool's public key
        EcdsaP256 = "ecdsa-p256",
        /// RSA (PKCS #1 v1.5) with SHA-256, with the tool's public key
        RsaSha256 = "rsa-sha256",
    }
}

impl Algorithm {
    /// Those of which both sides have the secret.
    pub(super) const HMACS: [Self; 3] = [Self::HmacSha256, Self::HmacSha512, Self::HmacSha1];

    /// Whether the key is a public one that the owner has of the tool, and no secret.
    pub fn has_public_key(self) -> bool {
        matches!(self, Self::Ed25519 | Self::EcdsaP256 | Self::RsaSha256)
    }

    /// How many bytes a signature has; `None` if that depends on it or on the key.
    pub(super) fn signature_bytes(self) -> Option<usize> {
        match self {
            Self::HmacSha256 => Some(32),
            Self::HmacSha512 | Self::Ed25519 => Some(64),
            Self::HmacSha1 => Some(20),
            Self::EcdsaP256 | Self::RsaSha256 => None,
        }
    }
}
