//! Signing what leaves the service and comes back: nobody else can make or change it.

use std::{fmt, str::FromStr};

use hmac::{Hmac, KeyInit, Mac as _};
use sha2::Sha256;
use subtle::ConstantTimeEq;

/// HMAC-SHA256, written as 64 hexadecimal digits. Compared in constant time.
#[derive(Debug, Clone, Copy)]
pub struct Mac([u8; 32]);

impl PartialEq for Mac {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for Mac {}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl FromStr for Mac {
    type Err = hex::FromHexError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut bytes = [0; 32];
        hex::decode_to_slice(text, &mut bytes)?;
        Ok(Self(bytes))
    }
}

/// A key that signs.
#[derive(Clone)]
pub(super) struct MacKey(Hmac<Sha256>);

impl MacKey {
    /// The one that belongs to a sealing key.
    pub(super) fn of(sealing: &[u8; super::KEY_BYTES]) -> Self {
        let derived = keyed(sealing).chain_update(b"letterbox.mac.v1").finalize();
        Self(keyed(&derived.into_bytes()))
    }

    /// Every part with its length before it, so that no two lists of parts are the same text.
    pub(super) fn sign(&self, purpose: &str, parts: &[&[u8]]) -> Mac {
        let mut mac = self.0.clone();
        for part in std::iter::once(&purpose.as_bytes()).chain(parts) {
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part);
        }
        Mac(mac.finalize().into_bytes().into())
    }
}

#[expect(clippy::expect_used, reason = "a key may be as long as it is")]
fn keyed(key: &[u8]) -> Hmac<Sha256> {
    Hmac::new_from_slice(key).expect("a key may be as long as it is")
}
