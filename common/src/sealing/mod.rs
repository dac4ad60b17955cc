//! Sealing: secrets are stored encrypted and bound to their place.
//!
//! A sealed value is AES-256-GCM under one key of a key ring. Its associated data names the table,
//! column, workspace and row it belongs to, so a value copied into another row, column or workspace
//! does not open. The first key of the ring seals, all of them open: keys are rotated by putting a
//! new one first and sealing everything again.
//!
//! [`SealedColumn`] lists all columns that hold sealed values.
//!
//! Layout: `version (1) | length of key id (1) | key id | nonce (12) | ciphertext and tag`. Nonces
//! are random: with 96 bits that is safe for far more seals under one key (2^32) than there will
//! ever be webhooks.

mod place;

use std::{fmt, str::FromStr};

use aes_gcm::{
    Aes256Gcm, KeyInit, Nonce,
    aead::{Aead, Payload},
};
use zeroize::Zeroizing;

pub use self::place::{Place, SealedColumn};

const VERSION: u8 = 1;
const NONCE_BYTES: usize = 12;
const KEY_BYTES: usize = 32;
const KEY_ID_MAX_BYTES: usize = 32;

/// An opened secret. Wiped when dropped, never printed.
#[derive(Clone)]
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// Keeps these bytes; they are wiped when the secret is dropped.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// The secret itself: for the moment of its use.
    #[must_use]
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Why a sealed value does not open. None of it is the sender's fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// It does not have the format of a sealed value.
    #[error("the sealed value is damaged or of an unknown version")]
    Malformed,
    /// No key of the ring has the id of the key that sealed it. Holds that id.
    #[error("sealed with key '{0}', which is not in LETTERBOX_SEALING_KEYS")]
    UnknownKey(String),
    /// It does not decrypt with its key at this place.
    #[error(
        "the sealed value was altered, was copied from another row, or was sealed with another \
         key of the same id"
    )]
    Refused,
}

/// The text is not a key ring. Quotes none of its keys.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyRingError {
    /// The text has no key in it.
    #[error("at least one key is needed, as ID:KEY")]
    Empty,
    /// An entry has no colon. Holds its number, counted from 1, as the variants below do.
    #[error("key {0}: must be ID:KEY")]
    NoColon(usize),
    /// The id is empty, too long, or has other characters.
    #[error("key {0}: the id must be 1 to 32 letters, digits, '-' or '_'")]
    Id(usize),
    /// The key is not 64 hexadecimal digits.
    #[error(
        "key {0}: the key must be 64 hexadecimal digits (256 bits; 'openssl rand -hex 32' makes \
         one)"
    )]
    Key(usize),
    /// An earlier key has this id.
    #[error("key {0}: an earlier key has the same id")]
    Repeated(usize),
}

#[derive(Clone)]
struct Key {
    id: String,
    cipher: Aes256Gcm,
}

/// The sealing keys: the first seals, all open. Written `ID:KEY[,ID:KEY…]`, keys as 64 hexadecimal
/// digits.
#[derive(Clone)]
pub struct KeyRing {
    first: Key,
    rest: Vec<Key>,
}

impl KeyRing {
    /// Seals `secret` to its place with the first key.
    ///
    /// # Errors
    /// When the operating system gives no random bytes, or the secret is beyond AES-GCM's 64 GiB.
    pub fn seal(&self, place: Place<'_>, secret: &[u8]) -> Result<Vec<u8>, SealError> {
        let mut nonce = [0; NONCE_BYTES];
        getrandom::fill(&mut nonce).map_err(|_| SealError)?;
        let aad = associated_data(place, &self.first.id);
        let payload = Payload {
            msg: secret,
            aad: &aad,
        };
        let sealed = self
            .first
            .cipher
            .encrypt(&Nonce::from(nonce), payload)
            .map_err(|_| SealError)?;

        let mut out = vec![VERSION, self.first.id.len() as u8];
        out.extend_from_slice(self.first.id.as_bytes());
        out.extend_from_slice(&nonce);
        out.extend_from_slice(&sealed);
        Ok(out)
    }

    /// Opens what was sealed to this place, with whichever key sealed it.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(&self, place: Place<'_>, sealed: &[u8]) -> Result<Secret, OpenError> {
        let (id, rest) = split_key_id(sealed)?;
        let (nonce, ciphertext) = rest
            .split_first_chunk::<NONCE_BYTES>()
            .ok_or(OpenError::Malformed)?;
        let key = self
            .find(id)
            .ok_or_else(|| OpenError::UnknownKey(id.to_owned()))?;
        let aad = associated_data(place, id);
        key.cipher
            .decrypt(
                &Nonce::from(*nonce),
                Payload {
                    msg: ciphertext,
                    aad: &aad,
                },
            )
            .map(Secret::new)
            .map_err(|_| OpenError::Refused)
    }

    /// Whether a value is sealed with the first key. If not, rotation seals it again.
    ///
    /// # Errors
    /// [`OpenError::Malformed`] when it is not a sealed value.
    pub fn is_current(&self, sealed: &[u8]) -> Result<bool, OpenError> {
        Ok(split_key_id(sealed)?.0 == self.first.id)
    }

    fn find(&self, id: &str) -> Option<&Key> {
        std::iter::once(&self.first)
            .chain(&self.rest)
            .find(|key| key.id == id)
    }
}

/// Sealing failed: no randomness, or a secret of absurd size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a secret could not be sealed: the operating system gave no random bytes")]
pub struct SealError;

fn split_key_id(sealed: &[u8]) -> Result<(&str, &[u8]), OpenError> {
    let [VERSION, id_length, rest @ ..] = sealed else {
        return Err(OpenError::Malformed);
    };
    let (id, rest) = rest
        .split_at_checked(usize::from(*id_length))
        .ok_or(OpenError::Malformed)?;
    Ok((
        std::str::from_utf8(id).map_err(|_| OpenError::Malformed)?,
        rest,
    ))
}

/// Every part with its length before it, so that no two places have the same text.
fn associated_data(place: Place<'_>, key_id: &str) -> Vec<u8> {
    let parts: [&[u8]; 6] = [
        b"letterbox.sealed.v1",
        place.column.table().as_bytes(),
        place.column.name().as_bytes(),
        place.workspace.as_bytes(),
        place.row,
        key_id.as_bytes(),
    ];
    parts
        .iter()
        .flat_map(|part| {
            (part.len() as u64)
                .to_be_bytes()
                .into_iter()
                .chain(part.iter().copied())
        })
        .collect()
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
    hex::decode_to_slice(key, bytes.as_mut_slice()).map_err(|_| KeyRingError::Key(number))?;
    let cipher =
        Aes256Gcm::new_from_slice(bytes.as_slice()).map_err(|_| KeyRingError::Key(number))?;
    Ok(Key {
        id: id.to_owned(),
        cipher,
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
mod tests {
    use super::*;
    use crate::ids::WorkspaceId;

    const OLD: &str = "old:000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
    const NEW: &str = "new:f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff000102030405060708090a0b0c0d0e0f";

    fn ring(text: &str) -> KeyRing {
        text.parse().unwrap()
    }

    fn place(workspace: WorkspaceId, row: &[u8]) -> Place<'_> {
        SealedColumn::WebhookSecret.place(workspace, row)
    }

    #[test]
    fn a_sealed_value_opens_in_its_place_only() {
        let (keys, workspace) = (ring(OLD), WorkspaceId::generate());
        let here = place(workspace, b"row");
        let sealed = keys.seal(here, b"the secret").unwrap();
        assert_eq!(keys.open(here, &sealed).unwrap().expose(), b"the secret");

        let elsewhere = [
            place(workspace, b"other"),
            place(WorkspaceId::generate(), b"row"),
            SealedColumn::AccountCredential.place(workspace, b"row"),
        ];
        for other in elsewhere {
            assert_eq!(keys.open(other, &sealed).unwrap_err(), OpenError::Refused);
        }
    }

    #[test]
    fn any_altered_or_missing_byte_is_noticed() {
        let (keys, workspace) = (ring(OLD), WorkspaceId::generate());
        let sealed = keys.seal(place(workspace, b"row"), b"the secret").unwrap();
        for index in 0..sealed.len() {
            let mut altered = sealed.clone();
            altered[index] ^= 1;
            assert!(
                keys.open(place(workspace, b"row"), &altered).is_err(),
                "byte {index}"
            );
            assert!(
                keys.open(place(workspace, b"row"), &sealed[..index])
                    .is_err(),
                "cut at {index}"
            );
        }
    }

    #[test]
    fn the_first_key_seals_and_all_open() {
        let (workspace, both) = (WorkspaceId::generate(), ring(&format!("{NEW},{OLD}")));
        let here = place(workspace, b"row");
        let old = ring(OLD).seal(here, b"s").unwrap();
        assert_eq!(both.open(here, &old).unwrap().expose(), b"s");
        assert_eq!(both.is_current(&old), Ok(false));

        let new = both.seal(here, b"s").unwrap();
        assert_eq!(both.is_current(&new), Ok(true));
        assert_eq!(
            ring(OLD).open(here, &new).unwrap_err(),
            OpenError::UnknownKey("new".into())
        );
    }

    #[test]
    fn two_seals_of_one_secret_differ() {
        let (keys, workspace) = (ring(OLD), WorkspaceId::generate());
        let seal = || keys.seal(place(workspace, b"row"), b"s").unwrap();
        assert_ne!(seal(), seal());
    }

    #[test]
    fn key_rings_are_checked_and_never_printed() {
        let cases = [
            ("", KeyRingError::Empty),
            (" , ", KeyRingError::Empty),
            ("abc", KeyRingError::NoColon(1)),
            (":00", KeyRingError::Id(1)),
            ("a b:00", KeyRingError::Id(1)),
            ("a:00", KeyRingError::Key(1)),
            (
                "a:zz0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f",
                KeyRingError::Key(1),
            ),
        ];
        for (text, error) in cases {
            assert_eq!(text.parse::<KeyRing>().unwrap_err(), error, "{text}");
        }
        assert_eq!(
            format!("{OLD},{OLD}").parse::<KeyRing>().unwrap_err(),
            KeyRingError::Repeated(2)
        );
        assert_eq!(
            format!("{:?}", ring(&format!("{NEW},{OLD}"))),
            r#"["new", "old"]"#
        );
        assert!(!format!("{:?}", Secret::new(b"canary".to_vec())).contains("canary"));
    }
}
