//! The spill: while the broker is away, messages wait in the database, so that senders do not
//! notice, and workers publish them when it is back. It is bounded, and no workspace has more than
//! a quarter of it; the size is measured once a second, and the messages that this gateway has
//! added since are counted on top.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use letterbox_common::{ids::WorkspaceId, process::readiness::Component};
use letterbox_database::{Database, DatabaseError};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::{
    BatchId, Outlet,
    store::{self, Measured, SpillShare, SpillSize, Spillable},
};
use crate::metrics;

/// The bounds of the spill, over all gateways.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SpillLimits {
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
}

/// Why messages are not spilled.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum SpillError {
    /// Nothing was written.
    #[error("the spill is full")]
    Full,
    /// The messages may have been written.
    #[error(transparent)]
    Database(#[from] DatabaseError),
}

/// The part of the spill that one workspace may have.
const SHARE: u64 = 4;
const MEASURE_EVERY: Duration = Duration::from_secs(1);
/// How many measurements in a row may be left out.
const MAX_LEFT_OUT: u32 = 4;

/// How much is spilled, as far as a gateway knows.
#[derive(Debug, Default)]
struct Sizes {
    all: SpillSize,
    /// Workspaces that have much of it, or to which this gateway has just added.
    of: HashMap<WorkspaceId, SpillShare>,
    /// How often this gateway has begun to add something.
    changes: u64,
    /// How often it has not ended yet.
    adding: u64,
    /// How often a measurement was left out because something was added meanwhile.
    left_out: u32,
}

/// Why a gateway with a full spill is not ready.
const FULL: &str = "the broker is away and the spill is full";

/// Writes messages into the rows of their batches.
pub(crate) struct Spill {
    database: Database,
    limits: SpillLimits,
    sizes: Mutex<Sizes>,
    /// Not ready while the spill is full.
    component: Component,
}

impl Spill {
    pub(crate) fn new(database: Database, limits: SpillLimits, component: Component) -> Self {
        component.ready();
        Self {
            database,
            limits,
            sizes: Mutex::default(),
            component,
        }
    }

    /// Spills messages durably, and returns the batches that are spilled: all that have a row, as
    /// every batch has that is not confirmed. A relay publishes them later.
    pub(crate) async fn keep(
        &self,
        messages: &[Spillable],
    ) -> Result<BTreeSet<BatchId>, SpillError> {
        self.reserve(messages)?;
        // The reservation is not given back on an error: the next measurement corrects it.
        let kept = store::spill(&self.database, messages).await;
        self.sizes.lock().adding -= 1;
        let kept = kept?;
        let spilled = messages.iter().filter(|one| kept.contains(&one.batch));
        metrics::SPILLED.increment(spilled.map(|one| u64::from(one.body.entries)).sum());
        Ok(kept)
    }

    fn reserve(&self, messages: &[Spillable]) -> Result<(), SpillError> {
        let mut sizes = self.sizes.lock();
        let bytes = messages.iter().map(|one| one.body.bytes.len() as u64);
        let all = sizes.all.with(messages.len() as u64, bytes.sum());
        if all.messages > self.limits.messages || all.bytes > self.limits.bytes {
            self.component.not_ready(FULL);
            return Err(SpillError::Full);
        }
        sizes.all = all;
        sizes.changes += 1;
        sizes.adding += 1;
        for shares in messages.iter().map(|one| &one.shares) {
            let whole: usize = shares.values().sum();
            for (workspace, bytes) in shares {
                let share = sizes.of.entry(*workspace).or_default();
                share.messages += *bytes as f64 / whole.max(1) as f64;
                share.bytes += *bytes as u64;
            }
        }
        Ok(())
    }

    /// Whether there is room for one more message with entries of a workspace, as far as this
    /// gateway knows.
    pub(crate) fn has_room_for(&self, workspace: WorkspaceId) -> bool {
        let sizes = self.sizes.lock();
        let limits = &self.limits;
        let has_room = sizes.all.messages < limits.messages && sizes.all.bytes < limits.bytes;
        if !has_room {
            self.component.not_ready(FULL);
        }
        // At least one message, however small the spill.
        let share = sizes.of.get(&workspace).copied().unwrap_or_default();
        has_room
            && share.messages < limits.messages.div_ceil(SHARE) as f64
            && share.bytes < limits.bytes.div_ceil(SHARE)
    }

    /// Measures the spill once a second, until `stop`.
    pub(crate) async fn watch(self: Arc<Self>, outlet: Arc<Outlet>, stop: CancellationToken) {
        let pause = || tokio::time::sleep(MEASURE_EVERY);
        while stop.run_until_cancelled(pause()).await.is_some() {
            outlet.report();
            // Failures are logged where they happen.
            let _ = self.measure(outlet.is_open()).await;
        }
    }

    /// Measures the spill again. A full spill counts as having room again when a tenth is free, or
    /// when it is empty and the broker is back.
    async fn measure(&self, broker_is_open: bool) -> Result<(), DatabaseError> {
        let before = {
            let sizes = self.sizes.lock();
            (sizes.adding == 0).then_some(sizes.changes)
        };
        let Measured {
            size: all,
            oldest_seconds,
        } = store::measure_spill(&self.database).await?;
        // Nobody can have a share of what is less than that.
        let limits = &self.limits;
        let is_much =
            all.messages > limits.messages / SHARE / 2 || all.bytes > limits.bytes / SHARE / 2;
        let shares = match is_much {
            true => store::measure_spill_shares(&self.database).await?,
            false => Vec::new(),
        };
        let of = shares
            .into_iter()
            .map(|of| (of.workspace_id, of.share))
            .collect();
        self.note(before, all, of);
        metrics::SPILL_MESSAGES.set(all.messages as f64);
        metrics::SPILL_BYTES.set(all.bytes as f64);
        metrics::OLDEST_SPILLED.set(oldest_seconds);
        let has_room = self.limits.messages > 0
            && all.messages * 10 <= self.limits.messages * 9
            && all.bytes * 10 <= self.limits.bytes * 9;
        if has_room || (broker_is_open && all.messages == 0) {
            self.component.ready();
        }
        Ok(())
    }

    /// Takes a measurement for the truth unless something was added meanwhile, which it may have
    /// missed; where that never ends, now and then all the same.
    fn note(&self, before: Option<u64>, all: SpillSize, of: HashMap<WorkspaceId, SpillShare>) {
        let mut sizes = self.sizes.lock();
        if before != Some(sizes.changes) && sizes.left_out < MAX_LEFT_OUT {
            sizes.left_out += 1;
            return;
        }
        (sizes.all, sizes.of, sizes.left_out) = (all, of, 0);
    }
}
