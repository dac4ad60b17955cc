//! The items that acceptance records, one type for each door.

use bytes::Bytes;
use letterbox_broker::{Entry, Receipt};
use letterbox_common::ids::WorkspaceId;

use crate::claims::{ClaimKey, Door};

/// An item that passed every check and is about to be recorded.
pub(crate) trait IntakeItem: Send + Sync + 'static {
    type Door: Door;
    type Entry: Entry + Send + Sync;

    /// The key to claim.
    fn key(&self) -> ClaimKey<Self::Door>;

    /// The workspace that it belongs to.
    fn workspace(&self) -> WorkspaceId {
        self.key().workspace
    }

    /// When and how its request arrived.
    fn receipt(&self) -> &Receipt;

    /// The length of its body, and of what is kept besides.
    fn length(&self) -> usize;

    /// The entry to publish, and its body. `id` is the id of the claim.
    fn into_entry(self, id: <Self::Door as Door>::Id) -> (Self::Entry, Bytes);
}
