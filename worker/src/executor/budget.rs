//! A worker's budget for answers that templates name: smaller for the runs of one workspace than
//! for all together, so that something is left for the others.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use letterbox_common::ids::WorkspaceId;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The share of one workspace, and the budget of all, in KiB.
const SHARE: usize = 48 << 10;
const BUDGET: usize = 64 << 10;
/// How often an answer is in memory while it is read and opened.
const COPIES: usize = 4;
/// Bytes that one byte of JSON may take once it is parsed, and all values of a request.
const PARSED: usize = 25;
const MAX_PARSED: usize = 8 << 20;

/// The budget of a worker, in KiB.
pub(super) struct Budget {
    all: Arc<Semaphore>,
    /// Those in use.
    shares: Mutex<HashMap<WorkspaceId, Weak<Semaphore>>>,
}

impl Budget {
    pub(super) fn new() -> Self {
        Self {
            all: Arc::new(Semaphore::new(BUDGET)),
            shares: Mutex::default(),
        }
    }

    /// Waits until a workspace may open and parse answers of so many bytes. It waits for its own
    /// share first: nobody stands behind it in the line of all.
    pub(super) async fn take(
        &self,
        workspace: WorkspaceId,
        length: usize,
    ) -> Option<[OwnedSemaphorePermit; 2]> {
        let bytes = COPIES * length + MAX_PARSED.min(PARSED * length);
        let kibibytes = u32::try_from(bytes.div_ceil(1024).min(SHARE)).ok()?;
        if kibibytes == 0 {
            return None;
        }
        let own = self
            .share(workspace)
            .acquire_many_owned(kibibytes)
            .await
            .ok()?;
        let all = Arc::clone(&self.all);
        let of_all = all.acquire_many_owned(kibibytes).await.ok()?;
        Some([own, of_all])
    }

    /// The share of a workspace: one as long as anybody has a part of it, or waits for one.
    fn share(&self, workspace: WorkspaceId) -> Arc<Semaphore> {
        let mut shares = self.shares.lock();
        if let Some(share) = shares.get(&workspace).and_then(Weak::upgrade) {
            return share;
        }
        shares.retain(|_, share| share.strong_count() > 0);
        let share = Arc::new(Semaphore::new(SHARE));
        shares.insert(workspace, Arc::downgrade(&share));
        share
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    /// A workspace that has its share waits, and the others go on; what is not in use is forgotten.
    #[tokio::test]
    async fn a_workspace_waits_for_its_own_share() {
        let budget = Budget::new();
        let [one, other] = [WorkspaceId::generate(), WorkspaceId::generate()];
        let most = SHARE << 10;
        let held = budget.take(one, most).await;
        let mut waiting = Box::pin(budget.take(one, 1));
        assert!(
            waiting.as_mut().now_or_never().is_none(),
            "its share is taken"
        );
        let small = 1 << 20;
        assert!(budget.take(other, small).now_or_never().is_some());
        for _ in 0..2_000 {
            budget.take(WorkspaceId::generate(), 1).await;
        }
        assert!(waiting.as_mut().now_or_never().is_none(), "it is still");
        assert!(budget.shares.lock().len() <= 2);
        drop(held);
        assert!(waiting.await.is_some());
    }
}
