//! The database of a gateway without sockets: claims, and the rows of open batches. A statement is
//! done at one moment, some time after it was sent; it may fail before or after that.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt,
    sync::{Arc, Mutex, MutexGuard},
};

use shuttle::rand::{Rng, thread_rng};

use crate::{
    broker::dawdle,
    claims::Outcome,
    open_batches::{BatchId, Settlements},
};

#[derive(Clone, Default)]
pub(crate) struct Database(Arc<Mutex<Tables>>);

#[derive(Debug, Clone, Copy)]
pub(crate) struct DatabaseError;

/// What fails here is never one item, or one tenant's.
pub(crate) fn divide<T, P: PartialEq>(
    batch: Vec<T>,
    _: &DatabaseError,
    _: impl Fn(&T) -> P,
) -> Result<Vec<Vec<T>>, Vec<T>> {
    Err(batch)
}

impl fmt::Display for DatabaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("as told")
    }
}

/// The row of an open batch.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Open {
    pub(crate) is_spilled: bool,
    pub(crate) lease_is_over: bool,
}

#[derive(Default)]
pub(crate) struct Tables {
    /// The batch of each key.
    claims: BTreeMap<u32, BatchId>,
    pub(crate) open: BTreeMap<BatchId, Open>,
    /// How many keys were claimed into a batch.
    pub(crate) claimed: BTreeMap<BatchId, usize>,
    /// Batches that the broker has confirmed.
    pub(crate) confirmed: BTreeSet<BatchId>,
    /// How many more statements fail.
    pub(crate) failing: u32,
}

impl Tables {
    /// Whether a key is with the broker, or spilled.
    pub(crate) fn is_safe(&self, key: u32) -> bool {
        let is_spilled = |batch: &BatchId| self.open.get(batch).is_some_and(|row| row.is_spilled);
        let is_safe = |batch: &BatchId| self.confirmed.contains(batch) || is_spilled(batch);
        self.claims.get(&key).is_some_and(is_safe)
    }

    /// Claims one key, unless it is recorded or being recorded.
    fn claim(&mut self, key: u32, batch: BatchId, known: &[BatchId]) -> Result<(), Outcome> {
        if let Some(earlier) = self.claims.get(&key) {
            match self.open.get(earlier) {
                Some(row) if !row.is_spilled && !known.contains(earlier) => {
                    if !row.lease_is_over {
                        return Err(Outcome::InProgress);
                    }
                }
                _ => return Err(Outcome::Duplicate),
            }
        }
        self.claims.insert(key, batch);
        self.open.entry(batch).or_default();
        *self.claimed.entry(batch).or_default() += 1;
        Ok(())
    }
}

impl Database {
    pub(crate) fn tables(&self) -> MutexGuard<'_, Tables> {
        self.0.lock().expect("nobody panics with it")
    }

    async fn run<T>(&self, statement: impl FnOnce(&mut Tables) -> T) -> Result<T, DatabaseError> {
        self.pass().await?;
        let answer = statement(&mut self.tables());
        self.pass().await?;
        Ok(answer)
    }

    /// Takes a while, and may fail.
    async fn pass(&self) -> Result<(), DatabaseError> {
        dawdle(4).await;
        let mut tables = self.tables();
        let fails = tables.failing > 0 && thread_rng().gen_ratio(1, 4);
        tables.failing -= u32::from(fails);
        if fails { Err(DatabaseError) } else { Ok(()) }
    }

    pub(crate) async fn claim(
        &self,
        wanted: &[(u32, BatchId)],
        settlements: &Arc<Settlements>,
    ) -> Result<HashMap<u32, Result<(), Outcome>>, DatabaseError> {
        let keys: BTreeSet<_> = wanted.iter().map(|(key, _)| key).collect();
        assert_eq!(keys.len(), wanted.len(), "a key is claimed twice at once");
        let closing = settlements.take_confirmed();
        let claim = |tables: &mut Tables| {
            tables
                .open
                .retain(|batch, _| !closing.ids().contains(batch));
            let known = settlements.confirmed();
            let claim = |&(key, batch): &_| (key, tables.claim(key, batch, &known));
            wanted.iter().map(claim).collect()
        };
        let answers = self.run(claim).await?;
        closing.are_closed();
        Ok(answers)
    }

    /// Every key that is recorded.
    pub(crate) async fn recorded(&self) -> Result<BTreeSet<u32>, DatabaseError> {
        let recorded = |tables: &mut Tables| {
            let is_open =
                |batch: &BatchId| tables.open.get(batch).is_some_and(|row| !row.is_spilled);
            let recorded = tables.claims.iter().filter(|(_, batch)| !is_open(batch));
            recorded.map(|(key, _)| *key).collect()
        };
        self.run(recorded).await
    }

    pub(crate) async fn spill(
        &self,
        batches: BTreeSet<BatchId>,
    ) -> Result<BTreeSet<BatchId>, DatabaseError> {
        let spill = |tables: &mut Tables| {
            for (_, row) in tables
                .open
                .iter_mut()
                .filter(|(one, _)| batches.contains(*one))
            {
                row.is_spilled = true;
            }
            let is_open = |batch: &&BatchId| tables.open.contains_key(*batch);
            batches.iter().filter(is_open).copied().collect()
        };
        self.run(spill).await
    }

    pub(crate) async fn end_leases(
        &self,
        batches: &BTreeSet<BatchId>,
    ) -> Result<(), DatabaseError> {
        let end = |tables: &mut Tables| {
            for (_, row) in tables
                .open
                .iter_mut()
                .filter(|(one, _)| batches.contains(*one))
            {
                row.lease_is_over = true;
            }
        };
        self.run(end).await
    }

    pub(crate) async fn close(&self, batches: &[BatchId]) -> Result<(), DatabaseError> {
        let close = |tables: &mut Tables| tables.open.retain(|one, _| !batches.contains(one));
        self.run(close).await
    }
}
