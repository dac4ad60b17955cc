//! The spill: while the broker is away, messages wait in the database, so that senders do not
//! notice. It is bounded; the size is measured about once a second, and the messages that this
//! gateway has added since are counted on top.

use std::{
    collections::BTreeSet,
    sync::{Mutex, MutexGuard, PoisonError},
};

use letterbox_common::process::readiness::Component;
use letterbox_database::{Database, DatabaseError};

use super::{
    BatchId,
    store::{self, SpillSize, Spillable},
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

/// Why a gateway with a full spill is not ready.
const FULL: &str = "the broker is away and the spill is full";

/// Writes messages into the rows of their batches.
pub(crate) struct Spill {
    pub(super) database: Database,
    limits: SpillLimits,
    size: Mutex<SpillSize>,
    /// Not ready while the spill is full.
    component: Component,
}

impl Spill {
    pub(crate) fn new(database: Database, limits: SpillLimits, component: Component) -> Self {
        component.ready();
        Self {
            database,
            limits,
            size: Mutex::default(),
            component,
        }
    }

    /// Spills messages durably, and returns the batches that are spilled: all that have a row, as
    /// every batch has that is not confirmed. A relay publishes them later.
    ///
    /// # Errors
    /// See [`SpillError`].
    pub(crate) async fn keep(
        &self,
        messages: &[Spillable],
    ) -> Result<BTreeSet<BatchId>, SpillError> {
        let bytes: usize = messages.iter().map(|one| one.body.bytes.len()).sum();
        self.reserve(SpillSize {
            messages: messages.len() as u64,
            bytes: bytes as u64,
        })?;
        // The reservation is not given back on an error: the next measurement corrects it.
        let kept = store::spill(&self.database, messages).await?;
        let spilled = messages.iter().filter(|one| kept.contains(&one.batch));
        metrics::SPILLED.increment(spilled.map(|one| u64::from(one.body.entries)).sum());
        Ok(kept)
    }

    fn reserve(&self, more: SpillSize) -> Result<(), SpillError> {
        let mut size = self.lock();
        let (messages, bytes) = (size.messages + more.messages, size.bytes + more.bytes);
        if messages > self.limits.messages || bytes > self.limits.bytes {
            self.component.not_ready(FULL);
            return Err(SpillError::Full);
        }
        *size = SpillSize { messages, bytes };
        Ok(())
    }

    /// Whether there is room for one more message, as far as this gateway knows.
    pub(crate) fn has_room(&self) -> bool {
        let size = *self.lock();
        let has_room = size.messages < self.limits.messages && size.bytes < self.limits.bytes;
        if !has_room {
            self.component.not_ready(FULL);
        }
        has_room
    }

    /// Whether anything is spilled, as far as this gateway knows.
    pub(super) fn is_empty(&self) -> bool {
        self.lock().messages == 0
    }

    /// Measures the spill again. A full spill counts as having room again when a tenth is free, or
    /// when it is empty and the broker is back.
    pub(super) async fn measure(&self, broker_is_open: bool) -> Result<(), DatabaseError> {
        let (measured, oldest_seconds) = store::measure(&self.database).await?;
        *self.lock() = measured;
        metrics::SPILL_MESSAGES.set(measured.messages as f64);
        metrics::SPILL_BYTES.set(measured.bytes as f64);
        metrics::OLDEST_SPILLED.set(oldest_seconds);
        let has_room = self.limits.messages > 0
            && measured.messages * 10 <= self.limits.messages * 9
            && measured.bytes * 10 <= self.limits.bytes * 9;
        if has_room || (broker_is_open && measured.messages == 0) {
            self.component.ready();
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, SpillSize> {
        self.size.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
