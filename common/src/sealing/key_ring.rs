//! The keys that seal and open: AES-256-GCM, and signing keys that are derived from them.

use std::{fmt, str::FromStr};

use aes_gcm::{
    Aes256Gcm, KeyInit, Nonce,
    aead::{Aead, Payload},
};
use zeroize::Zeroizing;

use super::{
    format::{
        NONCE_BYTES, OWN, OpenError, Parts, Seal, SealError, Sealed, associated_data, framed,
        header,
    },
    place::Place,
    recipient::{Private, Recipient},
};
use crate::{
    secret::Secret,
    webhook::{Signature, SigningKey},
};

const KEY_BYTES: usize = 32;
const KEY_ID_MAX_BYTES: usize = 32;

/// The text is not a key ring. Quotes none of its keys.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyRingError {
    /// The text contains no key.
    #[error("at least one key is needed, as ID:KEY")]
    Empty,
    /// An entry has no colon. This and the next variants hold its number, counted from 1.
    #[error("key {0}: must be ID:KEY")]
    NoColon(usize),
    /// The id is empty or too long, or contains other characters.
    #[error("key {0}: the id must be 1 to 32 letters, digits, '-' or '_'")]
    Id(usize),
    /// The key is not 64 hexadecimal digits, or repeats one byte.
    #[error(
        "key {0}: the key must be 64 random hexadecimal digits (256 bits; 'openssl rand -hex 32' \
         makes one)"
    )]
    Key(usize),
    /// An earlier key has the same id.
    #[error("key {0}: an earlier key has the same id")]
    Repeated(usize),
}

#[derive(Clone)]
struct SealingKey {
    id: String,
    cipher: Aes256Gcm,
    /// Derived from the sealing key.
    signing: SigningKey,
    /// Derived from the sealing key.
    private: Private,
}

/// Sealing keys: the first seals, all open. Written as `ID:KEY[,ID:KEY…]`, each key as 64
/// hexadecimal digits.
#[derive(Clone)]
pub struct KeyRing {
    first: SealingKey,
    rest: Vec<SealingKey>,
}

/// Seals with the first key.
impl Seal for KeyRing {
    fn seal(&self, place: Place<'_>, secret: &[u8]) -> Result<Vec<u8>, SealError> {
        let mut nonce = [0; NONCE_BYTES];
        getrandom::fill(&mut nonce).map_err(|_| SealError)?;
        let aad = associated_data(&place, &self.first.id);
        let msg = secret;
        let payload = Payload { msg, aad: &aad };
        let sealed = self.first.cipher.encrypt(&Nonce::from(nonce), payload);
        let sealed = sealed.map_err(|_| SealError)?;
        Ok([&header(OWN, &self.first.id)[..], &nonce, &sealed].concat())
    }
}

impl KeyRing {
    /// The public half of the first key, for those who seal what they may not open.
    pub fn recipient(&self) -> Recipient {
        Recipient::new(&self.first.id, &self.first.private)
    }

    /// Opens a value that was sealed to this place, with the key that sealed it.
    pub fn open(&self, place: Place<'_>, sealed: &[u8]) -> Result<Secret, OpenError> {
        self.decrypt(&place, &Parts::of(sealed)?)
    }

    /// Seals a value again, with the first key; `None` if that has sealed it already.
    ///
    /// # Errors
    /// When it can't be decrypted or sealed.
    pub fn reseal(&self, place: Place<'_>, sealed: &[u8]) -> Result<Option<Vec<u8>>, ResealError> {
        let parts = Parts::of(sealed)?;
        if parts.key_id == self.first.id && matches!(parts.sealed, Sealed::Own { .. }) {
            return Ok(None);
        }
        let secret = self.decrypt(&place, &parts)?;
        Ok(Some(self.seal(place, secret.expose())?))
    }

    /// Signs data that leaves the service and comes back, with the first key and for one purpose.
    pub fn sign(&self, purpose: &str, parts: &[&[u8]]) -> Signature {
        self.first.sign(purpose, parts)
    }

    /// Whether any key has signed these parts for this purpose. Takes the same time for every
    /// signature.
    #[must_use]
    pub fn has_signed(&self, signature: &Signature, purpose: &str, parts: &[&[u8]]) -> bool {
        let is_by = |key: &SealingKey| key.sign(purpose, parts).is(signature);
        // Not `any`, which would stop at the first match and reveal by its time which key it was.
        self.keys().fold(false, |found, key| found | is_by(key))
    }

    fn decrypt(&self, place: &Place<'_>, parts: &Parts<'_>) -> Result<Secret, OpenError> {
        let key = self.keys().find(|key| key.id == parts.key_id);
        let key = key.ok_or_else(|| OpenError::UnknownKey {
            id: parts.key_id.to_owned(),
            setting: place.column().keys().name,
        })?;
        let aad = associated_data(place, parts.key_id);
        let msg = parts.ciphertext;
        match parts.sealed {
            Sealed::Own { nonce } => {
                let payload = Payload { msg, aad: &aad };
                let opened = key.cipher.decrypt(&Nonce::from(*nonce), payload);
                opened.map(Secret::new).map_err(|_| OpenError::Refused)
            }
            Sealed::Handed { encapsulated } => key.private.open(encapsulated, msg, &aad),
        }
    }

    fn keys(&self) -> impl Iterator<Item = &SealingKey> {
        std::iter::once(&self.first).chain(&self.rest)
    }
}

impl SealingKey {
    fn sign(&self, purpose: &str, parts: &[&[u8]]) -> Signature {
        let all = std::iter::once(purpose.as_bytes()).chain(parts.iter().copied());
        self.signing.sign(&framed(all))
    }
}

/// A value could not be sealed again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResealError {
    /// It can't be decrypted.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// It can't be sealed.
    #[error(transparent)]
    Seal(#[from] SealError),
}

/// Derives the secret of another key, so that no two purposes share one.
fn derived(sealing: &[u8; KEY_BYTES], purpose: &[u8]) -> Secret {
    let derivation = SigningKey::new(&Secret::new(sealing.to_vec()));
    Secret::new(derivation.sign(purpose).bytes().to_vec())
}

impl FromStr for KeyRing {
    type Err = KeyRingError;

    fn from_str(text: &str) -> Result<Self, KeyRingError> {
        let mut keys: Vec<SealingKey> = Vec::new();
        let entries = text.split(',').map(str::trim);
        for entry in entries.filter(|entry| !entry.is_empty()) {
            let number = keys.len() + 1;
            let key = parse_key(entry, number)?;
            if keys.iter().any(|other| other.id == key.id) {
                return Err(KeyRingError::Repeated(number));
            }
            keys.push(key);
        }
        let mut keys = keys.into_iter();
        let first = keys.next().ok_or(KeyRingError::Empty)?;
        Ok(Self {
            first,
            rest: keys.collect(),
        })
    }
}

fn parse_key(entry: &str, number: usize) -> Result<SealingKey, KeyRingError> {
    let (id, key) = entry.split_once(':').ok_or(KeyRingError::NoColon(number))?;
    let id_is_plain = id
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
    if id.is_empty() || id.len() > KEY_ID_MAX_BYTES || !id_is_plain {
        return Err(KeyRingError::Id(number));
    }
    let mut bytes = Zeroizing::new([0; KEY_BYTES]);
    let is_hex = hex::decode_to_slice(key, bytes.as_mut_slice()).is_ok();
    // A placeholder, such as all zeros, is not a key.
    if !is_hex || bytes.iter().all(|byte| *byte == bytes[0]) {
        return Err(KeyRingError::Key(number));
    }
    let cipher =
        Aes256Gcm::new_from_slice(bytes.as_slice()).map_err(|_| KeyRingError::Key(number))?;
    Ok(SealingKey {
        id: id.to_owned(),
        cipher,
        signing: SigningKey::new(&derived(&bytes, b"letterbox.mac.v1")),
        private: Private::derived_from(derived(&bytes, b"letterbox.hpke.v1").expose()),
    })
}

impl fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids = self.keys().map(|key| &key.id);
        f.debug_list().entries(ids).finish()
    }
}

#[cfg(test)]
mod tests;
