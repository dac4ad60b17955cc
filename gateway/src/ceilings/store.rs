//! The look-up of stored bytes: one statement for all webhooks asked for at one moment.

use letterbox_common::{
    ids::{WebhookId, WorkspaceId},
    webhook::WebhookAddress,
};
use letterbox_database::{Database, statements};

use letterbox_common::batcher::LookUp;

statements! {
    /// For each webhook, whether it ($3) or its workspace ($4) has reached its ceiling today.
    fn find_full_webhooks(
        workspaces: &[WorkspaceId], webhooks: &[WebhookId], webhook_bytes: i64,
        workspace_bytes: i64,
    ) -> Vec<(bool,)> = "
SELECT coalesce(own.bytes >= $3, false) OR coalesce(everything.bytes >= $4, false) AS is_full
FROM unnest($1::uuid[], $2::uuid[])
     WITH ORDINALITY AS wanted (workspace_id, webhook_id, place)
LEFT JOIN stored_bytes own ON own.workspace_id = wanted.workspace_id
    AND own.day = (now() AT TIME ZONE 'UTC')::date AND own.webhook_id = wanted.webhook_id
LEFT JOIN stored_bytes everything ON everything.workspace_id = wanted.workspace_id
    AND everything.day = (now() AT TIME ZONE 'UTC')::date
    AND everything.webhook_id IS NULL
ORDER BY wanted.place";
}

/// Maximum bytes to store in a day (UTC).
#[derive(Debug, Clone, Copy)]
pub(crate) struct DailyBytes {
    /// For a whole workspace.
    pub(crate) workspace: u64,
    /// For one webhook.
    pub(crate) webhook: u64,
}

/// Looks up which webhooks have reached their ceiling.
pub(super) struct FullWebhooks {
    pub(super) database: Database,
    pub(super) most: DailyBytes,
}

impl LookUp for FullWebhooks {
    type Item = WebhookAddress;
    type Output = bool;

    async fn look_up(&self, items: Vec<WebhookAddress>) -> Option<Vec<bool>> {
        let workspaces: Vec<WorkspaceId> = items.iter().map(|one| one.workspace).collect();
        let webhooks: Vec<WebhookId> = items.iter().map(|one| one.webhook).collect();
        let most = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        let webhook = most(self.most.webhook);
        let workspace = most(self.most.workspace);
        let full = find_full_webhooks(&self.database, &workspaces, &webhooks, webhook, workspace);
        let full = full.await.ok()?.into_iter();
        Some(full.map(|(is_full,)| is_full).collect())
    }
}
