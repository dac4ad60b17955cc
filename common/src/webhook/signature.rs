//! The signature of a webhook's body: HMAC-SHA256 over the exact bytes, as 64 lower-case
//! hexadecimal digits.
//!
//! The owner is shown the secret as text, and the bytes of that text are the key, so that a tool
//! signs with exactly the text that is pasted into it.

use std::fmt;

use crate::{
    random::{RandomError, random_hex},
    secret::{Secret, never_printed},
};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use subtle::ConstantTimeEq;

/// The request header that carries the signature.
pub const SIGNATURE_HEADER: &str = "x-service-signature";

const SIGNATURE_BYTES: usize = 32;

/// A signature.
#[derive(Clone, Copy)]
pub struct Signature([u8; SIGNATURE_BYTES]);

/// The text is not exactly 64 lower-case hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a signature must be exactly 64 lower-case hexadecimal digits")]
pub struct InvalidSignature;

impl Signature {
    /// The bytes of the signature.
    pub(crate) fn bytes(&self) -> &[u8; SIGNATURE_BYTES] {
        &self.0
    }

    /// Whether both are equal, in constant time.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }

    /// Parses the value of a header.
    ///
    /// # Errors
    /// For anything but 64 lower-case hexadecimal digits.
    pub fn parse(value: &[u8]) -> Result<Self, InvalidSignature> {
        let mut bytes = [0; SIGNATURE_BYTES];
        if value.iter().any(u8::is_ascii_uppercase) {
            return Err(InvalidSignature);
        }
        hex::decode_to_slice(value, &mut bytes).map_err(|_| InvalidSignature)?;
        Ok(Self(bytes))
    }
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

/// Generates a signing secret: 256 random bits as 64 hexadecimal digits, the text that its owner is
/// shown.
pub fn generate_secret() -> Result<Secret, RandomError> {
    random_hex()
}

/// A secret prepared for signing and verifying. Cloning it is cheaper than preparing it again.
#[derive(Clone)]
pub struct SigningKey(Hmac<Sha256>);

impl SigningKey {
    /// Prepares a secret.
    #[expect(clippy::expect_used, reason = "HMAC takes a key of any length")]
    pub fn new(secret: &Secret) -> Self {
        Self(Hmac::new_from_slice(secret.expose()).expect("HMAC takes a key of any length"))
    }

    /// Signs exactly these bytes.
    pub fn sign(&self, body: &[u8]) -> Signature {
        self.sign_parts([body])
    }

    /// Signs the concatenation of these parts.
    pub(crate) fn sign_parts<'p>(&self, parts: impl IntoIterator<Item = &'p [u8]>) -> Signature {
        let mut mac = self.0.clone();
        for part in parts {
            mac.update(part);
        }
        Signature(mac.finalize().into_bytes().into())
    }

    /// Whether `signature` is this key's signature of `body`, compared in constant time.
    #[must_use]
    pub fn verifies(&self, body: &[u8], signature: &Signature) -> bool {
        self.sign(body).is(signature)
    }
}

never_printed!(SigningKey);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(secret: &[u8]) -> SigningKey {
        SigningKey::new(&Secret::new(secret.to_vec()))
    }

    /// RFC 4231, test cases 1 and 2.
    #[test]
    fn signatures_agree_with_rfc_4231() {
        let cases: [(&[u8], &[u8], &str); 2] = [
            (
                &[0x0b; 20],
                b"Hi There",
                "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7",
            ),
            (
                b"Jefe",
                b"what do ya want for nothing?",
                "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
            ),
        ];
        for (secret, body, expected) in cases {
            assert_eq!(key(secret).sign(body).to_string(), expected);
        }
    }

    proptest! {
        #[test]
        fn only_the_right_key_body_and_spelling_verify(
            secret in prop::collection::vec(any::<u8>(), 1..80),
            body in prop::collection::vec(any::<u8>(), 0..300),
            flip in any::<prop::sample::Index>(),
        ) {
            let signed = key(&secret).sign(&body);
            let text = signed.to_string();
            let parsed = Signature::parse(text.as_bytes()).unwrap();
            prop_assert!(key(&secret).verifies(&body, &parsed));

            let mut other = body.clone();
            other.push(0);
            prop_assert!(!key(&secret).verifies(&other, &parsed));

            let mut other = secret.clone();
            let at = flip.index(other.len());
            other[at] ^= 1;
            prop_assert!(!key(&other).verifies(&body, &parsed));

            let mut wrong = text.into_bytes();
            let at = flip.index(wrong.len());
            wrong[at] = if wrong[at] == b'0' { b'1' } else { b'0' };
            prop_assert!(!key(&secret).verifies(&body, &Signature::parse(&wrong).unwrap()));
        }

        #[test]
        fn nothing_else_is_a_signature(value in prop::collection::vec(any::<u8>(), 0..80)) {
            let well_formed = value.len() == 64
                && value.iter().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(b));
            prop_assert_eq!(Signature::parse(&value).is_ok(), well_formed);
        }
    }

    #[test]
    fn other_spellings_are_refused() {
        let text = key(b"k").sign(b"b").to_string();
        let spellings = [
            text.to_uppercase(),
            format!("sha256={text}"),
            format!(" {text}"),
            format!("{text}\n"),
            text[..63].to_owned(),
            format!("{text}0"),
            format!("{text},{text}"),
        ];
        for spelling in spellings {
            let parsed = Signature::parse(spelling.as_bytes());
            assert!(parsed.is_err(), "{spelling:?}");
        }
    }
}
