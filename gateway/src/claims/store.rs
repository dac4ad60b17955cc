//! The statements behind claims, the same for every kind of claim. Each serves a whole batch.
//!
//! Keys are sorted within a statement, so that two batches can't wait for each other in a circle.
//! Claims are durable when they return; the end of a claim need not be, because losing it costs one
//! more publish of the same id.

use std::{collections::HashMap, marker::PhantomData, time::Duration};

use deadpool_postgres::{Client, Pool};
use letterbox_common::{
    database::{Checkout, DatabaseError, within},
    ids::WorkspaceId,
};

use super::{Claim, ClaimKey, Claimed, End};
use crate::batcher::Work;

const DEADLINE: Duration = Duration::from_secs(5);

/// The statements of one kind of claim.
#[derive(Debug, Clone, Copy)]
pub struct Statements {
    /// Claims what has no row yet. Rows whose door is not open, and rows that exist, are not
    /// returned.
    pub claim_new: &'static str,
    /// For what `claim_new` did not return: says why, and takes over what lies unsettled with its
    /// lease over. A statement of its own, because only a new one sees a row that was committed
    /// while `claim_new` waited for it.
    pub claim_known: &'static str,
    /// Settles what was confirmed and ends the lease of what was not published; only for the
    /// attempt that holds it.
    pub end_claims: &'static str,
}

/// The statements over `table`, whose key is `(workspace_id, scope, sha256)`. A door is a `door`,
/// and open if the join with `open` finds it.
macro_rules! statements {
    (table: $table:literal, scope: $scope:literal, sha256: $sha256:literal, id: $id:literal, door: $door:literal, open: $open:literal,) => {
        Statements {
            claim_new: concat!(
                "INSERT INTO ", $table, " (workspace_id, ", $scope, ", ", $sha256, ", ", $id, ", lease_until)
SELECT wanted.workspace_id, wanted.scope, wanted.sha256, wanted.id, clock_timestamp() + $6::float8 * interval '1 second'
FROM unnest($1::uuid[], $2::uuid[], $3::bytea[], $4::", $door, "[], $5::uuid[])
     AS wanted (workspace_id, scope, sha256, door, id)
JOIN ", $open, "
ORDER BY wanted.workspace_id, wanted.scope, wanted.sha256
ON CONFLICT DO NOTHING
RETURNING ", $id),
            claim_known: concat!("
WITH wanted AS (
    SELECT wanted.*
    FROM unnest($1::uuid[], $2::uuid[], $3::bytea[], $4::", $door, "[])
         WITH ORDINALITY AS wanted (workspace_id, scope, sha256, door, ordinal)
    JOIN ", $open, "
), expired AS (
    SELECT d.workspace_id, d.", $scope, ", d.", $sha256, "
    FROM wanted JOIN ", $table, " d
        ON d.workspace_id = wanted.workspace_id AND d.", $scope, " = wanted.scope AND d.", $sha256, " = wanted.sha256
    WHERE d.settled_at IS NULL AND d.lease_until <= clock_timestamp()
    FOR UPDATE OF d SKIP LOCKED
), taken AS (
    UPDATE ", $table, " d
    SET attempt = d.attempt + 1, claimed_at = clock_timestamp(),
        lease_until = clock_timestamp() + $5::float8 * interval '1 second'
    FROM expired
    WHERE (d.workspace_id, d.", $scope, ", d.", $sha256, ") = (expired.workspace_id, expired.", $scope, ", expired.", $sha256, ")
    RETURNING d.workspace_id, d.", $scope, ", d.", $sha256, ", d.attempt
)
SELECT wanted.ordinal, d.", $id, ", d.settled_at IS NOT NULL AS settled, taken.attempt
FROM wanted
LEFT JOIN ", $table, " d
    ON d.workspace_id = wanted.workspace_id AND d.", $scope, " = wanted.scope AND d.", $sha256, " = wanted.sha256
LEFT JOIN taken
    ON taken.workspace_id = wanted.workspace_id AND taken.", $scope, " = wanted.scope AND taken.", $sha256, " = wanted.sha256"),
            end_claims: concat!("
UPDATE ", $table, " d
SET settled_at = CASE WHEN ended.confirmed THEN clock_timestamp() END,
    lease_until = CASE WHEN ended.confirmed THEN d.lease_until ELSE clock_timestamp() END
FROM (SELECT set_config('synchronous_commit', 'off', true) AS synchronous_commit) AS quick,
     unnest($1::uuid[], $2::uuid[], $3::bytea[], $4::int[], $5::bool[])
     AS ended (workspace_id, scope, sha256, attempt, confirmed)
WHERE (d.workspace_id, d.", $scope, ", d.", $sha256, ") = (ended.workspace_id, ended.scope, ended.sha256)
  AND d.attempt = ended.attempt AND d.settled_at IS NULL AND quick.synchronous_commit = 'off'"),
        }
    };
}
pub(super) use statements;

/// Claims keys. The id that comes with a key is used if the key has none yet.
pub struct Claiming<K> {
    pool: Pool,
    lease: Duration,
    kind: PhantomData<fn() -> K>,
}

impl<K: ClaimKey> Claiming<K> {
    pub fn new(pool: Pool, lease: Duration) -> Self {
        Self {
            pool,
            lease,
            kind: PhantomData,
        }
    }
}

impl<K: ClaimKey> Work for Claiming<K> {
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

        let claimed = within(DEADLINE, "claiming", self.claim(&wanted)).await;
        let claimed =
            claimed.inspect_err(|error| tracing::warn!(%error, "nothing could be claimed"))?;
        Ok(items
            .iter()
            .map(|(key, id)| share(claimed[key], firsts[key] == *id))
            .collect())
    }
}

/// What one of several equal keys in a batch hears: a claim is held by the first of them only.
fn share<K: ClaimKey>(claimed: Claimed<K>, is_first: bool) -> Claimed<K> {
    match claimed {
        Claimed::Held(_) if !is_first => Claimed::InProgress,
        other => other,
    }
}

impl<K: ClaimKey> Claiming<K> {
    async fn claim(&self, wanted: &[(K, K::Id)]) -> Result<HashMap<K, Claimed<K>>, DatabaseError> {
        let client = Checkout::get(&self.pool).await?;
        let mut claimed = self.claim_new(&client, wanted).await?;
        if claimed.len() < wanted.len() {
            let rest: Vec<K> = wanted
                .iter()
                .map(|(key, _)| *key)
                .filter(|key| !claimed.contains_key(key))
                .collect();
            claimed.extend(self.claim_known(&client, &rest).await?);
        }
        client.done();
        Ok(claimed)
    }

    async fn claim_new(
        &self,
        client: &Client,
        wanted: &[(K, K::Id)],
    ) -> Result<HashMap<K, Claimed<K>>, DatabaseError> {
        let Columns {
            workspaces,
            scopes,
            hashes,
        } = Columns::of(wanted.iter().map(|(key, _)| key));
        let doors: Vec<_> = wanted.iter().map(|(key, _)| key.door()).collect();
        let ids: Vec<K::Id> = wanted.iter().map(|(_, id)| *id).collect();
        let keys: HashMap<K::Id, K> = wanted.iter().map(|(key, id)| (*id, *key)).collect();

        let statement = client.prepare_cached(K::STATEMENTS.claim_new).await?;
        let lease = self.lease.as_secs_f64();
        let rows = client
            .query(
                &statement,
                &[&workspaces, &scopes, &hashes, &doors, &ids, &lease],
            )
            .await?;
        rows.iter()
            .map(|row| {
                let id = row.try_get(0)?;
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

    async fn claim_known(
        &self,
        client: &Client,
        wanted: &[K],
    ) -> Result<HashMap<K, Claimed<K>>, DatabaseError> {
        let Columns {
            workspaces,
            scopes,
            hashes,
        } = Columns::of(wanted.iter());
        let doors: Vec<_> = wanted.iter().map(ClaimKey::door).collect();
        let statement = client.prepare_cached(K::STATEMENTS.claim_known).await?;
        let lease = self.lease.as_secs_f64();
        let rows = client
            .query(&statement, &[&workspaces, &scopes, &hashes, &doors, &lease])
            .await?;

        // Whatever is not returned has no open door.
        let mut claimed: HashMap<K, Claimed<K>> =
            wanted.iter().map(|key| (*key, Claimed::Gone)).collect();
        for row in &rows {
            let ordinal: i64 = row.try_get(0)?;
            let (id, settled, attempt): (Option<K::Id>, bool, Option<i32>) =
                (row.try_get(1)?, row.try_get(2)?, row.try_get(3)?);
            let key = wanted[ordinal as usize - 1];
            let answer = match (id, settled, attempt) {
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
pub struct Settling<K> {
    pool: Pool,
    kind: PhantomData<fn() -> K>,
}

impl<K: ClaimKey> Work for Settling<K> {
    type Item = (Claim<K>, End);
    type Output = ();
    type Error = DatabaseError;

    async fn run(&self, mut items: Vec<(Claim<K>, End)>) -> Result<Vec<()>, DatabaseError> {
        items.sort_unstable_by_key(|(claim, _)| claim.key);
        let ended = within(DEADLINE, "settling", self.end(&items)).await;
        ended.inspect_err(|error| tracing::warn!(%error, "claims could not be settled"))?;
        Ok(vec![(); items.len()])
    }
}

impl<K: ClaimKey> Settling<K> {
    pub fn new(pool: Pool) -> Self {
        Self {
            pool,
            kind: PhantomData,
        }
    }

    async fn end(&self, items: &[(Claim<K>, End)]) -> Result<(), DatabaseError> {
        let Columns {
            workspaces,
            scopes,
            hashes,
        } = Columns::of(items.iter().map(|(claim, _)| &claim.key));
        let attempts: Vec<i32> = items.iter().map(|(claim, _)| claim.attempt).collect();
        let confirmed: Vec<bool> = items
            .iter()
            .map(|(_, end)| *end == End::Confirmed)
            .collect();

        let client = Checkout::get(&self.pool).await?;
        let statement = client.prepare_cached(K::STATEMENTS.end_claims).await?;
        client
            .execute(
                &statement,
                &[&workspaces, &scopes, &hashes, &attempts, &confirmed],
            )
            .await?;
        client.done();
        Ok(())
    }
}

/// Keys, by column, as the statements take them.
struct Columns<'a, K: ClaimKey> {
    workspaces: Vec<WorkspaceId>,
    scopes: Vec<K::Scope>,
    hashes: Vec<&'a [u8]>,
}

impl<'a, K: ClaimKey> Columns<'a, K> {
    fn of(keys: impl Iterator<Item = &'a K>) -> Self {
        let mut columns = Self {
            workspaces: Vec::new(),
            scopes: Vec::new(),
            hashes: Vec::new(),
        };
        for key in keys {
            columns.workspaces.push(key.workspace());
            columns.scopes.push(key.scope());
            columns.hashes.push(key.sha256());
        }
        columns
    }
}
