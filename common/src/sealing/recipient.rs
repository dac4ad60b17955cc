//! Sealing by those who may not open: to the public half of a key of a ring, by HPKE (RFC 9180)
//! with X25519, HKDF-SHA256 and AES-256-GCM. Whoever has the ring opens it, as what it has sealed
//! itself.

use hpke::{
    Deserializable, Kem, OpModeR, OpModeS, Serializable, aead::AesGcm256, kdf::HkdfSha256,
    kem::X25519HkdfSha256, single_shot_open, single_shot_seal,
};

use super::{
    format::{HANDED, OpenError, PUBLIC_BYTES, Seal, SealError, associated_data, header},
    place::Place,
};
use crate::secret::Secret;

/// What a box is for, which HPKE binds to its key.
const INFO: &[u8] = b"letterbox.handed.v1";

/// The private half of a key of a ring.
#[derive(Clone)]
pub(super) struct Private(<X25519HkdfSha256 as Kem>::PrivateKey);

impl Private {
    /// Derives it from secret bytes.
    pub(super) fn derived_from(secret: &[u8]) -> Self {
        Self(X25519HkdfSha256::derive_keypair(secret).0)
    }

    /// Opens what was sealed to its public half.
    pub(super) fn open(
        &self,
        encapsulated: &[u8; PUBLIC_BYTES],
        ciphertext: &[u8],
        aad: &[u8],
    ) -> Result<Secret, OpenError> {
        let encapsulated = <X25519HkdfSha256 as Kem>::EncappedKey::from_bytes(encapsulated);
        let opened = single_shot_open::<AesGcm256, HkdfSha256, X25519HkdfSha256>(
            &OpModeR::Base,
            &self.0,
            &encapsulated.map_err(|_| OpenError::Malformed)?,
            INFO,
            ciphertext,
            aad,
        );
        opened.map(Secret::new).map_err(|_| OpenError::Refused)
    }
}

/// The public half of a key of a ring: seals, and opens nothing.
#[derive(Clone)]
pub struct Recipient {
    key_id: String,
    public: <X25519HkdfSha256 as Kem>::PublicKey,
}

impl Recipient {
    pub(super) fn new(key_id: &str, private: &Private) -> Self {
        Self {
            key_id: key_id.to_owned(),
            public: X25519HkdfSha256::sk_to_pk(&private.0),
        }
    }

    /// The public half of the key with this id; `None` if these bytes are none.
    pub fn from_bytes(key_id: String, public: &[u8]) -> Option<Self> {
        let public = <X25519HkdfSha256 as Kem>::PublicKey::from_bytes(public).ok()?;
        Some(Self { key_id, public })
    }

    /// The id of the key.
    pub fn key_id(&self) -> &str {
        &self.key_id
    }

    /// Its public half.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.public.to_bytes().to_vec()
    }
}

impl Seal for Recipient {
    fn seal(&self, place: Place<'_>, secret: &[u8]) -> Result<Vec<u8>, SealError> {
        let aad = associated_data(&place, &self.key_id);
        let sealed = single_shot_seal::<AesGcm256, HkdfSha256, X25519HkdfSha256>(
            &OpModeS::Base,
            &self.public,
            INFO,
            secret,
            &aad,
        );
        let (encapsulated, ciphertext) = sealed.map_err(|_| SealError)?;
        let encapsulated = encapsulated.to_bytes();
        Ok([
            &header(HANDED, &self.key_id)[..],
            &encapsulated,
            &ciphertext,
        ]
        .concat())
    }
}
