//! What a run and the transaction that records it tell each other, if the run is executed while
//! that is open: as far as it comes without waiting, or asking the database. If it is about to
//! begin an attempt then, that begins in the same transaction. Nothing else of it is written, and
//! nothing is sent, before the commit is known.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::SetOnce;
use uuid::Uuid;

use crate::executor::transition::Beginning;

/// What came of a beginning: its idempotency key, if all that it was decided by held.
pub(super) type Begun = Option<Uuid>;

/// The recording of a run that is in progress already.
#[derive(Default)]
pub(super) struct Recording {
    /// What the run is about to begin.
    pub(super) beginning: Mutex<Option<Arc<Beginning>>>,
    /// It is committed; what came of the beginning, if it began here.
    pub(super) committed: SetOnce<Option<Begun>>,
}

impl Recording {
    /// What came of this, if it was begun here.
    pub(super) async fn begin(&self, beginning: &Arc<Beginning>) -> Option<Begun> {
        // What comes later is begun by itself.
        if self.committed.initialized() {
            return None;
        }
        *self.beginning.lock() = Some(beginning.clone());
        *self.committed.wait().await
    }
}
