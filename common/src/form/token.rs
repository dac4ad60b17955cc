//! The token of a form link: its only credential. It is shown once and stored nowhere; what is
//! stored is its SHA-256.

use std::fmt;

use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use crate::sealing::{SealError, Secret};

const LENGTHS: std::ops::RangeInclusive<usize> = 20..=200;

/// A text that could be a form's token: 20 to 200 characters. Wiped when dropped, never printed.
#[derive(Clone)]
pub struct FormToken(Secret);

/// SHA-256 of a token: what the database knows of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TokenHash([u8; 32]);

impl FormToken {
    /// A new token: 256 random bits as 64 hexadecimal digits.
    ///
    /// # Errors
    /// When the operating system gives no random bytes.
    pub fn generate() -> Result<Self, SealError> {
        let mut bits = Zeroizing::new([0; 32]);
        getrandom::fill(bits.as_mut_slice()).map_err(|_| SealError)?;
        Ok(Self(Secret::new(hex::encode(bits.as_slice()).into_bytes())))
    }

    /// Takes a text of 20 to 200 characters; nothing for any other.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        LENGTHS
            .contains(&text.chars().count())
            .then(|| Self(Secret::new(text.as_bytes().to_vec())))
    }

    /// The token itself, for the one time that it is shown.
    #[must_use]
    pub fn expose(&self) -> &str {
        // Made of text only.
        std::str::from_utf8(self.0.expose()).unwrap_or_default()
    }

    #[must_use]
    pub fn hash(&self) -> TokenHash {
        TokenHash(Sha256::digest(self.0.expose()).into())
    }
}

impl TokenHash {
    #[must_use]
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

impl fmt::Debug for FormToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FormToken(…)")
    }
}

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenHash(…)")
    }
}

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
                FormToken::read(&"x".repeat(length)).is_some(),
                good,
                "{length}"
            );
            assert_eq!(
                FormToken::read(&"\u{1f4ee}".repeat(length)).is_some(),
                good,
                "{length}"
            );
        }
    }

    #[test]
    fn tokens_are_read_as_they_were_made_and_never_printed() {
        let token = FormToken::generate().unwrap();
        assert_eq!(
            FormToken::read(token.expose()).unwrap().hash(),
            token.hash()
        );
        assert_ne!(FormToken::generate().unwrap().hash(), token.hash());
        assert!(!format!("{token:?}{:?}", token.hash()).contains(&token.expose()[..8]));
    }
}
