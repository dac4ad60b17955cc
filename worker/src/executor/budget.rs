//! What all answers that templates name may take in a worker at one moment: of the runs of one
//! workspace less than of all, so that something is left for the others.

use std::sync::Arc;

use letterbox_common::ids::WorkspaceId;
use moka::sync::Cache;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The share of one workspace, and the budget of all, in KiB.
const SHARE: usize = 48 << 10;
const BUDGET: usize = 64 << 10;
/// Workspaces whose shares are kept.
const MAX_SHARES: u64 = 1_000;
/// How often an answer is in memory while it is read and opened.
const COPIES: usize = 4;
/// Bytes that one byte of JSON may take once it is parsed, and all values of a request.
const PARSED: usize = 25;
const MAX_PARSED: usize = 8 << 20;

/// The budget of a worker, in KiB.
pub(super) struct Budget {
    all: Arc<Semaphore>,
    shares: Cache<WorkspaceId, Arc<Semaphore>>,
}

impl Budget {
    pub(super) fn new() -> Self {
        Self {
            all: Arc::new(Semaphore::new(BUDGET)),
            shares: Cache::new(MAX_SHARES),
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
        let share = || Arc::new(Semaphore::new(SHARE));
        let share = self.shares.get_with(workspace, share);
        let own = share.acquire_many_owned(kibibytes).await.ok()?;
        let all = Arc::clone(&self.all);
        let of_all = all.acquire_many_owned(kibibytes).await.ok()?;
        Some([own, of_all])
    }
}
