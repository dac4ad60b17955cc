//! The bytes of a sealed value, and what they are bound to.
//!
//! Layout: `version (1) | length of key id (1) | key id | nonce (12) | ciphertext and tag`. Nonces
//! are random: with 96 bits that is safe for 2^32 seals under one key, far more than there will
//! ever be webhooks. What a public half has sealed has another version, and the encapsulated key
//! (32) in place of the nonce.

use super::place::Place;

/// The version of what a key of the ring has sealed.
pub(super) const OWN: u8 = 1;
/// The version of what was sealed to the public half of a key.
pub(super) const HANDED: u8 = 2;
pub(super) const NONCE_BYTES: usize = 12;
/// Bytes of a public key, and of an encapsulated one.
pub(super) const PUBLIC_BYTES: usize = 32;

/// Seals secrets to their places.
pub trait Seal: Sync {
    /// Seals `secret` to its place.
    ///
    /// # Errors
    /// When the operating system gives no random bytes, or the secret is beyond AES-GCM's 64 GiB.
    fn seal(&self, place: Place<'_>, secret: &[u8]) -> Result<Vec<u8>, SealError>;
}

/// Why a sealed value can't be decrypted. Never the sender's fault.
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

/// Sealing failed: no random bytes, or a secret beyond the limit of AES-GCM.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a secret could not be sealed: the operating system gave no random bytes")]
pub struct SealError;

/// A sealed value, taken apart.
pub(super) struct Parts<'a> {
    pub(super) key_id: &'a str,
    pub(super) sealed: Sealed<'a>,
    pub(super) ciphertext: &'a [u8],
}

/// By which half of a key a value was sealed.
pub(super) enum Sealed<'a> {
    /// By the key of the ring.
    Own { nonce: &'a [u8; NONCE_BYTES] },
    /// By its public half.
    Handed {
        encapsulated: &'a [u8; PUBLIC_BYTES],
    },
}

impl<'a> Parts<'a> {
    pub(super) fn of(sealed: &'a [u8]) -> Result<Self, OpenError> {
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
pub(super) fn header(version: u8, key_id: &str) -> Vec<u8> {
    let mut header = vec![version, key_id.len() as u8];
    header.extend_from_slice(key_id.as_bytes());
    header
}

/// Prefixes every part with its length, so that no two lists of parts give the same bytes.
pub(super) fn framed<'p>(parts: impl Iterator<Item = &'p [u8]>) -> Vec<u8> {
    let length = |part: &[u8]| (part.len() as u64).to_be_bytes();
    parts
        .flat_map(|part| length(part).into_iter().chain(part.iter().copied()))
        .collect()
}

/// The associated data that binds a value to its place. No two places share it.
pub(super) fn associated_data(place: &Place<'_>, key_id: &str) -> Vec<u8> {
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
