//! The keys of webhooks: the secret of an HMAC, or the public key of a tool that signs with its
//! private one.
//!
//! How long a refusal takes may tell nobody which algorithm a webhook has, and so that there is
//! one. A check makes as many verifications whatever it is given; what is malformed is replaced by
//! something that takes as long; and [`Kinds::even_out`] makes up for the algorithms that were not
//! used.

use std::sync::{
    LazyLock,
    atomic::{AtomicU8, Ordering},
};

use base64::{Engine, prelude::BASE64_STANDARD};
use ring::hmac;
use subtle::ConstantTimeEq;

use super::{algorithm::Algorithm, public_key::PublicKey, signature::SigningKey};
use crate::secret::{Secret, never_printed};

/// Maximum keys of one webhook: two while one takes the place of another.
const MAX_KEYS: usize = 2;

/// A key, prepared for verifying.
#[derive(Clone)]
enum Key {
    Sha256(Box<SigningKey>),
    Ring(hmac::Key),
    Public(PublicKey),
}

/// The keys of one webhook: one, or two while the first takes the place of the second.
#[derive(Clone)]
pub struct Keys {
    keys: Vec<Key>,
    /// How many verifications a check makes.
    checks: usize,
}

/// The text is no key of its algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidKey {
    /// The secret of an HMAC.
    #[error("the secret does not have the format of this tool's secrets")]
    Secret,
    /// A public key.
    #[error(
        "this is no public key of the tool: give it as PEM, base64 or hexadecimal digits, two at \
         most (RSA with 2048, 3072 or 4096 bits)"
    )]
    Public,
}

impl Keys {
    /// The keys of an HMAC.
    pub(super) fn of_secret(algorithm: Algorithm, key: Vec<u8>) -> Self {
        let of_ring = |digest| Key::Ring(hmac::Key::new(digest, &key));
        Self::of(vec![match algorithm {
            Algorithm::HmacSha512 => of_ring(hmac::HMAC_SHA512),
            Algorithm::HmacSha1 => of_ring(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY),
            _ => Key::Sha256(Box::new(SigningKey::new(&Secret::new(key)))),
        }])
    }

    /// The public keys in a text: PEM blocks, or words in base64 or hexadecimal digits.
    pub(super) fn of_public(algorithm: Algorithm, text: &str) -> Result<Self, InvalidKey> {
        let keys = written_keys(text).map(|key| PublicKey::new(algorithm, &key?).map(Key::Public));
        let keys: Option<Vec<Key>> = keys.collect();
        // Two of one kind: another takes another time.
        let is_alike = |keys: &[Key]| keys.windows(2).all(|two| two[0].kind() == two[1].kind());
        let keys = keys.filter(|keys| (1..=MAX_KEYS).contains(&keys.len()) && is_alike(keys));
        keys.map(Self::of).ok_or(InvalidKey::Public)
    }

    fn of(keys: Vec<Key>) -> Self {
        let checks = MAX_KEYS;
        Self { keys, checks }
    }

    /// The keys of a former secret count, too, as far as there is room.
    #[must_use]
    pub fn beside(mut self, former: Option<Self>) -> Self {
        let former = former.into_iter().flat_map(|former| former.keys);
        self.keys.extend(former);
        self.keys.truncate(MAX_KEYS);
        self
    }

    /// Each of them alone, as often as there may be keys, so that it takes as long.
    pub(super) fn each(&self) -> impl Iterator<Item = Self> {
        let keys = self.keys.iter().cycle().take(MAX_KEYS);
        keys.map(|key| Self {
            keys: vec![key.clone()],
            checks: 1,
        })
    }

    /// Whether one of these signatures is of the concatenated parts. Unless the first key succeeds,
    /// two verifications are made.
    pub(super) fn verify<'p, P>(&self, parts: &P, signatures: &[Vec<u8>]) -> bool
    where
        P: Iterator<Item = &'p [u8]> + Clone,
    {
        let mut keys = self.keys.iter().cycle().take(self.checks);
        keys.any(|key| key.verifies(parts.clone(), signatures))
    }

    /// The MAC of the concatenated parts by the first key, if it is a secret.
    pub(super) fn mac<'p>(&self, parts: impl Iterator<Item = &'p [u8]>) -> Option<Vec<u8>> {
        self.keys.first()?.mac(parts)
    }

    /// Their kind; see [`Kinds`].
    fn kind(&self) -> u8 {
        self.keys.first().map_or(0, Key::kind)
    }
}

impl Key {
    fn mac<'p>(&self, parts: impl Iterator<Item = &'p [u8]>) -> Option<Vec<u8>> {
        match self {
            Self::Sha256(key) => Some(key.sign_parts(parts).bytes().to_vec()),
            Self::Ring(key) => {
                let mut mac = hmac::Context::with_key(key);
                parts.for_each(|part| mac.update(part));
                Some(mac.sign().as_ref().to_vec())
            }
            Self::Public(_) => None,
        }
    }

    fn verifies<'p>(&self, parts: impl Iterator<Item = &'p [u8]>, signatures: &[Vec<u8>]) -> bool {
        match self {
            Self::Public(key) => {
                let content = parts.collect::<Vec<_>>().concat();
                key.verifies(&content, signatures.first().map(Vec::as_slice))
            }
            Self::Sha256(_) | Self::Ring(_) => {
                let mac = self.mac(parts).unwrap_or_default();
                let is = |one: &Vec<u8>| bool::from(one.ct_eq(&mac));
                signatures.iter().fold(false, |found, one| found | is(one))
            }
        }
    }

    fn kind(&self) -> u8 {
        match self {
            Self::Sha256(_) => bits(Algorithm::HmacSha256),
            Self::Ring(key) if key.algorithm() == hmac::HMAC_SHA512 => bits(Algorithm::HmacSha512),
            Self::Ring(_) => bits(Algorithm::HmacSha1),
            Self::Public(key) => match key.bytes.len() {
                256 => 1 << 5,
                384 => 1 << 6,
                512 => 1 << 7,
                _ => bits(key.algorithm),
            },
        }
    }
}

/// The bit of an algorithm; of RSA, one for each length.
fn bits(algorithm: Algorithm) -> u8 {
    match algorithm {
        Algorithm::HmacSha256 => 1,
        Algorithm::HmacSha512 => 1 << 1,
        Algorithm::HmacSha1 => 1 << 2,
        Algorithm::Ed25519 => 1 << 3,
        Algorithm::EcdsaP256 => 1 << 4,
        Algorithm::RsaSha256 => 0b111 << 5,
    }
}

/// Which kinds of keys webhooks have, a bit each.
#[derive(Debug)]
pub struct Kinds(AtomicU8);

impl Default for Kinds {
    /// That of the decoys.
    fn default() -> Self {
        Self(AtomicU8::new(1))
    }
}

impl Kinds {
    /// From now on, refusals take as long as if such keys had been used.
    pub fn add(&self, algorithm: Algorithm) {
        self.0.fetch_or(bits(algorithm), Ordering::Relaxed);
    }

    /// Makes the verifications that a check by `keys` has not made, of all kinds that there are.
    pub fn even_out(&self, keys: &Keys, body: &[u8]) {
        static OTHERS: LazyLock<Vec<Key>> = LazyLock::new(decoys);
        let missing = self.0.load(Ordering::Relaxed) & !keys.kind();
        for key in OTHERS.iter().filter(|key| key.kind() & missing != 0) {
            for _ in 0..MAX_KEYS {
                let _ = std::hint::black_box(key.verifies([body].into_iter(), &[]));
            }
        }
    }
}

/// A key of every kind, to which nobody has the other half.
fn decoys() -> Vec<Key> {
    let secrets = Algorithm::HMACS.map(|one| Keys::of_secret(one, vec![0; 32]).keys);
    let publics = PublicKey::decoys().map(Key::Public);
    secrets.into_iter().flatten().chain(publics).collect()
}

/// The keys that a text holds, as bytes; `None` for one that is written in no known way.
fn written_keys(text: &str) -> impl Iterator<Item = Option<Vec<u8>>> {
    let is_pem = text.contains("-----BEGIN ");
    let blocks = text.split("-----END ").filter_map(move |block| {
        let (_, rest) = block.split_once("-----BEGIN ").filter(|_| is_pem)?;
        let (_, written) = rest.split_once("-----")?;
        Some(written.split_ascii_whitespace().collect::<String>())
    });
    let words = text.split_ascii_whitespace().filter(move |_| !is_pem);
    let written = blocks.chain(words.map(str::to_owned));
    written.map(|key| {
        let decoded = hex::decode(&key).ok();
        decoded.or_else(|| BASE64_STANDARD.decode(&key).ok())
    })
}

never_printed!(Keys);
