//! The statements behind claims, the same for every kind of claim. Each serves a whole batch.
//!
//! Keys are sorted within a statement, so that two batches can't wait for each other in a circle.
//! Claims are durable when they return; the end of a claim need not be, because losing it costs one
//! more publish of the same id.

use std::{collections::HashMap, marker::PhantomData, time::Duration};

use letterbox_common::ids::WorkspaceId;
use letterbox_database::{Database, DatabaseError, Statement};

use super::{Claim, ClaimKey, Claimed, End};
use crate::batcher::BatchWork;

/// The statements of one kind of claim.
#[derive(Debug, Clone, Copy)]
pub struct ClaimStatements {
    /// Claims what has no row yet. Keys whose guard row is missing, and rows that exist, are not
    /// returned.
    pub(super) claim_new: &'static Statement,
    /// For what `claim_new` did not return: says why, and takes over what is unsettled with its
    /// lease over. A statement of its own, because only a new one sees a row that was committed
    /// while `claim_new` waited for it.
    pub(super) claim_known: &'static Statement,
    /// Settles what was confirmed and ends the lease of what was not published; only for the
    /// attempt that holds it.
    pub(super) end_claims: &'static Statement,
}

impl ClaimStatements {
    pub(super) fn all(self) -> [&'static Statement; 3] {
        [self.claim_new, self.claim_known, self.end_claims]
    }
}

/// The statements over `table`, whose key is `(workspace_id, scope, sha256)`. `guard` is the type
/// of a guard, `guard_row` what a wanted key is joined with to find its guard row.
macro_rules! claim_statements {
    (name: $name:literal, table: $table:literal, scope: $scope:literal, sha256: $sha256:literal,
     id: $id:literal, guard: $guard:literal, guard_row: $guard_row:literal,) => {
        ClaimStatements {
            claim_new: &letterbox_database::Statement {
                name: concat!("claim_new_", $name),
                sql: concat!(
                    "
INSERT INTO ",
                    $table,
                    " (workspace_id, ",
                    $scope,
                    ", ",
                    $sha256,
                    ", ",
                    $id,
                    ", lease_until)
SELECT wanted.workspace_id, wanted.scope, wanted.sha256, wanted.id,
       clock_timestamp() + $6::float8 * interval '1 second'
FROM unnest($1::uuid[], $2::uuid[], $3::bytea[], $4::",
                    $guard,
                    "[], $5::uuid[])
     AS wanted (workspace_id, scope, sha256, guard, id)
JOIN ",
                    $guard_row,
                    "
ORDER BY wanted.workspace_id, wanted.scope, wanted.sha256
ON CONFLICT DO NOTHING
RETURNING ",
                    $id,
                    " AS id"
                ),
            },
            claim_known: &letterbox_database::Statement {
                name: concat!("claim_known_", $name),
                sql: concat!(
                    "
WITH wanted AS (
    SELECT wanted.*
    FROM unnest($1::uuid[], $2::uuid[], $3::bytea[], $4::",
                    $guard,
                    "[])
         WITH ORDINALITY AS wanted (workspace_id, scope, sha256, guard, ordinal)
    JOIN ",
                    $guard_row,
                    "
), expired AS (
    SELECT d.workspace_id, d.",
                    $scope,
                    ", d.",
                    $sha256,
                    "
    FROM wanted JOIN ",
                    $table,
                    " d
        ON d.workspace_id = wanted.workspace_id AND d.",
                    $scope,
                    " = wanted.scope
        AND d.",
                    $sha256,
                    " = wanted.sha256
    WHERE d.settled_at IS NULL AND d.lease_until <= clock_timestamp()
    FOR UPDATE OF d SKIP LOCKED
), taken AS (
    UPDATE ",
                    $table,
                    " d
    SET attempt = d.attempt + 1, claimed_at = clock_timestamp(),
        lease_until = clock_timestamp() + $5::float8 * interval '1 second'
    FROM expired
    WHERE (d.workspace_id, d.",
                    $scope,
                    ", d.",
                    $sha256,
                    ")
        = (expired.workspace_id, expired.",
                    $scope,
                    ", expired.",
                    $sha256,
                    ")
    RETURNING d.workspace_id, d.",
                    $scope,
                    ", d.",
                    $sha256,
                    ", d.attempt
)
SELECT wanted.ordinal, d.",
                    $id,
                    " AS id, d.settled_at IS NOT NULL AS settled, taken.attempt
FROM wanted
LEFT JOIN ",
                    $table,
                    " d
    ON d.workspace_id = wanted.workspace_id AND d.",
                    $scope,
                    " = wanted.scope
    AND d.",
                    $sha256,
                    " = wanted.sha256
LEFT JOIN taken
    ON taken.workspace_id = wanted.workspace_id AND taken.",
                    $scope,
                    " = wanted.scope
    AND taken.",
                    $sha256,
                    " = wanted.sha256"
                ),
            },
            end_claims: &letterbox_database::Statement {
                name: concat!("end_claims_", $name),
                sql: concat!(
                    "
UPDATE ",
                    $table,
                    " d
SET settled_at = CASE WHEN ended.confirmed THEN clock_timestamp() END,
    lease_until = CASE WHEN ended.confirmed THEN d.lease_until ELSE clock_timestamp() END
FROM (SELECT set_config('synchronous_commit', 'off', true) AS synchronous_commit) AS quick,
     unnest($1::uuid[], $2::uuid[], $3::bytea[], $4::int[], $5::bool[])
     AS ended (workspace_id, scope, sha256, attempt, confirmed)
WHERE (d.workspace_id, d.",
                    $scope,
                    ", d.",
                    $sha256,
                    ")
    = (ended.workspace_id, ended.scope, ended.sha256)
  AND d.attempt = ended.attempt AND d.settled_at IS NULL AND quick.synchronous_commit = 'off'"
                ),
            },
        }
    };
}
pub(super) use claim_statements;

/// Claims keys. The id that comes with a key is used if the key has none yet.
pub(super) struct Claiming<K> {
    database: Database,
    lease: Duration,
    kind: PhantomData<fn() -> K>,
}

impl<K: ClaimKey> BatchWork for Claiming<K> {
    type Item = (K, K::Id);
    type Output = Claimed<K>;
    type Error = DatabaseError;

    async fn run(&self, items: Vec<(K, K::Id)>) -> Result<Vec<Claimed<K>>, DatabaseError> {
        // Of equal keys in one batch the first stands for all.
        let mut firsts: HashMap<K, K::Id> = HashMap::with_capacity(items.len());
        for (key, id) in &items {
            firsts.entry(*key).or_insert(*id);
        }
        let mut wanted: Vec<_> = firsts.iter().map(|(key, id)| (*key, *id)).collect();
        wanted.sort_unstable();

        let claimed = self.claim(&wanted).await?;
        Ok(items
            .iter()
            .map(|(key, id)| share(claimed[key], firsts[key] == *id))
            .collect())
    }
}

/// The answer to one of several equal keys in a batch: only the first of them holds the claim.
fn share<K: ClaimKey>(claimed: Claimed<K>, is_first: bool) -> Claimed<K> {
    match claimed {
        Claimed::Held(_) if !is_first => Claimed::InProgress,
        other => other,
    }
}

impl<K: ClaimKey> Claiming<K> {
    pub(super) fn new(database: Database, lease: Duration) -> Self {
        Self {
            database,
            lease,
            kind: PhantomData,
        }
    }

    async fn claim(&self, wanted: &[(K, K::Id)]) -> Result<HashMap<K, Claimed<K>>, DatabaseError> {
        let mut claimed = self.claim_new(wanted).await?;
        if claimed.len() < wanted.len() {
            let keys = wanted.iter().map(|(key, _)| *key);
            let rest: Vec<K> = keys.filter(|key| !claimed.contains_key(key)).collect();
            claimed.extend(self.claim_known(&rest).await?);
        }
        Ok(claimed)
    }

    async fn claim_new(
        &self,
        wanted: &[(K, K::Id)],
    ) -> Result<HashMap<K, Claimed<K>>, DatabaseError> {
        let KeyColumns {
            workspaces,
            scopes,
            hashes,
        } = KeyColumns::of(wanted.iter().map(|(key, _)| key));
        let guards: Vec<_> = wanted.iter().map(|(key, _)| key.guard()).collect();
        let ids: Vec<K::Id> = wanted.iter().map(|(_, id)| *id).collect();
        let keys: HashMap<K::Id, K> = wanted.iter().map(|(key, id)| (*id, *key)).collect();
        let lease = self.lease.as_secs_f64();
        let rows = self
            .database
            .query(
                K::STATEMENTS.claim_new,
                &[
                    /* $1 workspace_id */ &workspaces,
                    /* $2 scope */ &scopes,
                    /* $3 sha256 */ &hashes,
                    /* $4 guard */ &guards,
                    /* $5 id */ &ids,
                    /* $6 lease_seconds */ &lease,
                ],
            )
            .await?;
        rows.iter()
            .map(|row| {
                let id = row.try_get("id")?;
                let key = keys[&id];
                Ok((
                    key,
                    Claimed::Held(Claim {
                        key,
                        id,
                        attempt: 1,
                    }),
                ))
            })
            .collect()
    }

    async fn claim_known(&self, wanted: &[K]) -> Result<HashMap<K, Claimed<K>>, DatabaseError> {
        let KeyColumns {
            workspaces,
            scopes,
            hashes,
        } = KeyColumns::of(wanted.iter());
        let guards: Vec<_> = wanted.iter().map(ClaimKey::guard).collect();
        let lease = self.lease.as_secs_f64();
        let rows = self
            .database
            .query(
                K::STATEMENTS.claim_known,
                &[
                    /* $1 workspace_id */ &workspaces,
                    /* $2 scope */ &scopes,
                    /* $3 sha256 */ &hashes,
                    /* $4 guard */ &guards,
                    /* $5 lease_seconds */ &lease,
                ],
            )
            .await?;

        // A key that is not returned has no guard row.
        let mut claimed: HashMap<K, Claimed<K>> =
            wanted.iter().map(|key| (*key, Claimed::Gone)).collect();
        for row in &rows {
            let ordinal: i64 = row.try_get("ordinal")?;
            let (id, attempt) = (row.try_get("id")?, row.try_get("attempt")?);
            let key = wanted[ordinal as usize - 1];
            let answer = match (id, row.try_get("settled")?, attempt) {
                (Some(id), _, Some(attempt)) => Claimed::Held(Claim { key, id, attempt }),
                (Some(_), true, None) => Claimed::Duplicate,
                _ => Claimed::InProgress,
            };
            claimed.insert(key, answer);
        }
        Ok(claimed)
    }
}

/// Ends claims one way or the other.
pub(super) struct Settling<K> {
    database: Database,
    kind: PhantomData<fn() -> K>,
}

impl<K: ClaimKey> BatchWork for Settling<K> {
    type Item = (Claim<K>, End);
    type Output = ();
    type Error = DatabaseError;

    async fn run(&self, mut items: Vec<(Claim<K>, End)>) -> Result<Vec<()>, DatabaseError> {
        items.sort_unstable_by_key(|(claim, _)| claim.key);
        let KeyColumns {
            workspaces,
            scopes,
            hashes,
        } = KeyColumns::of(items.iter().map(|(claim, _)| &claim.key));
        let attempts: Vec<i32> = items.iter().map(|(claim, _)| claim.attempt).collect();
        let confirmed: Vec<bool> = items
            .iter()
            .map(|(_, end)| *end == End::Confirmed)
            .collect();
        self.database
            .execute(
                K::STATEMENTS.end_claims,
                &[
                    /* $1 workspace_id */ &workspaces,
                    /* $2 scope */ &scopes,
                    /* $3 sha256 */ &hashes,
                    /* $4 attempt */ &attempts,
                    /* $5 confirmed */ &confirmed,
                ],
            )
            .await?;
        Ok(vec![(); items.len()])
    }
}

impl<K: ClaimKey> Settling<K> {
    pub(super) fn new(database: Database) -> Self {
        Self {
            database,
            kind: PhantomData,
        }
    }
}

/// Keys by column.
struct KeyColumns<'a, K: ClaimKey> {
    workspaces: Vec<WorkspaceId>,
    scopes: Vec<K::Scope>,
    hashes: Vec<&'a [u8]>,
}

impl<'a, K: ClaimKey> KeyColumns<'a, K> {
    fn of(keys: impl Iterator<Item = &'a K>) -> Self {
        let mut columns = Self {
            workspaces: vec![],
            scopes: vec![],
            hashes: vec![],
        };
        for key in keys {
            columns.workspaces.push(key.workspace());
            columns.scopes.push(key.scope());
            columns.hashes.push(key.sha256());
        }
        columns
    }
}
