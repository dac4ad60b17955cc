//! The steps of a claim, one statement each.
//!
//! Keys are sorted within a statement, so that two batches can't deadlock. Claims are durable when
//! the statement returns.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use letterbox_common::{ids::WorkspaceId, states::ClaimKind};
use letterbox_database::{Client, Database, DatabaseError, ask, statements};
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::key::{ClaimKey, Door};
use crate::open_batches::{BatchId, Settlements};

statements! {
    /// Claims keys that have no row yet, opens the batches that they go into, and returns the ids
    /// of the new claims and of what is remembered: none for keys that have a row or whose door is
    /// gone. Also closes batches that are known to be confirmed.
    CLAIM = claim_new "
SELECT id, is_new FROM claim($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)";

    /// The state of keys whose doors are open; the others are not returned. A statement of its own,
    /// because only a new one sees a row that was committed while claiming waited for it. A claim
    /// whose batch has no row is recorded, and so is a key that is remembered. One that has been
    /// open for three seconds, and is not free within two, is stalled. A closed link still finds
    /// the keys that it has.
    FIND = find_claims "
SELECT wanted.place, c.claim_id AS id,
       CASE WHEN c.claim_id IS NULL THEN r.key_high IS NOT NULL ELSE
           b.batch_id IS NULL OR c.batch_id = ANY ($8) END AS settled,
       coalesce(lease_is_over(b.lease_until, $9), false) AS lease_is_over,
       coalesce(b.lease_until BETWEEN clock_timestamp() + interval '2 seconds'
           AND clock_timestamp() + ($9 - 3) * interval '1 second', false) AS is_stalled
FROM live_keys($1, $2, $3, $4, $5, $6, $7) AS wanted
LEFT JOIN LATERAL (
    SELECT found.claim_id, found.batch_id FROM claims found
    WHERE found.workspace_id = wanted.workspace_id AND found.key_high = wanted.key_high
      AND found.key_low = wanted.key_low
      AND found.half BETWEEN wanted.first_half AND wanted.first_half + 1 LIMIT 1) AS c ON true
LEFT JOIN open_batches b ON b.batch_id = ANY (ARRAY[c.batch_id])
LEFT JOIN (SELECT DISTINCT remembered($2, $3) AS key_high) r ON r.key_high = wanted.key_high
WHERE c.claim_id IS NOT NULL OR r.key_high IS NOT NULL OR wanted.is_open";

    /// Moves claims whose lease is over into new batches, unless another gateway is doing it.
    TAKE_OVER = take_over_claims "
SELECT id FROM take_over($1, $2, $3, $4, $5, $6, $7, $8, $9) AS id";

    /// Counts repeats whose payload differs from the first, and notes it beside each submission.
    COUNT_CHANGED = count_changed "
SELECT changed FROM count_changed($1, $2, $3, $4, $5, $6, $7, $8) AS changed";
}

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
struct Columns<'a> {
    kind: ClaimKind,
    workspaces: Vec<WorkspaceId>,
    highs: Vec<Uuid>,
    lows: Vec<Uuid>,
    doors: Vec<&'a [u8]>,
    versions: Vec<Option<i64>>,
    hashes: Vec<&'a [u8]>,
    payloads: Vec<Option<i64>>,
}

impl<'a> Columns<'a> {
    fn of<D: Door>(keys: impl Iterator<Item = &'a ClaimKey<D>> + Clone) -> Self {
        let (highs, lows) = keys.clone().map(|key| key.hash.halves()).unzip();
        Self {
            kind: D::KIND,
            workspaces: keys.clone().map(|key| key.workspace).collect(),
            highs,
            lows,
            doors: keys.clone().map(|key| key.door.value()).collect(),
            versions: keys.clone().map(|key| key.version).collect(),
            hashes: keys.clone().map(|key| &key.sha256[..]).collect(),
            payloads: keys.map(|key| key.payload_hash).collect(),
        }
    }

    /// The values of a statement: those of the key, and `further` ones from $8 on.
    fn values<'v>(&'v self, further: &[&'v (dyn ToSql + Sync)]) -> Vec<&'v (dyn ToSql + Sync)> {
        let key: [&(dyn ToSql + Sync); 7] = [
            /* $1 kind */ &self.kind,
            /* $2 workspace_id */ &self.workspaces,
            /* $3 key_high */ &self.highs,
            /* $4 key_low */ &self.lows,
            /* $5 door */ &self.doors,
            /* $6 version */ &self.versions,
            /* $7 sha256 */ &self.hashes,
        ];
        [&key, further].concat()
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
            /* $8 payload_hash */ &columns.payloads,
            /* $9 batch_id */ &batches,
            /* $10 id */ &ids,
            /* $11 lease_seconds */ &lease,
            /* $12 closing */ &closing_ids,
        ]);
        let told: Vec<(D::Id, bool)> = ask(&self.database, &CLAIM, &values).await?;
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
            /* $8 confirmed */ &confirmed, /* $9 lease_seconds */ &lease,
        ]);
        let rows = self.database.ask(&FIND, &values).await?.rows;
        let mut found = HashMap::with_capacity(rows.len());
        for row in &rows {
            // Places count from 1.
            let place: i64 = row.try_get("place")?;
            let key = usize::try_from(place - 1)
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
            /* $8 batch_id */ &batches, /* $9 lease_seconds */ &lease,
        ]);
        let taken: Vec<(D::Id,)> = ask(&self.database, &TAKE_OVER, &values).await?;
        Ok(taken.into_iter().map(|(id,)| id).collect())
    }

    /// Counts the repeats whose payload differs from the first, and returns their number.
    pub(crate) async fn count_changed_repeats<D: Door>(
        &self,
        repeats: &[ClaimKey<D>],
    ) -> Result<u64, DatabaseError> {
        let columns = Columns::of(repeats.iter());
        let values = columns.values(&[/* $8 payload_hash */ &columns.payloads]);
        let (changed,): (i64,) = ask(&self.database, &COUNT_CHANGED, &values).await?;
        Ok(u64::try_from(changed).unwrap_or(0))
    }
}
