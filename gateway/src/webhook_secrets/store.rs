//! The look-up of sealed secrets: one statement for all that are asked for at one moment.

use std::{collections::HashMap, time::Duration};

use deadpool_postgres::Pool;
use letterbox_common::{
    database::{Checkout, DatabaseError},
    ids::{WebhookId, WorkspaceId},
    webhook::WebhookAddress,
};

use crate::batcher::Work;

const DEADLINE: Duration = Duration::from_secs(5);

/// find_secrets: the sealed secrets of those webhooks that live
pub const FIND_SECRETS: &str = "
SELECT w.workspace_id, w.webhook_id, w.secret_sealed
FROM unnest($1::uuid[], $2::uuid[]) AS wanted (workspace_id, webhook_id)
JOIN webhooks w USING (workspace_id, webhook_id)
WHERE w.deleted_at IS NULL";

/// Looks up webhooks; the output is the sealed secret, or nothing where no such webhook lives.
pub struct Lookup {
    pub pool: Pool,
}

impl Work for Lookup {
    type Item = WebhookAddress;
    type Output = Option<Vec<u8>>;
    type Error = DatabaseError;

    async fn run(&self, items: Vec<WebhookAddress>) -> Result<Vec<Option<Vec<u8>>>, DatabaseError> {
        let looking = tokio::time::timeout(DEADLINE, self.find(&items));
        let found =
            looking.await.unwrap_or_else(|_| Err(DatabaseError::transient("looking up webhooks took too long")));
        let found = found.inspect_err(|error| tracing::warn!(%error, "webhooks could not be looked up"))?;
        Ok(items.iter().map(|address| found.get(address).cloned()).collect())
    }
}

impl Lookup {
    async fn find(&self, items: &[WebhookAddress]) -> Result<HashMap<WebhookAddress, Vec<u8>>, DatabaseError> {
        let mut wanted = items.to_vec();
        wanted.sort_unstable();
        wanted.dedup();
        let (workspaces, webhooks): (Vec<WorkspaceId>, Vec<WebhookId>) =
            wanted.iter().map(|address| (address.workspace, address.webhook)).unzip();

        let client = Checkout::get(&self.pool).await?;
        let statement = client.prepare_cached(FIND_SECRETS).await?;
        let rows = client.query(&statement, &[&workspaces, &webhooks]).await?;
        client.done();
        rows.iter()
            .map(|row| Ok((WebhookAddress { workspace: row.try_get(0)?, webhook: row.try_get(1)? }, row.try_get(2)?)))
            .collect()
    }
}
