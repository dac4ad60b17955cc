//! Sealing: secrets are stored encrypted and bound to their row.
//!
//! A sealed value is AES-256-GCM under one key of a key ring. Its associated data names the table,
//! column, workspace and row it belongs to, so a value copied into another row, column or workspace
//! does not open. A credential is also bound to the user, the header and the base URL in its row:
//! after a change to one of them the credential is sent nowhere. The first key of the ring seals,
//! all of them open: keys are rotated by putting a new one first and resealing everything.
//!
//! [`SealedColumn`] lists all columns that hold sealed values; each has a key ring of its own.
//!
//! Layout: `version (1) | length of key id (1) | key id | nonce (12) | ciphertext and tag`. Nonces
//! are random: with 96 bits that is safe for 2^32 seals under one key, far more than there will
//! ever be webhooks. What a [`Recipient`] has sealed has another version, and the encapsulated key
//! (32) in place of the nonce.

mod place;
mod recipient;
mod settings;

use std::{fmt, str::FromStr};

use aes_gcm::{
    Aes256Gcm, KeyInit, Nonce,
    aead::{Aead, Payload},
};
use zeroize::Zeroizing;

pub use crate::secret::Secret;
use crate::webhook::{Signature, SigningKey};

use self::recipient::{PUBLIC_BYTES, Private};
pub use self::{
    place::{Place, SealedColumn},
    recipient::Recipient,
    settings::{ACCOUNT_KEYS, SEALING_KEYS, WEBHOOK_KEYS, key_ring, keys_of},
};

/// The version of what a key of the ring has sealed.
const OWN: u8 = 1;
/// The version of what was sealed to the public half of a key.
const HANDED: u8 = 2;
const NONCE_BYTES: usize = 12;
const KEY_BYTES: usize = 32;
const KEY_ID_MAX_BYTES: usize = 32;

/// Why a sealed value does not open. Never the sender's fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// It does not have the format of a sealed value.
    #[error("the sealed value is damaged or of an unknown version")]
    Malformed,
    /// The key that sealed it is not in the ring.
    #[error("sealed with key '{id}', which is not in {setting}")]
    UnknownKey {
        /// The id of the missing key.
        id: String,
        /// The setting that lacks it.
        setting: &'static str,
    },
    /// It does not decrypt with its key in this place.
    #[error(
        "the sealed value or what it is bound to was altered, it was copied from another row, or \
         it was sealed with another key of the same id"
    )]
    Refused,
}

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
struct Key {
    id: String,
    cipher: Aes256Gcm,
    /// Derived from the sealing key.
    signing: SigningKey,
    /// Derived from the sealing key.
    private: Private,
}

/// Seals secrets to their places.
pub trait Seal: Sync {
    /// Seals `secret` to its place.
    ///
    /// # Errors
    /// When the operating system gives no random bytes, or the secret is beyond AES-GCM's 64 GiB.
    fn seal(&self, place: Place<'_>, secret: &[u8]) -> Result<Vec<u8>, SealError>;
}

/// Sealing keys: the first seals, all open. Written as `ID:KEY[,ID:KEY…]`, each key as 64
/// hexadecimal digits.
#[derive(Clone)]
pub struct KeyRing {
    first: Key,
    rest: Vec<Key>,
}

/// Seals with the first key.
impl Seal for KeyRing {
    fn seal(&self, place: Place<'_>, secret: &[u8]) -> Result<Vec<u8>, SealError> {
        let mut nonce = [0; NONCE_BYTES];
        getrandom::fill(&mut nonce).map_err(|_| SealError)?;
        let aad = associated_data(&place, &self.first.id);
        let payload = Payload {
            msg: secret,
            aad: &aad,
        };
        let sealed = self
            .first
            .cipher
            .encrypt(&Nonce::from(nonce), payload)
            .map_err(|_| SealError)?;

        let mut out = header(OWN, &self.first.id);
        out.extend_from_slice(&nonce);
        out.extend_from_slice(&sealed);
        Ok(out)
    }
}

impl KeyRing {
    /// The public half of the first key, for those who seal what they may not open.
    #[must_use]
    pub fn recipient(&self) -> Recipient {
        Recipient::new(&self.first.id, &self.first.private)
    }

    /// Opens a value that was sealed to this place, with the key that sealed it.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(&self, place: Place<'_>, sealed: &[u8]) -> Result<Secret, OpenError> {
        self.decrypt(&place, &Parts::of(sealed)?)
    }

    /// Seals a value again, with the first key; `None` if that has sealed it already.
    ///
    /// # Errors
    /// When it does not open, or can't be sealed.
    pub fn reseal(&self, place: Place<'_>, sealed: &[u8]) -> Result<Option<Vec<u8>>, ResealError> {
        let parts = Parts::of(sealed)?;
        if parts.key_id == self.first.id && matches!(parts.sealed, Sealed::Own { .. }) {
            return Ok(None);
        }
        let secret = self.decrypt(&place, &parts)?;
        Ok(Some(self.seal(place, secret.expose())?))
    }

    /// Signs data that leaves the service and comes back, with the first key and for one purpose.
    #[must_use]
    pub fn sign(&self, purpose: &str, parts: &[&[u8]]) -> Signature {
        sign(&self.first, purpose, parts)
    }

    /// Whether any key has signed these parts for this purpose. Takes the same time for every
    /// signature.
    #[must_use]
    pub fn has_signed(&self, signature: &Signature, purpose: &str, parts: &[&[u8]]) -> bool {
        let keys = std::iter::once(&self.first).chain(&self.rest);
        // Not `any`, which would stop at the first match and reveal by its time which key it was.
        keys.fold(false, |found, key| {
            found | sign(key, purpose, parts).is(signature)
        })
    }

    fn decrypt(&self, place: &Place<'_>, parts: &Parts<'_>) -> Result<Secret, OpenError> {
        let key = self
            .find(parts.key_id)
            .ok_or_else(|| OpenError::UnknownKey {
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

    fn find(&self, id: &str) -> Option<&Key> {
        std::iter::once(&self.first)
            .chain(&self.rest)
            .find(|key| key.id == id)
    }
}

/// Sealing failed: no random bytes, or a secret beyond the limit of AES-GCM.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a secret could not be sealed: the operating system gave no random bytes")]
pub struct SealError;

/// A value could not be sealed again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResealError {
    /// It does not open.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// It can't be sealed.
    #[error(transparent)]
    Seal(#[from] SealError),
}

/// A sealed value, taken apart.
struct Parts<'a> {
    key_id: &'a str,
    sealed: Sealed<'a>,
    ciphertext: &'a [u8],
}

/// By which half of a key a value was sealed.
enum Sealed<'a> {
    /// By the key of the ring.
    Own { nonce: &'a [u8; NONCE_BYTES] },
    /// By its public half.
    Handed {
        encapsulated: &'a [u8; PUBLIC_BYTES],
    },
}

impl<'a> Parts<'a> {
    fn of(sealed: &'a [u8]) -> Result<Self, OpenError> {
        let parts = || {
            let [version, id_length, rest @ ..] = sealed else {
                return None;
            };
            let (id, rest) = rest.split_at_checked(usize::from(*id_length))?;
            let key_id = std::str::from_utf8(id).ok()?;
            let (sealed, ciphertext) = match *version {
                OWN => {
                    let (nonce, ciphertext) = rest.split_first_chunk()?;
                    (Sealed::Own { nonce }, ciphertext)
                }
                HANDED => {
                    let (encapsulated, ciphertext) = rest.split_first_chunk()?;
                    (Sealed::Handed { encapsulated }, ciphertext)
                }
                _ => return None,
            };
            Some(Self {
                key_id,
                sealed,
                ciphertext,
            })
        };
        parts().ok_or(OpenError::Malformed)
    }
}

/// The beginning of a sealed value.
fn header(version: u8, key_id: &str) -> Vec<u8> {
    let mut header = vec![version, key_id.len() as u8];
    header.extend_from_slice(key_id.as_bytes());
    header
}

/// Derives the secret of another key, so that no two purposes share one.
fn derived(sealing: &[u8; KEY_BYTES], purpose: &[u8]) -> Secret {
    let derivation = SigningKey::new(&Secret::new(sealing.to_vec()));
    Secret::new(derivation.sign(purpose).bytes().to_vec())
}

fn sign(key: &Key, purpose: &str, parts: &[&[u8]]) -> Signature {
    let all = std::iter::once(purpose.as_bytes()).chain(parts.iter().copied());
    key.signing.sign(&framed(all))
}

/// Prefixes every part with its length, so that no two lists of parts give the same bytes.
fn framed<'p>(parts: impl Iterator<Item = &'p [u8]>) -> Vec<u8> {
    let length = |part: &[u8]| (part.len() as u64).to_be_bytes();
    parts
        .flat_map(|part| length(part).into_iter().chain(part.iter().copied()))
        .collect()
}

/// The associated data that binds a value to its place. No two places share it.
fn associated_data(place: &Place<'_>, key_id: &str) -> Vec<u8> {
    let column = place.column();
    let [workspace, row] = place.row();
    let mut parts: Vec<&[u8]> = vec![
        b"letterbox.sealed.v1",
        column.table().as_bytes(),
        column.name().as_bytes(),
        workspace,
        row,
        key_id.as_bytes(),
    ];
    parts.extend(place.bound_columns());
    framed(parts.into_iter())
}

impl FromStr for KeyRing {
    type Err = KeyRingError;

    fn from_str(text: &str) -> Result<Self, KeyRingError> {
        let mut keys: Vec<Key> = Vec::new();
        for (index, entry) in text
            .split(',')
            .map(str::trim)
            .filter(|entry| !entry.is_empty())
            .enumerate()
        {
            let key = parse_key(entry, index + 1)?;
            if keys.iter().any(|other| other.id == key.id) {
                return Err(KeyRingError::Repeated(index + 1));
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

fn parse_key(entry: &str, number: usize) -> Result<Key, KeyRingError> {
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
    Ok(Key {
        id: id.to_owned(),
        cipher,
        signing: SigningKey::new(&derived(&bytes, b"letterbox.mac.v1")),
        private: Private::derived_from(derived(&bytes, b"letterbox.hpke.v1").expose()),
    })
}

impl fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids = std::iter::once(&self.first)
            .chain(&self.rest)
            .map(|key| &key.id);
        f.debug_list().entries(ids).finish()
    }
}

#[cfg(test)]
mod tests;
