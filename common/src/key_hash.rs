//! The hash that makes an accepted entry unique in its workspace.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uuid::Uuid;

/// The SHA-256 of what makes a delivery the same as another one: its body, or the id that its
/// sender has given it, where the webhook goes by that. A body is JSON, so none is an id.
pub fn delivery_sha256(id: Option<&str>, body: &[u8]) -> [u8; 32] {
    let hash = match id {
        Some(id) => Sha256::new_with_prefix(b"\0id\0").chain_update(id),
        None => Sha256::new_with_prefix(body),
    };
    hash.finalize().into()
}

/// SHA-256 over the id of an entry's webhook or workflow and the SHA-256 of the entry's key: what
/// makes a delivery the same as another one, the idempotency key of a submission. In JSON it is 64
/// hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct KeyHash(#[serde(with = "hex::serde")] [u8; 32]);

impl KeyHash {
    /// Hashes a key that is given by its SHA-256. `scope` is the id of the webhook or workflow.
    pub fn of(scope: &[u8; 16], sha256: &[u8; 32]) -> Self {
        let hash = Sha256::new().chain_update(scope).chain_update(sha256);
        Self(hash.finalize().into())
    }

    /// Hashes a key that is given as a whole.
    pub fn of_content(scope: &[u8; 16], content: &[u8]) -> Self {
        Self::of(scope, &Sha256::digest(content).into())
    }

    /// The two columns that hold it.
    pub fn halves(&self) -> (Uuid, Uuid) {
        let half = |from| Uuid::from_bytes(std::array::from_fn(|at| self.0[from + at]));
        (half(0), half(16))
    }
}
