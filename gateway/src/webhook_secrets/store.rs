//! The look-up of sealed secrets: one statement for all that are asked for at one moment.

use std::{collections::HashMap, time::Duration};

use deadpool_postgres::Pool;
use letterbox_common::{
    database::{Checkout, DatabaseError, within},
    ids::{WebhookId, WorkspaceId},
    webhook::WebhookAddress,
};

use crate::batcher::Work;

const DEADLINE: Duration = Duration::from_secs(5);

/// find_secrets: the sealed secret of every webhook that is asked for, or the decoy ($3) where no
/// such webhook lives: as many rows, and as many bytes, for what is not there
pub const FIND_SECRETS: &str = "
SELECT wanted.workspace_id, wanted.webhook_id, w.webhook_id IS NOT NULL AS lives, coalesce(w.secret_sealed, $3::bytea)
FROM unnest($1::uuid[], $2::uuid[]) AS wanted (workspace_id, webhook_id)
LEFT JOIN webhooks w
    ON w.workspace_id = wanted.workspace_id AND w.webhook_id = wanted.webhook_id AND w.deleted_at IS NULL";

/// What stands behind an address.
#[derive(Debug, Clone)]
pub struct Found {
    /// Whether a webhook lives there; if not, `sealed` is the decoy.
    pub lives: bool,
    pub sealed: Vec<u8>,
}

/// Looks up webhooks by their addresses.
pub struct Lookup {
    pub pool: Pool,
    pub decoy: Vec<u8>,
}

impl Work for Lookup {
    type Item = WebhookAddress;
    type Output = Found;
    type Error = DatabaseError;

    async fn run(&self, items: Vec<WebhookAddress>) -> Result<Vec<Found>, DatabaseError> {
        let found = within(DEADLINE, "looking up webhooks", self.find(&items)).await;
        let found =
            found.inspect_err(|error| tracing::warn!(%error, "webhooks could not be looked up"))?;
        Ok(items.iter().map(|address| found[address].clone()).collect())
    }
}

impl Lookup {
    /// One entry for each distinct address.
    async fn find(
        &self,
        items: &[WebhookAddress],
    ) -> Result<HashMap<WebhookAddress, Found>, DatabaseError> {
        let mut wanted = items.to_vec();
        wanted.sort_unstable();
        wanted.dedup();
        let (workspaces, webhooks): (Vec<WorkspaceId>, Vec<WebhookId>) = wanted
            .iter()
            .map(|address| (address.workspace, address.webhook))
            .unzip();

        let client = Checkout::get(&self.pool).await?;
        let statement = client.prepare_cached(FIND_SECRETS).await?;
        let rows = client
            .query(&statement, &[&workspaces, &webhooks, &self.decoy])
            .await?;
        client.done();
        rows.iter()
            .map(|row| {
                let address = WebhookAddress {
                    workspace: row.try_get(0)?,
                    webhook: row.try_get(1)?,
                };
                Ok((
                    address,
                    Found {
                        lives: row.try_get(2)?,
                        sealed: row.try_get(3)?,
                    },
                ))
            })
            .collect()
    }
}
