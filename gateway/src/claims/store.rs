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
    /// Counts repeats with another payload than the first, by a function of the database.
    COUNT_CHANGED_REPEATS = count_changed_repeats "
SELECT changed FROM count_changed_repeats($1, $2, $3, $4, $5, $6) AS changed";
}

/// The statements of one kind of claim.
#[derive(Debug, Clone, Copy)]
pub struct ClaimStatements {
    /// Claims what has no row yet, and opens the batches that this needs; where all rows exist,
    /// nothing is written. Keys whose door is gone, and rows that exist, are not returned. Closes,
    /// on the way, batches that are known to be confirmed.
    pub(super) claim_new: &'static Statement,
    /// What is known of keys whose doors are open. A statement of its own, because only a new one
    /// sees a row that was committed while `claim_new` waited for it.
    pub(super) find_claims: &'static Statement,
    /// Moves claims whose lease is over into new batches, unless somebody else is doing it.
    pub(super) take_over: &'static Statement,
}

impl ClaimStatements {
    pub(super) fn all(self) -> [&'static Statement; 3] {
        [self.claim_new, self.find_claims, self.take_over]
    }
}

/// The statements over `table`. `door` is the type of a door's key, `door_row` what a wanted key is
/// joined with to find its door, `open` whether that takes what is new, `kept` the argument with
/// what a claim keeps besides. What writes is a function of the database, which has rights that the
/// gateway has not.
macro_rules! claim_statements {
    (name: $name:literal, table: $table:literal, id: $id:literal, door: $door:literal,
     kept: $kept:literal, door_row: $door_row:literal, open: $open:literal,) => {
        ClaimStatements {
            claim_new: &letterbox_database::Statement {
                name: concat!("claim_new_", $name),
                sql: concat!(
                    "SELECT id FROM claim_",
                    $name,
                    "($1, $2, $3, $4, $5, $6, $7, $8, $9",
                    $kept,
                    ") AS id"
                ),
            },
            find_claims: &letterbox_database::Statement {
                name: concat!("find_", $name),
                sql: concat!(
                    "
SELECT wanted.ordinal, d.",
                    $id,
                    " AS id,
       b.batch_id IS NULL OR b.spilled_at IS NOT NULL OR d.batch_id = ANY ($5) AS settled,
       coalesce(b.lease_until <= clock_timestamp(), false) AS lease_is_over
FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::",
                    $door,
                    "[])
     WITH ORDINALITY AS wanted (workspace_id, key_high, key_low, door, ordinal)
JOIN ",
                    $door_row,
                    "
LEFT JOIN ",
                    $table,
                    " d ON d.workspace_id = wanted.workspace_id
    AND d.key_high = wanted.key_high AND d.key_low = wanted.key_low
LEFT JOIN open_batches b ON b.batch_id = d.batch_id
WHERE d.",
                    $id,
                    " IS NOT NULL OR ",
                    $open
                ),
            },
            take_over: &letterbox_database::Statement {
                name: concat!("take_over_", $name),
                sql: concat!(
                    "SELECT id FROM take_over_",
                    $name,
                    "($1, $2, $3, $4, $5, $6, $7) AS id"
                ),
            },
        }
    };
}
pub(super) use claim_statements;

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

/// What is known of a claim that exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Known<Id> {
    /// Its batch is closed or spilled.
    Settled,
    /// Its batch is open, and others may take it over, or not yet.
    Open { id: Id, lease_is_over: bool },
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
        let rows = self
            .database
            .query(K::STATEMENTS.claim_new, &values)
            .await?;
        closing.are_closed();
        rows.iter().map(|row| Ok(row.try_get("id")?)).collect()
    }

    /// What is known of keys, by their places; nothing of those whose door is gone. Of a key that
    /// has a door and no row, `None` is known.
    pub(super) async fn find_claims<K: ClaimKey>(
        &self,
        keys: impl Iterator<Item = &K>,
    ) -> Result<HashMap<usize, Option<Known<K::Id>>>, DatabaseError> {
        let columns = Columns::of(keys);
        let rows = self
            .database
            .query(
                K::STATEMENTS.find_claims,
                &[
                    /* $1 workspace_id */ &columns.workspaces,
                    /* $2 key_high */ &columns.highs,
                    /* $3 key_low */ &columns.lows,
                    /* $4 door */ &columns.doors,
                    /* $5 confirmed */ &self.settlements.confirmed(),
                ],
            )
            .await?;
        let known = rows.iter().map(|row| {
            let ordinal: i64 = row.try_get("ordinal")?;
            let (id, settled, lease_is_over) = (
                row.try_get("id")?,
                row.try_get("settled")?,
                row.try_get("lease_is_over")?,
            );
            let known = match (id, settled) {
                (None, _) => None,
                (Some(_), true) => Some(Known::Settled),
                (Some(id), false) => Some(Known::Open { id, lease_is_over }),
            };
            Ok((ordinal as usize - 1, known))
        });
        known.collect()
    }

    /// Takes over what is open with its lease over, and gives the ids of what was taken.
    pub(super) async fn take_over<K: ClaimKey>(
        &self,
        wanted: &[&Wanted<K>],
    ) -> Result<HashSet<K::Id>, DatabaseError> {
        let columns = Columns::of(wanted.iter().map(|wanted| &wanted.key));
        let batches: Vec<_> = wanted.iter().map(|wanted| wanted.batch).collect();
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
