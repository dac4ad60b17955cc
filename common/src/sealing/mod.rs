//! Sealing: secrets are stored encrypted and bound to their row.
//!
//! A sealed value is AES-256-GCM under one key of a key ring. Its associated data names the table,
//! column, workspace and row it belongs to, so a value copied into another row, column or workspace
//! does not open. A credential is also bound to the user, the header and the base URL in its row:
//! after a change to one of them the credential is sent nowhere. The first key of the ring seals,
//! all of them open: keys are rotated by putting a new one first and resealing everything. Whoever
//! may seal and not open has the public half of a key, a [`Recipient`].
//!
//! [`SealedColumn`] lists all columns that hold sealed values; each has a key ring of its own.

mod format;
mod key_ring;
mod place;
mod recipient;
mod settings;

pub use crate::secret::Secret;

pub use self::{
    format::{OpenError, Seal, SealError},
    key_ring::{KeyRing, KeyRingError, ResealError},
    place::{GrantRow, Place, SealedColumn},
    recipient::Recipient,
    settings::{ACCOUNT_KEYS, SEALING_KEYS, WEBHOOK_KEYS, key_ring, keys_of},
};
