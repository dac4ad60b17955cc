//! The look-up of sealed secrets: one statement for all that are asked for at one moment.

use std::collections::HashMap;

use letterbox_common::{
    ids::{WebhookId, WorkspaceId},
    webhook::WebhookAddress,
};
use letterbox_database::{Database, DatabaseError, statements};

use crate::batcher::LookUp;

statements! {
    /// The sealed secret of every webhook that is asked for, or the decoy ($3) where no such
    /// webhook is live: as many rows, and as many bytes, for what is not there.
    FIND_SECRETS = find_secrets "
SELECT wanted.workspace_id, wanted.webhook_id, w.webhook_id IS NOT NULL AS is_live,
       coalesce(w.secret_sealed, $3::bytea) AS secret_sealed
FROM unnest($1::uuid[], $2::uuid[]) AS wanted (workspace_id, webhook_id)
LEFT JOIN webhooks w
    ON w.workspace_id = wanted.workspace_id AND w.webhook_id = wanted.webhook_id
    AND w.deleted_at IS NULL";
}

/// The secret behind an address.
#[derive(Debug, Clone)]
pub(super) struct StoredSecret {
    /// Whether there is a live webhook; if not, `sealed` is the decoy.
    pub(super) is_live: bool,
    pub(super) sealed: Vec<u8>,
}

/// Looks up webhooks by their addresses.
pub(super) struct SecretsByAddress {
    pub(super) database: Database,
    pub(super) decoy: Vec<u8>,
}

impl LookUp for SecretsByAddress {
    type Item = WebhookAddress;
    type Output = StoredSecret;
    type Error = DatabaseError;

    async fn look_up(
        &self,
        items: Vec<WebhookAddress>,
    ) -> Result<Vec<StoredSecret>, DatabaseError> {
        let found = self.find(&items).await?;
        Ok(items.iter().map(|address| found[address].clone()).collect())
    }
}

impl SecretsByAddress {
    /// One entry for each distinct address.
    async fn find(
        &self,
        items: &[WebhookAddress],
    ) -> Result<HashMap<WebhookAddress, StoredSecret>, DatabaseError> {
        let mut wanted = items.to_vec();
        wanted.sort_unstable();
        wanted.dedup();
        let (workspaces, webhooks): (Vec<WorkspaceId>, Vec<WebhookId>) = wanted
            .iter()
            .map(|address| (address.workspace, address.webhook))
            .unzip();
        let rows = self
            .database
            .query(
                &FIND_SECRETS,
                &[
                    /* $1 workspace_id */ &workspaces,
                    /* $2 webhook_id */ &webhooks,
                    /* $3 decoy */ &self.decoy,
                ],
            )
            .await?;
        rows.iter()
            .map(|row| {
                let workspace = row.try_get("workspace_id")?;
                let address = WebhookAddress {
                    workspace,
                    webhook: row.try_get("webhook_id")?,
                };
                let is_live = row.try_get("is_live")?;
                Ok((
                    address,
                    StoredSecret {
                        is_live,
                        sealed: row.try_get("secret_sealed")?,
                    },
                ))
            })
            .collect()
    }
}
