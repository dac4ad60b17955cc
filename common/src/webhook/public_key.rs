//! Public keys of tools that sign with their private ones, as ring takes them.

use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents,
    UnparsedPublicKey, VerificationAlgorithm,
};

use super::algorithm::Algorithm;

/// A public key, as ring takes it.
#[derive(Clone)]
pub(super) struct PublicKey {
    pub(super) algorithm: Algorithm,
    /// A point, or the modulus of RSA.
    pub(super) bytes: Vec<u8>,
    /// Of RSA.
    exponent: Vec<u8>,
}

/// The exponent that keys of RSA have: 65537.
const EXPONENT: &[u8] = &[1, 0, 1];
/// The generator of Ed25519: RFC 8032, section 5.1, written as a key.
const ED25519_GENERATOR: [u8; 32] = {
    let mut point = [0x66; 32];
    point[0] = 0x58;
    point
};
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
    /// A key of every kind, to which nobody has the other half: the generators of both curves, and
    /// moduli of which nobody needs the factors.
    pub(super) fn decoys() -> impl Iterator<Item = Self> {
        let points = [
            (Algorithm::Ed25519, ED25519_GENERATOR.to_vec()),
            (Algorithm::EcdsaP256, P256_GENERATOR.to_vec()),
        ];
        let moduli = [256, 384, 512].map(|length| (Algorithm::RsaSha256, vec![0xff; length]));
        points
            .into_iter()
            .chain(moduli)
            .map(|(algorithm, bytes)| Self {
                algorithm,
                bytes,
                exponent: EXPONENT.to_vec(),
            })
    }

    /// The key in these bytes: a SubjectPublicKeyInfo, or the numbers alone.
    pub(super) fn new(algorithm: Algorithm, der: &[u8]) -> Option<Self> {
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

    /// Whether the signature is of this content. Takes as long whatever is given, but for what
    /// the numbers of a signature themselves save (with Ed25519 some additions).
    pub(super) fn verifies(&self, content: &[u8], given: Option<&[u8]>) -> bool {
        // One that could be refused at once would take less time than others.
        let usable = given.and_then(|given| self.usable(given));
        let is_usable = usable.is_some();
        let signature = usable.unwrap_or_else(|| self.stand_in());
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

    /// A signature that ring does not refuse before it has computed.
    fn stand_in(&self) -> Vec<u8> {
        let length = match self.algorithm {
            Algorithm::RsaSha256 => self.bytes.len(),
            _ => 64,
        };
        vec![1; length]
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
                // Zero is refused at once.
                let is_zero = given.iter().all(|byte| *byte == 0);
                let is_fine = given.len() == self.bytes.len() && given < &self.bytes[..];
                let is_fine = is_fine && !is_zero;
                is_fine.then(|| given.to_vec())
            }
        }
    }
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
    // Another exponent would take another time than the decoys.
    let is_fine = [256, 384, 512].contains(&modulus.len())
        && exponent == EXPONENT
        && exponent.len() == usize::from(*length);
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

#[cfg(test)]
mod tests {
    use super::*;

    /// What ring would refuse at once is replaced, too.
    #[test]
    fn zeros_are_no_signature() {
        for key in PublicKey::decoys().filter(|key| key.algorithm == Algorithm::RsaSha256) {
            assert_eq!(key.usable(&vec![0; key.bytes.len()]), None);
            assert!(key.usable(&vec![1; key.bytes.len()]).is_some());
        }
    }

    /// What stands in for a malformed signature is one, so that it takes as long to refuse.
    #[test]
    fn what_stands_in_is_long_enough() {
        let lengths = PublicKey::decoys().map(|key| key.stand_in().len());
        assert_eq!(lengths.collect::<Vec<_>>(), [64, 64, 256, 384, 512]);
    }
}
