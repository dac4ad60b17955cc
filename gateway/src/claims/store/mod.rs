//! The steps of a claim, one statement each.
//!
//! Keys are sorted within a statement, so that two batches can't deadlock. Claims are durable when
//! the statement returns.

pub(super) mod statements;

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use letterbox_common::ids::WorkspaceId;
use letterbox_database::{Client, Database, DatabaseError, ask};
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::key::{ClaimKey, Door};
use crate::open_batches::{BatchId, Settlements};

/// A key to claim into a batch.
pub(super) struct WantedKeys<D: Door> {
    pub(super) key: ClaimKey<D>,
    pub(super) batch: BatchId,
    /// The id of the claim if it is new.
    pub(super) id: D::Id,
}

/// The state of a key in the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found<Id> {
    /// Its door, the webhook or the form link, no longer exists.
    Gone,
    /// It has no claim.
    Unclaimed,
    /// It is claimed into an open batch, and can be taken over once the lease is over.
    Open {
        id: Id,
        lease_is_over: bool,
        is_stalled: bool,
    },
    /// Its batch is closed or spilled, or it is remembered: it is recorded.
    Settled,
}

/// Keys as one array for each column.
struct Columns<'a, D: Door> {
    workspaces: Vec<WorkspaceId>,
    highs: Vec<Uuid>,
    lows: Vec<Uuid>,
    doors: Vec<D::Value<'a>>,
    hashes: Vec<&'a [u8]>,
    payloads: Vec<Option<i64>>,
    versions: Vec<Option<i64>>,
}

impl<'a, D: Door> Columns<'a, D> {
    fn of(keys: impl Iterator<Item = &'a ClaimKey<D>> + Clone) -> Self {
        let (highs, lows) = keys.clone().map(|key| key.hash.halves()).unzip();
        Self {
            workspaces: keys.clone().map(|key| key.workspace).collect(),
            highs,
            lows,
            doors: keys.clone().map(|key| key.door.value()).collect(),
            hashes: keys.clone().map(|key| &key.sha256[..]).collect(),
            payloads: keys.clone().map(|key| key.payload_hash).collect(),
            versions: keys.map(|key| key.version).collect(),
        }
    }

    /// The values of a statement: those of the key, `further` ones from $5 on, and at last the
    /// versions of doors, if its doors have some.
    fn values<'v>(&'v self, further: &[&'v (dyn ToSql + Sync)]) -> Vec<&'v (dyn ToSql + Sync)> {
        let key: [&(dyn ToSql + Sync); 4] = [
            /* $1 workspace_id */ &self.workspaces,
            /* $2 key_high */ &self.highs,
            /* $3 key_low */ &self.lows,
            /* $4 door */ &self.doors,
        ];
        let versions: &(dyn ToSql + Sync) = &self.versions;
        let versions = D::HAVE_VERSIONS.then_some(versions);
        [&key, further]
            .concat()
            .into_iter()
            .chain(versions)
            .collect()
    }
}

/// Makes claims in batches. Cheap to clone.
#[derive(Clone)]
pub struct Claims {
    database: Database,
    lease: Duration,
    settlements: Arc<Settlements>,
}

impl Claims {
    /// Creates claims that hold for `lease`, by the database's clock.
    #[must_use]
    pub fn new(database: Database, lease: Duration, settlements: Arc<Settlements>) -> Self {
        Self {
            database,
            lease,
            settlements,
        }
    }

    /// Claims keys that have no row. Returns the ids of the new claims, and those of remembered
    /// keys with `false`.
    pub(super) async fn claim_new<D: Door>(
        &self,
        wanted: &[WantedKeys<D>],
    ) -> Result<HashMap<D::Id, bool>, DatabaseError> {
        let columns = Columns::of(wanted.iter().map(|wanted| &wanted.key));
        let batches: Vec<_> = wanted.iter().map(|wanted| wanted.batch).collect();
        let ids: Vec<D::Id> = wanted.iter().map(|wanted| wanted.id).collect();
        let closing = self.settlements.take_confirmed();
        let lease = self.lease.as_secs_f64();
        let closing_ids = closing.ids();
        let values = columns.values(&[
            /* $5 sha256 */ &columns.hashes,
            /* $6 batch_id */ &batches,
            /* $7 id */ &ids,
            /* $8 lease_seconds */ &lease,
            /* $9 closing */ &closing_ids,
            /* $10 payload_hash */ &columns.payloads,
        ]);
        let told: Vec<(D::Id, bool)> = ask(&self.database, D::CLAIM, &values).await?;
        // Not after an error: then they stay known as confirmed, and a later statement closes them.
        closing.are_closed();
        Ok(told.into_iter().collect())
    }

    /// Finds the state of keys; those whose door is gone are missing.
    pub(super) async fn find_claims<D: Door>(
        &self,
        keys: impl Iterator<Item = &ClaimKey<D>> + Clone,
    ) -> Result<HashMap<ClaimKey<D>, Found<D::Id>>, DatabaseError> {
        let columns = Columns::of(keys.clone());
        let keys = Vec::from_iter(keys);
        let confirmed = self.settlements.confirmed();
        let lease = self.lease.as_secs_f64();
        let values = columns.values(&[
            /* $5 confirmed */ &confirmed, /* $6 lease_seconds */ &lease,
        ]);
        let rows = self.database.ask(D::FIND, &values).await?.rows;
        let mut found = HashMap::with_capacity(rows.len());
        for row in &rows {
            // Ordinals count from 1.
            let ordinal: i64 = row.try_get("ordinal")?;
            let key = usize::try_from(ordinal - 1)
                .ok()
                .and_then(|place| keys.get(place));
            let state = match (row.try_get("id")?, row.try_get("settled")?) {
                (_, true) => Found::Settled,
                (None, false) => Found::Unclaimed,
                (Some(id), false) => Found::Open {
                    id,
                    lease_is_over: row.try_get("lease_is_over")?,
                    is_stalled: row.try_get("is_stalled")?,
                },
            };
            found.extend(key.map(|key| (**key, state)));
        }
        Ok(found)
    }

    /// Takes over open claims whose lease is over, and returns the ids of those that were taken.
    pub(super) async fn take_over<D: Door>(
        &self,
        wanted: impl Iterator<Item = &WantedKeys<D>> + Clone,
    ) -> Result<HashSet<D::Id>, DatabaseError> {
        let columns = Columns::of(wanted.clone().map(|wanted| &wanted.key));
        let batches: Vec<_> = wanted.map(|wanted| wanted.batch).collect();
        let lease = self.lease.as_secs_f64();
        let values = columns.values(&[
            /* $5 sha256 */ &columns.hashes,
            /* $6 batch_id */ &batches,
            /* $7 lease_seconds */ &lease,
        ]);
        let taken: Vec<(D::Id,)> = ask(&self.database, D::TAKE_OVER, &values).await?;
        Ok(taken.into_iter().map(|(id,)| id).collect())
    }

    /// Counts the repeats whose payload differs from the first, and returns their number.
    pub(crate) async fn count_changed_repeats<D: Door>(
        &self,
        repeats: &[ClaimKey<D>],
    ) -> Result<u64, DatabaseError> {
        let columns = Columns::of(repeats.iter());
        let parameters: [&(dyn ToSql + Sync); 6] = [
            /* $1 workspace_id */ &columns.workspaces,
            /* $2 key_high */ &columns.highs,
            /* $3 key_low */ &columns.lows,
            /* $4 door */ &columns.doors,
            /* $5 sha256 */ &columns.hashes,
            /* $6 payload_hash */ &columns.payloads,
        ];
        let counting = ask(&self.database, D::COUNT_CHANGED, &parameters);
        let (changed,): (i64,) = counting.await?;
        Ok(u64::try_from(changed).unwrap_or(0))
    }
}
