//! Random material straight from the operating system.

use zeroize::Zeroizing;

use crate::secret::Secret;

/// The operating system gave no random bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the operating system gave no random bytes")]
pub struct RandomError;

/// 256 random bits as 64 hexadecimal digits: the text of a new token or secret.
pub(crate) fn random_hex() -> Result<Secret, RandomError> {
    let mut bits = Zeroizing::new([0; 32]);
    getrandom::fill(bits.as_mut_slice()).map_err(|_| RandomError)?;
    Ok(Secret::new(hex::encode(bits.as_slice()).into_bytes()))
}
