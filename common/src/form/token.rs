//! The token of a form link: its only credential. It is shown once and never stored; the database
//! holds its SHA-256.

use crate::{
    random::{RandomError, random_hex},
    secret::{Secret, never_printed},
};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

/// The prefix of tokens whose submissions need a proof of work.
const WANTS_PROOF: &str = "proof-";
const LENGTHS: std::ops::RangeInclusive<usize> = 20..=200;

/// A text that has the length of a form's token: 20 to 200 characters. Wiped when dropped, never
/// printed.
#[derive(Clone)]
pub struct FormToken(Secret);

/// The SHA-256 of a token, which the database stores.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TokenHash([u8; 32]);

impl FormToken {
    /// Creates a token: 256 random bits as 64 hexadecimal digits.
    pub fn generate() -> Result<Self, RandomError> {
        random_hex().map(Self)
    }

    /// Creates the token of a form whose submissions need a proof of work. The token itself says
    /// so, so that a submission without one is refused without asking the database.
    pub fn generate_wanting_proof() -> Result<Self, RandomError> {
        let random = Self::generate()?;
        let text = Zeroizing::new(format!("{WANTS_PROOF}{}", random.expose()));
        Ok(Self(Secret::new(text.as_bytes().to_vec())))
    }

    /// Whether submissions with this token need a proof of work.
    pub fn wants_proof(&self) -> bool {
        self.expose().starts_with(WANTS_PROOF)
    }

    /// Parses a text of 20 to 200 characters; `None` for any other.
    pub fn parse(text: &str) -> Option<Self> {
        LENGTHS
            .contains(&text.chars().count())
            .then(|| Self(Secret::new(text.as_bytes().to_vec())))
    }

    /// The text of the token, for the one time that it is shown.
    #[expect(clippy::expect_used, reason = "a token is made of text")]
    pub fn expose(&self) -> &str {
        std::str::from_utf8(self.0.expose()).expect("a token is made of text")
    }

    /// The hash by which the database finds the link.
    pub fn hash(&self) -> TokenHash {
        TokenHash(Sha256::digest(self.0.expose()).into())
    }
}

impl TokenHash {
    /// Hashes a text that need not be a token; if it is none, no link has this hash.
    pub fn of_text(text: &str) -> Self {
        Self(Sha256::digest(text).into())
    }

    /// The 32 bytes, as stored.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl TryFrom<&[u8]> for TokenHash {
    type Error = std::array::TryFromSliceError;
    fn try_from(bytes: &[u8]) -> Result<Self, Self::Error> {
        bytes.try_into().map(Self)
    }
}

never_printed!(FormToken, TokenHash);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_counted_in_characters() {
        for (length, good) in [
            (0, false),
            (19, false),
            (20, true),
            (200, true),
            (201, false),
        ] {
            assert_eq!(
                FormToken::parse(&"x".repeat(length)).is_some(),
                good,
                "{length}"
            );
            assert_eq!(
                FormToken::parse(&"\u{1f4ee}".repeat(length)).is_some(),
                good,
                "{length}"
            );
        }
    }

    #[test]
    fn tokens_round_trip_and_are_never_printed() {
        let token = FormToken::generate().unwrap();
        assert_eq!(
            FormToken::parse(token.expose()).unwrap().hash(),
            token.hash()
        );
        assert_ne!(FormToken::generate().unwrap().hash(), token.hash());
        assert!(!format!("{token:?}{:?}", token.hash()).contains(&token.expose()[..8]));
    }
}
