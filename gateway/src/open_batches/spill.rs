//! The spill: what can't be published waits in the database, each entry as a message of its own, so
//! that senders do not notice, and workers store it from there. It is bounded, and no workspace has
//! more than a quarter of it; the size is measured once a second, and what this gateway has added
//! since is counted on top. Workers, too, put there what they can't store: that is bounded because
//! nothing more is accepted for a workspace that has its share.

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
    store::{self, Measured, SpillSize, Spillable},
};
use crate::metrics;

/// The part of the spill that one workspace may have.
const SHARE: u64 = 4;
const MEASURE_EVERY: Duration = Duration::from_secs(1);
/// How many measurements in a row may be left out.
const MAX_LEFT_OUT: u32 = 4;

/// How much is spilled, as far as a gateway knows.
#[derive(Debug, Default)]
struct SpillSizes {
    all: SpillSize,
    /// Workspaces that have much of it, or to which this gateway has just added.
    of: HashMap<WorkspaceId, SpillSize>,
    /// How often this gateway has begun to add something.
    changes: u64,
    /// How often it has not ended yet.
    adding: u64,
    /// How often a measurement was left out because something was added meanwhile.
    left_out: u32,
}

/// Why a gateway with a full spill is not ready.
const FULL: &str = "the broker is away and the spill is full";

/// Puts messages into the spill.
pub(crate) struct Spill {
    database: Database,
    /// Over all gateways.
    limits: SpillSize,
    sizes: Mutex<SpillSizes>,
    /// Not ready while the spill is full.
    component: Component,
}

impl Spill {
    pub(crate) fn new(database: Database, limits: SpillSize, component: Component) -> Self {
        component.ready();
        Self {
            database,
            limits,
            sizes: Mutex::default(),
            component,
        }
    }

    /// Spills batches durably, and returns those that are known to be spilled: none if the spill is
    /// full or the database does not answer.
    pub(crate) async fn keep(&self, batches: &[Spillable]) -> BTreeSet<BatchId> {
        if !self.reserve(batches) {
            return BTreeSet::new();
        }
        // The reservation is not given back on an error: the next measurement corrects it.
        let kept = store::spill(&self.database, batches).await;
        self.sizes.lock().adding -= 1;
        let kept = kept.unwrap_or_default();
        let spilled = batches.iter().filter(|one| kept.contains(&one.batch));
        metrics::SPILLED.increment(spilled.map(|one| one.body.entries.len() as u64).sum());
        kept
    }

    /// Counts batches as spilled; `false` if the spill is full.
    fn reserve(&self, batches: &[Spillable]) -> bool {
        let mut sizes = self.sizes.lock();
        let mut all = sizes.all;
        let entries = batches.iter().flat_map(|one| &one.body.entries);
        entries.clone().for_each(|(_, place)| all.add(place.len()));
        if all.messages > self.limits.messages || all.bytes > self.limits.bytes {
            self.component.not_ready(FULL);
            return false;
        }
        sizes.all = all;
        sizes.changes += 1;
        sizes.adding += 1;
        for (workspace, place) in entries {
            sizes.of.entry(*workspace).or_default().add(place.len());
        }
        true
    }

    /// Whether there is room for one more message, as far as this gateway knows.
    pub(crate) fn has_room(&self) -> bool {
        let all = self.sizes.lock().all;
        let has_room = all.messages < self.limits.messages && all.bytes < self.limits.bytes;
        if !has_room {
            self.component.not_ready(FULL);
        }
        has_room
    }

    /// Whether some workspace may have its share of the spill.
    pub(crate) fn is_shared(&self) -> bool {
        !self.sizes.lock().of.is_empty()
    }

    /// Whether a workspace has less than its share of the spill, as far as this gateway knows.
    pub(crate) fn has_share(&self, workspace: WorkspaceId) -> bool {
        let of = self.sizes.lock().of.get(&workspace).copied();
        // At least one message, however small the spill.
        of.is_none_or(|share| {
            share.messages < self.limits.messages.div_ceil(SHARE)
                && share.bytes < self.limits.bytes.div_ceil(SHARE)
        })
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
            all_messages,
            all_bytes,
            oldest_seconds,
        } = store::measure_spill(&self.database).await?;
        // Nobody can have a share of what is less than that, nor of no spill.
        let limits = &self.limits;
        let is_much = limits.messages > 0
            && (all_messages > limits.messages / SHARE / 2 || all_bytes > limits.bytes / SHARE / 2);
        let shares = match is_much {
            true => store::measure_spill_shares(&self.database).await?,
            false => Vec::new(),
        };
        let of = shares
            .into_iter()
            .map(|of| (of.workspace_id, of.share))
            .collect();
        self.note(before, all, of);
        metrics::SPILL_MESSAGES.set(all_messages as f64);
        metrics::SPILL_BYTES.set(all_bytes as f64);
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
    fn note(&self, before: Option<u64>, all: SpillSize, of: HashMap<WorkspaceId, SpillSize>) {
        let mut sizes = self.sizes.lock();
        if before != Some(sizes.changes) && sizes.left_out < MAX_LEFT_OUT {
            sizes.left_out += 1;
            return;
        }
        (sizes.all, sizes.of, sizes.left_out) = (all, of, 0);
    }
}
