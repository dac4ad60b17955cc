//! Workspaces of which something can't be stored now, because somebody keeps a row locked: whatever
//! comes for them is set aside without being tried, or each try would take the time of a lock from
//! others.

use std::{collections::HashMap, time::Duration};

use letterbox_common::ids::WorkspaceId;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::apply::EntryDoor;

/// How long a workspace waits before it is tried again, doubled each time that a lock is met.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LAST_PAUSE: Duration = Duration::from_secs(15);
/// How long no lock must be met before a workspace waits no more: by then all of it was tried.
const CALM: Duration = Duration::from_secs(20);

/// The workspaces that wait.
#[derive(Default)]
pub(super) struct LockedWorkspaces(Mutex<HashMap<WorkspaceId, Wait>>);

struct Wait {
    /// When it is tried next.
    due: Instant,
    pause: Duration,
    /// When a lock was met last.
    locked_at: Instant,
}

impl LockedWorkspaces {
    /// Has workspaces wait, a row of which is locked.
    pub(super) fn add(&self, workspaces: impl IntoIterator<Item = WorkspaceId>) {
        let now = Instant::now();
        let mut waiting = self.0.lock();
        for workspace in workspaces {
            let former = waiting.get(&workspace).map(|wait| wait.pause * 2);
            let pause = former.unwrap_or(FIRST_PAUSE).min(LAST_PAUSE);
            let wait = Wait {
                due: now + pause,
                pause,
                locked_at: now,
            };
            waiting.insert(workspace, wait);
        }
    }

    /// Whether the workspace of a door waits.
    pub(super) fn has(&self, door: Option<EntryDoor>) -> bool {
        door.is_some_and(|(workspace, _)| self.0.lock().contains_key(&workspace))
    }

    pub(super) fn all(&self) -> Vec<WorkspaceId> {
        self.0.lock().keys().copied().collect()
    }

    /// The workspace that has been due for longest.
    pub(super) fn due(&self) -> Option<WorkspaceId> {
        let waiting = self.0.lock();
        let (workspace, wait) = waiting.iter().min_by_key(|(_, wait)| wait.due)?;
        (wait.due <= Instant::now()).then_some(*workspace)
    }

    /// Notes that so many entries of a workspace were stored.
    pub(super) fn note(&self, workspace: WorkspaceId, stored: usize) {
        let mut waiting = self.0.lock();
        let Some(wait) = waiting.get_mut(&workspace) else {
            return;
        };
        let now = Instant::now();
        // There may be more of doors that nobody has locked.
        wait.due = if stored > 0 { now } else { now + wait.pause };
        if wait.locked_at + CALM < now {
            waiting.remove(&workspace);
        }
    }
}
