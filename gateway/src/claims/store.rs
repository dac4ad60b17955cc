//! The statements behind claims. Each serves a whole batch.
//!
//! Keys are sorted and distinct within a statement, so that two batches can't wait for each other in a circle and no
//! row is touched twice. Claims are durable when they return; the end of a claim need not be, because losing it costs one
//! more publish of the same id.

use std::{collections::HashMap, time::Duration};

use deadpool_postgres::Pool;
use letterbox_common::{
    database::{Checkout, DatabaseError},
    ids::{DeliveryId, WebhookId, WorkspaceId},
    webhook::WebhookAddress,
};

use super::{Claim, Claimed, DeliveryKey, End};
use crate::batcher::Work;

const DEADLINE: Duration = Duration::from_secs(5);

/// claim_new: claims what has no row yet. Rows of webhooks that do not live, and rows that exist, are not returned.
const CLAIM_NEW: &str = "
INSERT INTO webhook_deliveries (workspace_id, webhook_id, body_sha256, delivery_id, lease_until)
SELECT wanted.*, clock_timestamp() + $5::float8 * interval '1 second'
FROM unnest($1::uuid[], $2::uuid[], $3::bytea[], $4::uuid[]) AS wanted (workspace_id, webhook_id, body_sha256, delivery_id)
JOIN webhooks w USING (workspace_id, webhook_id)
WHERE w.deleted_at IS NULL
ORDER BY workspace_id, webhook_id, body_sha256
ON CONFLICT DO NOTHING
RETURNING delivery_id";

/// claim_known: for what claim_new did not return, says why, and takes over what lies unsettled with its lease over.
/// A statement of its own, because only a new one sees a row that was committed while claim_new waited for it.
const CLAIM_KNOWN: &str = "
WITH wanted AS (
    SELECT w.workspace_id, w.webhook_id, i.body_sha256, i.ordinal
    FROM unnest($1::uuid[], $2::uuid[], $3::bytea[]) WITH ORDINALITY AS i (workspace_id, webhook_id, body_sha256, ordinal)
    JOIN webhooks w USING (workspace_id, webhook_id)
    WHERE w.deleted_at IS NULL
), expired AS (
    SELECT d.workspace_id, d.webhook_id, d.body_sha256
    FROM wanted JOIN webhook_deliveries d USING (workspace_id, webhook_id, body_sha256)
    WHERE d.settled_at IS NULL AND d.lease_until <= clock_timestamp()
    FOR UPDATE OF d SKIP LOCKED
), taken AS (
    UPDATE webhook_deliveries d
    SET attempt = d.attempt + 1, claimed_at = clock_timestamp(),
        lease_until = clock_timestamp() + $4::float8 * interval '1 second'
    FROM expired
    WHERE (d.workspace_id, d.webhook_id, d.body_sha256)
        = (expired.workspace_id, expired.webhook_id, expired.body_sha256)
    RETURNING d.workspace_id, d.webhook_id, d.body_sha256, d.attempt
)
SELECT wanted.ordinal, d.delivery_id, d.settled_at IS NOT NULL AS settled, taken.attempt
FROM wanted
LEFT JOIN webhook_deliveries d USING (workspace_id, webhook_id, body_sha256)
LEFT JOIN taken USING (workspace_id, webhook_id, body_sha256)";

/// end_claims: settles what was confirmed and ends the lease of what was not published; only for the attempt that holds it.
const END_CLAIMS: &str = "
UPDATE webhook_deliveries d
SET settled_at = CASE WHEN ended.confirmed THEN clock_timestamp() END,
    lease_until = CASE WHEN ended.confirmed THEN d.lease_until ELSE clock_timestamp() END
FROM (SELECT set_config('synchronous_commit', 'off', true) AS synchronous_commit) AS quick,
     unnest($1::uuid[], $2::uuid[], $3::bytea[], $4::int[], $5::bool[])
     AS ended (workspace_id, webhook_id, body_sha256, attempt, confirmed)
WHERE (d.workspace_id, d.webhook_id, d.body_sha256) = (ended.workspace_id, ended.webhook_id, ended.body_sha256)
  AND d.attempt = ended.attempt AND d.settled_at IS NULL AND quick.synchronous_commit = 'off'";

/// Every statement of this store, for the test that prepares them against the schema under the gateway's role.
pub const STATEMENTS: [&str; 4] = [CLAIM_NEW, CLAIM_KNOWN, END_CLAIMS, crate::webhook_secrets::FIND_SECRETS];

/// Claims keys. The id that comes with a key is used if the key has none yet.
pub struct Claiming {
    pub pool: Pool,
    pub lease: Duration,
}

impl Work for Claiming {
    type Item = (DeliveryKey, DeliveryId);
    type Output = Claimed;
    type Error = DatabaseError;

    async fn run(&self, items: Vec<(DeliveryKey, DeliveryId)>) -> Result<Vec<Claimed>, DatabaseError> {
        // Of equal keys in one batch the first stands for all.
        let mut firsts: HashMap<DeliveryKey, DeliveryId> = HashMap::with_capacity(items.len());
        for (key, delivery) in &items {
            firsts.entry(*key).or_insert(*delivery);
        }
        let mut wanted: Vec<_> = firsts.iter().map(|(key, delivery)| (*key, *delivery)).collect();
        wanted.sort_unstable();

        let claiming = tokio::time::timeout(DEADLINE, self.claim(&wanted));
        let claimed = claiming.await.unwrap_or_else(|_| Err(DatabaseError::transient("claiming took too long")));
        let claimed = claimed.inspect_err(|error| tracing::warn!(%error, "deliveries could not be claimed"))?;
        Ok(items.iter().map(|(key, delivery)| share(claimed[key], firsts[key] == *delivery)).collect())
    }
}

/// What one of several equal keys in a batch hears: a claim is held by the first of them only.
fn share(claimed: Claimed, is_first: bool) -> Claimed {
    match claimed {
        Claimed::Held(_) if !is_first => Claimed::InProgress,
        other => other,
    }
}

impl Claiming {
    async fn claim(
        &self,
        wanted: &[(DeliveryKey, DeliveryId)],
    ) -> Result<HashMap<DeliveryKey, Claimed>, DatabaseError> {
        let client = Checkout::get(&self.pool).await?;
        let mut claimed = self.claim_new(&client, wanted).await?;
        if claimed.len() < wanted.len() {
            let rest: Vec<DeliveryKey> =
                wanted.iter().map(|(key, _)| *key).filter(|key| !claimed.contains_key(key)).collect();
            claimed.extend(self.claim_known(&client, &rest).await?);
        }
        client.done();
        Ok(claimed)
    }

    async fn claim_new(
        &self,
        client: &deadpool_postgres::Client,
        wanted: &[(DeliveryKey, DeliveryId)],
    ) -> Result<HashMap<DeliveryKey, Claimed>, DatabaseError> {
        let columns = Columns::of(wanted.iter().map(|(key, _)| key));
        let deliveries: Vec<DeliveryId> = wanted.iter().map(|(_, delivery)| *delivery).collect();
        let keys: HashMap<DeliveryId, DeliveryKey> = wanted.iter().map(|(key, delivery)| (*delivery, *key)).collect();

        let statement = client.prepare_cached(CLAIM_NEW).await?;
        let lease = self.lease.as_secs_f64();
        let rows = client
            .query(&statement, &[&columns.workspaces, &columns.webhooks, &columns.hashes, &deliveries, &lease])
            .await?;
        rows.iter()
            .map(|row| {
                let delivery = row.try_get(0)?;
                let key = keys[&delivery];
                Ok((key, Claimed::Held(Claim { key, delivery, attempt: 1 })))
            })
            .collect()
    }

    async fn claim_known(
        &self,
        client: &deadpool_postgres::Client,
        wanted: &[DeliveryKey],
    ) -> Result<HashMap<DeliveryKey, Claimed>, DatabaseError> {
        let columns = Columns::of(wanted.iter());
        let statement = client.prepare_cached(CLAIM_KNOWN).await?;
        let lease = self.lease.as_secs_f64();
        let rows = client.query(&statement, &[&columns.workspaces, &columns.webhooks, &columns.hashes, &lease]).await?;

        // Whatever is not returned belongs to a webhook that does not live.
        let mut claimed: HashMap<DeliveryKey, Claimed> = wanted.iter().map(|key| (*key, Claimed::Gone)).collect();
        for row in &rows {
            let ordinal: i64 = row.try_get(0)?;
            let (delivery, settled, attempt): (Option<DeliveryId>, bool, Option<i32>) =
                (row.try_get(1)?, row.try_get(2)?, row.try_get(3)?);
            let key = wanted[ordinal as usize - 1];
            let answer = match (delivery, settled, attempt) {
                (Some(delivery), _, Some(attempt)) => Claimed::Held(Claim { key, delivery, attempt }),
                (Some(_), true, None) => Claimed::Duplicate,
                _ => Claimed::InProgress,
            };
            claimed.insert(key, answer);
        }
        Ok(claimed)
    }
}

/// Ends claims one way or the other.
pub struct Settling {
    pub pool: Pool,
}

impl Work for Settling {
    type Item = (Claim, End);
    type Output = ();
    type Error = DatabaseError;

    async fn run(&self, mut items: Vec<(Claim, End)>) -> Result<Vec<()>, DatabaseError> {
        items.sort_unstable_by_key(|(claim, _)| claim.key);
        let settling = tokio::time::timeout(DEADLINE, self.end(&items));
        let ended = settling.await.unwrap_or_else(|_| Err(DatabaseError::transient("settling took too long")));
        ended.inspect_err(|error| tracing::warn!(%error, "claims could not be settled"))?;
        Ok(vec![(); items.len()])
    }
}

impl Settling {
    async fn end(&self, items: &[(Claim, End)]) -> Result<(), DatabaseError> {
        let columns = Columns::of(items.iter().map(|(claim, _)| &claim.key));
        let attempts: Vec<i32> = items.iter().map(|(claim, _)| claim.attempt).collect();
        let confirmed: Vec<bool> = items.iter().map(|(_, end)| *end == End::Confirmed).collect();

        let client = Checkout::get(&self.pool).await?;
        let statement = client.prepare_cached(END_CLAIMS).await?;
        client
            .execute(&statement, &[&columns.workspaces, &columns.webhooks, &columns.hashes, &attempts, &confirmed])
            .await?;
        client.done();
        Ok(())
    }
}

/// Keys, by column, as the statements take them.
struct Columns<'a> {
    workspaces: Vec<WorkspaceId>,
    webhooks: Vec<WebhookId>,
    hashes: Vec<&'a [u8]>,
}

impl<'a> Columns<'a> {
    fn of(keys: impl Iterator<Item = &'a DeliveryKey>) -> Self {
        let mut columns = Self { workspaces: Vec::new(), webhooks: Vec::new(), hashes: Vec::new() };
        for DeliveryKey { address: WebhookAddress { workspace, webhook }, body_sha256 } in keys {
            columns.workspaces.push(*workspace);
            columns.webhooks.push(*webhook);
            columns.hashes.push(body_sha256);
        }
        columns
    }
}
