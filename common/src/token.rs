//! Tokens that people sign in with: in a link, in a cookie. Shown once and never stored; the
//! database holds their SHA-256.

use sha2::{Digest, Sha256};

use crate::{
    random::{RandomError, random_hex},
    secret::{Secret, never_printed},
};

/// 256 random bits as 64 hexadecimal digits. Wiped when dropped, never printed.
#[derive(Clone)]
pub struct Token(Secret);

impl Token {
    /// Creates a token.
    pub fn generate() -> Result<Self, RandomError> {
        random_hex().map(Self)
    }

    /// Parses 64 hexadecimal digits in lower case; `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        let is_digit = |byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let is_token = text.len() == 64 && text.bytes().all(is_digit);
        is_token.then(|| Self(Secret::new(text.as_bytes().to_vec())))
    }

    /// The text of the token, for the one time that it is shown.
    #[expect(clippy::expect_used, reason = "a token is made of digits")]
    pub fn expose(&self) -> &str {
        std::str::from_utf8(self.0.expose()).expect("a token is made of digits")
    }

    /// Its SHA-256, which the database stores.
    pub fn hash(&self) -> [u8; 32] {
        Sha256::digest(self.0.expose()).into()
    }
}

never_printed!(Token);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_generated_is_a_token() {
        let token = Token::generate().unwrap();
        assert_eq!(Token::parse(token.expose()).unwrap().hash(), token.hash());
        assert_ne!(Token::generate().unwrap().hash(), token.hash());
        for other in ["", "0", &"A".repeat(64), &"0".repeat(65), &"é".repeat(32)] {
            assert!(Token::parse(other).is_none(), "{other}");
        }
        assert_eq!(format!("{token:?}"), "Token(…)");
    }
}
