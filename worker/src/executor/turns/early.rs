//! Runs that are executed while the transaction that records them is open, as far as each comes
//! without waiting. If one is about to begin an attempt then, that is begun in the transaction.
//! Nothing else of a run is written, and nothing is sent, before it is known to be recorded.

use std::{pin::Pin, sync::Arc};

use futures_util::poll;
use parking_lot::Mutex;
use tokio::sync::SetOnce;
use uuid::Uuid;

use crate::executor::transition::Beginning;

/// What came of a beginning: its idempotency key, if all that it was decided by held.
pub(super) type Begun = Option<Uuid>;

/// What a run and the transaction that records it tell each other.
#[derive(Default)]
pub(super) struct Recording {
    /// What the run is about to begin.
    beginning: Mutex<Option<Arc<Beginning>>>,
    /// It is committed; what came of the beginning, if that was part of it.
    committed: SetOnce<Option<Begun>>,
}

impl Recording {
    /// Waits until it is committed.
    pub(super) async fn wait(&self) {
        self.committed.wait().await;
    }

    /// What came of this, if it was begun here.
    pub(super) async fn begin(&self, beginning: &Arc<Beginning>) -> Option<Begun> {
        // What comes later is begun by itself.
        if self.committed.initialized() {
            return None;
        }
        *self.beginning.lock() = Some(beginning.clone());
        *self.committed.wait().await
    }

    pub(super) fn beginning(&self) -> Option<Arc<Beginning>> {
        self.beginning.lock().clone()
    }
}

/// A run that is executed early.
pub(super) struct EarlyRun {
    pub(super) recording: Arc<Recording>,
    pub(super) begun: Option<Begun>,
    executing: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl EarlyRun {
    /// Comes as far as there is nothing to wait for; `None` if it has ended.
    pub(super) async fn start(
        recording: Arc<Recording>,
        executing: impl Future<Output = ()> + Send + 'static,
    ) -> Option<Self> {
        let mut run = Self {
            recording,
            begun: None,
            executing: Box::pin(executing),
        };
        poll!(&mut run.executing).is_pending().then_some(run)
    }

    /// Goes on: the run is recorded.
    pub(super) fn recorded(self) -> impl Future<Output = ()> + Send + 'static {
        let _ = self.recording.committed.set(self.begun);
        self.executing
    }
}
