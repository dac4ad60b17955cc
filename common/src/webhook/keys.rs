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
use ring::{
    hmac,
    signature::{
        ECDSA_P256_SHA256_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents,
        UnparsedPublicKey, VerificationAlgorithm,
    },
};
use subtle::ConstantTimeEq;

use super::signature::SigningKey;
use crate::{secret::Secret, text_enum};

text_enum! {
    /// How a tool signs.
    pub enum Algorithm {
        /// HMAC with SHA-256
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

/// Maximum keys of one webhook: two while one takes the place of another.
const MAX_KEYS: usize = 2;

impl Algorithm {
    /// Whether the key is a public one that the owner has of the tool, and no secret.
    #[must_use]
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

/// A key, prepared for verifying.
#[derive(Clone)]
enum Key {
    Sha256(Box<SigningKey>),
    Ring(hmac::Key),
    Public(PublicKey),
}

/// A public key, as ring takes it.
#[derive(Clone)]
struct PublicKey {
    algorithm: Algorithm,
    /// A point, or the modulus of RSA.
    bytes: Vec<u8>,
    /// Of RSA.
    exponent: Vec<u8>,
}

/// The keys of one webhook: one, or two while the first takes the place of the second.
#[derive(Clone)]
pub struct Keys(Vec<Key>);

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
        Self(vec![match algorithm {
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
        keys.map(Self).ok_or(InvalidKey::Public)
    }

    /// The keys of a former secret count, too, as far as there is room.
    #[must_use]
    pub fn beside(mut self, former: Option<Self>) -> Self {
        self.0
            .extend(former.into_iter().flat_map(|former| former.0));
        self.0.truncate(MAX_KEYS);
        self
    }

    /// Each of them alone, as often as there may be keys, so that it takes as long.
    pub(super) fn each(&self) -> impl Iterator<Item = Self> {
        let keys = self.0.iter().cycle().take(MAX_KEYS);
        keys.map(|key| Self(vec![key.clone()]))
    }

    /// Whether one of these signatures is of the concatenated parts. Unless the first key succeeds,
    /// two verifications are made.
    pub(super) fn verify<'p, P>(&self, parts: &P, signatures: &[Vec<u8>]) -> bool
    where
        P: Iterator<Item = &'p [u8]> + Clone,
    {
        let mut keys = self.0.iter().cycle().take(MAX_KEYS);
        keys.any(|key| key.verifies(parts.clone(), signatures))
    }

    /// The MAC of the concatenated parts by the first key, if it is a secret.
    pub(super) fn mac<'p>(&self, parts: impl Iterator<Item = &'p [u8]>) -> Option<Vec<u8>> {
        self.0.first()?.mac(parts)
    }

    /// Their kind; see [`Kinds`].
    fn kind(&self) -> u8 {
        self.0.first().map_or(0, Key::kind)
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
    let hmacs = [
        Algorithm::HmacSha256,
        Algorithm::HmacSha512,
        Algorithm::HmacSha1,
    ];
    let secrets = hmacs.map(|one| Keys::of_secret(one, vec![0; 32]).0);
    // The generators of both curves, and moduli of which nobody needs the factors.
    let mut point = [0x66; 32];
    point[0] = 0x58;
    let points = [
        (Algorithm::Ed25519, point.to_vec()),
        (Algorithm::EcdsaP256, P256_GENERATOR.to_vec()),
    ];
    let moduli = [256, 384, 512].map(|length| (Algorithm::RsaSha256, vec![0xff; length]));
    let publics = points.into_iter().chain(moduli).map(|(algorithm, bytes)| {
        Key::Public(PublicKey {
            algorithm,
            bytes,
            exponent: vec![1, 0, 1],
        })
    });
    secrets.into_iter().flatten().chain(publics).collect()
}

/// The generator of P-256, uncompressed: SEC 2, section 2.4.2.
const P256_GENERATOR: [u8; 65] = *b"\x04\
    \x6b\x17\xd1\xf2\xe1\x2c\x42\x47\xf8\xbc\xe6\xe5\x63\xa4\x40\xf2\
    \x77\x03\x7d\x81\x2d\xeb\x33\xa0\xf4\xa1\x39\x45\xd8\x98\xc2\x96\
    \x4f\xe3\x42\xe2\xfe\x1a\x7f\x9b\x8e\xe7\xeb\x4a\x7c\x0f\x9e\x16\
    \x2b\xce\x33\x57\x6b\x31\x5e\xce\xcb\xb6\x40\x68\x37\xbf\x51\xf5";
/// The order of P-256: the same section. Parts of a signature are smaller.
const P256_ORDER: [u8; 32] = *b"\xff\xff\xff\xff\x00\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff\
    \xbc\xe6\xfa\xad\xa7\x17\x9e\x84\xf3\xb9\xca\xc2\xfc\x63\x25\x51";
/// The order of Ed25519: RFC 8032, section 5.1, the highest byte first.
const ED25519_ORDER: [u8; 32] = *b"\x10\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\
    \x14\xde\xf9\xde\xa2\xf7\x9c\xd6\x58\x12\x63\x1a\x5c\xf5\xd3\xed";

impl PublicKey {
    fn new(algorithm: Algorithm, der: &[u8]) -> Option<Self> {
        let (bytes, exponent) = match algorithm {
            Algorithm::Ed25519 => (
                behind(der, b"\x06\x03\x2b\x65\x70\x03\x21\x00", 32)?,
                &[][..],
            ),
            Algorithm::EcdsaP256 => {
                let point = behind(der, b"\x3d\x03\x01\x07\x03\x42\x00", 65)?;
                (point, &[][..])
            }
            _ => rsa_numbers(der)?,
        };
        Some(Self {
            algorithm,
            bytes: bytes.to_vec(),
            exponent: exponent.to_vec(),
        })
    }

    fn verifies(&self, content: &[u8], given: Option<&[u8]>) -> bool {
        // One that could be refused at once would take less time than others.
        let usable = given.and_then(|given| self.usable(given));
        let is_usable = usable.is_some();
        let length = if self.exponent.is_empty() {
            64
        } else {
            self.bytes.len()
        };
        let signature = usable.unwrap_or_else(|| vec![1; length]);
        let at_point = |by: &'static dyn VerificationAlgorithm| {
            UnparsedPublicKey::new(by, &self.bytes).verify(content, &signature)
        };
        let verified = match self.algorithm {
            Algorithm::Ed25519 => at_point(&ED25519),
            Algorithm::EcdsaP256 => at_point(&ECDSA_P256_SHA256_FIXED),
            _ => {
                let (n, e) = (&self.bytes, &self.exponent);
                let key = RsaPublicKeyComponents { n, e };
                key.verify(&RSA_PKCS1_2048_8192_SHA256, content, &signature)
            }
        };
        verified.is_ok() & is_usable
    }

    /// A signature as ring takes it, if its numbers are within their bounds.
    fn usable(&self, given: &[u8]) -> Option<Vec<u8>> {
        match self.algorithm {
            Algorithm::Ed25519 => {
                let mut highest_first: [u8; 32] = given.get(32..)?.try_into().ok()?;
                highest_first.reverse();
                (highest_first < ED25519_ORDER).then(|| given.to_vec())
            }
            Algorithm::EcdsaP256 => two_numbers(given).map(|both| both.to_vec()),
            _ => {
                let is_fine = given.len() == self.bytes.len() && given < &self.bytes[..];
                is_fine.then(|| given.to_vec())
            }
        }
    }
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
        hex::decode(&key)
            .or_else(|_| BASE64_STANDARD.decode(&key))
            .ok()
    })
}

/// The last `length` bytes of a public key: all of it, or what follows this in its DER.
fn behind<'d>(der: &'d [u8], before: &[u8], length: usize) -> Option<&'d [u8]> {
    let (head, key) = der.split_at_checked(der.len().checked_sub(length)?)?;
    (head.is_empty() || head.ends_with(before)).then_some(key)
}

/// What is as long as two bytes say that stand before it, and what follows.
fn sized(rest: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = rest.split_first_chunk()?;
    rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))
}

/// The modulus and the exponent of a public key of RSA: RFC 8017, appendix A.1.1, alone or in a
/// SubjectPublicKeyInfo.
fn rsa_numbers(der: &[u8]) -> Option<(&[u8], &[u8])> {
    const RSA: &[u8] = b"\x30\x0d\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x01\x05\x00\x03\x82";
    let at = der.windows(RSA.len()).position(|part| part == RSA);
    // Behind it are two bytes of a length, and one that says that no bits are unused.
    let key = at.map_or(Some(der), |at| der.get(at + RSA.len() + 3..))?;
    // More would follow in a certificate.
    let (numbers, []) = sized(key.strip_prefix(b"\x30\x82")?)? else {
        return None;
    };
    // The modulus has a zero before it: its highest bit is set.
    let (modulus, rest) = sized(numbers.strip_prefix(b"\x02\x82")?)?;
    let modulus = modulus.strip_prefix(b"\0")?;
    let (length, exponent) = rest.strip_prefix(b"\x02")?.split_first()?;
    let is_fine =
        [256, 384, 512].contains(&modulus.len()) && exponent.len() == usize::from(*length);
    is_fine.then_some((modulus, exponent))
}

/// Both numbers of an ECDSA signature, one after the other; `given` is their DER (RFC 3279, section
/// 2.2.3).
fn two_numbers(given: &[u8]) -> Option<[u8; 64]> {
    let [0x30, length, rest @ ..] = given else {
        return None;
    };
    let mut rest = Some(rest).filter(|rest| rest.len() == usize::from(*length))?;
    let mut both = [0; 64];
    for half in both.chunks_exact_mut(32) {
        let [0x02, length, numbers @ ..] = rest else {
            return None;
        };
        let (number, others) = numbers.split_at_checked(usize::from(*length))?;
        let zeros = number.iter().take_while(|byte| **byte == 0).count();
        let number = number.get(zeros..)?;
        half.get_mut(32_usize.checked_sub(number.len())?..)?
            .copy_from_slice(number);
        if number.is_empty() || *half >= P256_ORDER[..] {
            return None;
        }
        rest = others;
    }
    rest.is_empty().then_some(both)
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keys(…)")
    }
}
