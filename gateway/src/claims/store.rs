//! The statements behind claims, the same for every kind of claim. Each serves a whole batch.
//!
//! Keys are sorted within a statement, so that two batches can't wait for each other in a circle.
//! Claims are durable when they return.

use std::collections::{HashMap, HashSet};

use letterbox_common::ids::WorkspaceId;
use letterbox_database::{DatabaseError, Statement, statements};
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::{ClaimKey, Claims, SubmissionKey};
use crate::open_batches::BatchId;

statements! {
    /// Claims bodies that have no row yet, and opens the batches that this needs; where all rows
    /// exist, nothing is written. Keys whose door is gone, and rows that exist, are not returned.
    /// Closes, on the way, batches that are known to be confirmed.
    CLAIM_DELIVERIES = claim_new_deliveries "
SELECT id FROM claim_deliveries($1, $2, $3, $4, $5, $6, $7, $8, $9) AS id";

    /// The same for idempotency keys. $10 are the hashes of their payloads.
    CLAIM_SUBMISSIONS = claim_new_submissions "
SELECT id FROM claim_submissions($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) AS id";

    /// What is known of keys whose doors are open: nothing is returned for the others. A statement
    /// of its own, because only a new one sees a row that was committed while claiming waited for
    /// it. A claim whose batch has no row is recorded.
    FIND_DELIVERIES = find_deliveries "
SELECT wanted.ordinal, d.delivery_id AS id,
       b.batch_id IS NULL OR b.spilled_at IS NOT NULL OR d.batch_id = ANY ($5) AS settled,
       coalesce(b.lease_until <= clock_timestamp(), false) AS lease_is_over
FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::uuid[])
     WITH ORDINALITY AS wanted (workspace_id, key_high, key_low, door, ordinal)
JOIN webhooks w ON w.workspace_id = wanted.workspace_id AND w.webhook_id = wanted.door
    AND w.deleted_at IS NULL AND (w.ends_at IS NULL OR w.ends_at > statement_timestamp())
LEFT JOIN webhook_deliveries d ON d.workspace_id = wanted.workspace_id
    AND d.key_high = wanted.key_high AND d.key_low = wanted.key_low
LEFT JOIN open_batches b ON b.batch_id = d.batch_id";

    /// The same. A link that is closed is open for what it knows.
    FIND_SUBMISSIONS = find_submissions "
SELECT wanted.ordinal, s.submission_id AS id,
       b.batch_id IS NULL OR b.spilled_at IS NOT NULL OR s.batch_id = ANY ($5) AS settled,
       coalesce(b.lease_until <= clock_timestamp(), false) AS lease_is_over
FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::bytea[])
     WITH ORDINALITY AS wanted (workspace_id, key_high, key_low, door, ordinal)
JOIN live_links l ON l.token_sha256 = wanted.door AND l.workspace_id = wanted.workspace_id
LEFT JOIN form_submissions s ON s.workspace_id = wanted.workspace_id
    AND s.key_high = wanted.key_high AND s.key_low = wanted.key_low
LEFT JOIN open_batches b ON b.batch_id = s.batch_id
WHERE s.submission_id IS NOT NULL OR l.is_open";

    /// Moves claims whose lease is over into new batches, unless somebody else is doing it.
    TAKE_OVER_DELIVERIES = take_over_deliveries "
SELECT id FROM take_over_deliveries($1, $2, $3, $4, $5, $6, $7) AS id";

    /// The same.
    TAKE_OVER_SUBMISSIONS = take_over_submissions "
SELECT id FROM take_over_submissions($1, $2, $3, $4, $5, $6, $7) AS id";

    /// Counts repeats with another payload than the first, by a function of the database.
    COUNT_CHANGED_REPEATS = count_changed_repeats "
SELECT changed FROM count_changed_repeats($1, $2, $3, $4, $5, $6) AS changed";
}

/// The statements of one kind of claim.
#[derive(Debug, Clone, Copy)]
pub struct ClaimStatements {
    claim: &'static Statement,
    find: &'static Statement,
    take_over: &'static Statement,
}

pub(super) const DELIVERIES: ClaimStatements = ClaimStatements {
    claim: &CLAIM_DELIVERIES,
    find: &FIND_DELIVERIES,
    take_over: &TAKE_OVER_DELIVERIES,
};

pub(super) const SUBMISSIONS: ClaimStatements = ClaimStatements {
    claim: &CLAIM_SUBMISSIONS,
    find: &FIND_SUBMISSIONS,
    take_over: &TAKE_OVER_SUBMISSIONS,
};

/// A key that shall be claimed into a batch.
pub(super) struct Wanted<K: ClaimKey> {
    pub(super) key: K,
    pub(super) batch: BatchId,
    /// Used if the key has no id yet.
    pub(super) id: K::Id,
}

impl<K: ClaimKey> Wanted<K> {
    pub(super) fn new(key: K, batch: BatchId) -> Self {
        let id = K::generate_id();
        Self { key, batch, id }
    }
}

/// What the database knows of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found<Id> {
    /// Its door, the webhook or the form link, is not there any more.
    Gone,
    /// Nobody has claimed it.
    Unclaimed,
    /// It is claimed into a batch that is open; others may take it over once the lease is over.
    Open { id: Id, lease_is_over: bool },
    /// Its batch is closed or spilled: it is recorded.
    Settled,
}

/// Keys, by column.
struct Columns<'a, K: ClaimKey> {
    workspaces: Vec<WorkspaceId>,
    highs: Vec<Uuid>,
    lows: Vec<Uuid>,
    doors: Vec<K::Door<'a>>,
    hashes: Vec<&'a [u8]>,
    payloads: Vec<i64>,
}

impl<'a, K: ClaimKey> Columns<'a, K> {
    fn of(keys: impl Iterator<Item = &'a K>) -> Self {
        let mut columns = Self {
            workspaces: vec![],
            highs: vec![],
            lows: vec![],
            doors: vec![],
            hashes: vec![],
            payloads: vec![],
        };
        for key in keys {
            let (high, low) = key.key_hash().halves();
            columns.workspaces.push(key.workspace());
            columns.highs.push(high);
            columns.lows.push(low);
            columns.doors.push(key.door());
            columns.hashes.push(key.sha256());
            columns.payloads.extend(key.payload_hash());
        }
        columns
    }
}

impl Claims {
    /// Claims what has no row, and gives the ids of what was claimed.
    pub(super) async fn claim_new<K: ClaimKey>(
        &self,
        wanted: &[Wanted<K>],
    ) -> Result<HashSet<K::Id>, DatabaseError> {
        let columns = Columns::of(wanted.iter().map(|wanted| &wanted.key));
        let batches: Vec<_> = wanted.iter().map(|wanted| wanted.batch).collect();
        let ids: Vec<K::Id> = wanted.iter().map(|wanted| wanted.id).collect();
        let closing = self.settlements.take_confirmed();
        let (lease, closing_ids) = (self.lease.as_secs_f64(), closing.ids());
        let mut values: Vec<&(dyn ToSql + Sync)> = vec![
            /* $1 workspace_id */ &columns.workspaces,
            /* $2 key_high */ &columns.highs,
            /* $3 key_low */ &columns.lows,
            /* $4 door */ &columns.doors,
            /* $5 sha256 */ &columns.hashes,
            /* $6 batch_id */ &batches,
            /* $7 id */ &ids,
            /* $8 lease_seconds */ &lease,
            /* $9 closing */ &closing_ids,
        ];
        if !columns.payloads.is_empty() {
            values.push(/* $10 payload_hash */ &columns.payloads);
        }
        let rows = self.database.query(K::STATEMENTS.claim, &values).await?;
        closing.are_closed();
        rows.iter().map(|row| Ok(row.try_get("id")?)).collect()
    }

    /// What is known of keys; nothing of those whose door is gone.
    pub(super) async fn find_claims<K: ClaimKey>(
        &self,
        keys: impl Iterator<Item = &K> + Clone,
    ) -> Result<HashMap<K, Found<K::Id>>, DatabaseError> {
        let (columns, keys) = (Columns::of(keys.clone()), Vec::from_iter(keys));
        let rows = self
            .database
            .query(
                K::STATEMENTS.find,
                &[
                    /* $1 workspace_id */ &columns.workspaces,
                    /* $2 key_high */ &columns.highs,
                    /* $3 key_low */ &columns.lows,
                    /* $4 door */ &columns.doors,
                    /* $5 confirmed */ &self.settlements.confirmed(),
                ],
            )
            .await?;
        let mut found = HashMap::with_capacity(rows.len());
        for row in &rows {
            let ordinal: i64 = row.try_get("ordinal")?;
            let key = usize::try_from(ordinal - 1)
                .ok()
                .and_then(|place| keys.get(place));
            let state = match (row.try_get("id")?, row.try_get("settled")?) {
                (None, _) => Found::Unclaimed,
                (Some(_), true) => Found::Settled,
                (Some(id), false) => Found::Open {
                    id,
                    lease_is_over: row.try_get("lease_is_over")?,
                },
            };
            found.extend(key.map(|key| (**key, state)));
        }
        Ok(found)
    }

    /// Takes over what is open with its lease over, and gives the ids of what was taken.
    pub(super) async fn take_over<K: ClaimKey>(
        &self,
        wanted: impl Iterator<Item = &Wanted<K>> + Clone,
    ) -> Result<HashSet<K::Id>, DatabaseError> {
        let columns = Columns::of(wanted.clone().map(|wanted| &wanted.key));
        let batches: Vec<_> = wanted.map(|wanted| wanted.batch).collect();
        let rows = self
            .database
            .query(
                K::STATEMENTS.take_over,
                &[
                    /* $1 workspace_id */ &columns.workspaces,
                    /* $2 key_high */ &columns.highs,
                    /* $3 key_low */ &columns.lows,
                    /* $4 door */ &columns.doors,
                    /* $5 sha256 */ &columns.hashes,
                    /* $6 batch_id */ &batches,
                    /* $7 lease_seconds */ &self.lease.as_secs_f64(),
                ],
            )
            .await?;
        rows.iter().map(|row| Ok(row.try_get("id")?)).collect()
    }

    /// Counts, of keys that were known, those that came with another payload than the first; gives
    /// how many they were.
    ///
    /// # Errors
    /// When the database did not answer.
    pub(crate) async fn count_changed_repeats(
        &self,
        repeats: &[SubmissionKey],
    ) -> Result<u64, DatabaseError> {
        let columns = Columns::of(repeats.iter());
        let row = self
            .database
            .query_one(
                &COUNT_CHANGED_REPEATS,
                &[
                    /* $1 workspace_id */ &columns.workspaces,
                    /* $2 key_high */ &columns.highs,
                    /* $3 key_low */ &columns.lows,
                    /* $4 token_sha256 */ &columns.doors,
                    /* $5 sha256 */ &columns.hashes,
                    /* $6 payload_hash */ &columns.payloads,
                ],
            )
            .await?;
        let changed: i64 = row.try_get("changed")?;
        Ok(u64::try_from(changed).unwrap_or(0))
    }
}
