//! The statements over `stored_bytes`.

use letterbox_common::ids::{WebhookId, WorkspaceId};
use letterbox_database::{Database, DatabaseError, statements};

use super::ByteCounts;

statements! {
    /// Adds to today's counts of the workspaces that are there.
    fn note_stored_bytes(
        workspaces: &[WorkspaceId], webhooks: &[Option<WebhookId>], bytes: &[i64],
    ) = "
INSERT INTO stored_bytes AS s (workspace_id, day, webhook_id, bytes)
SELECT workspace_id, (now() AT TIME ZONE 'UTC')::date, webhook_id, bytes
FROM unnest($1::uuid[], $2::uuid[], $3::bigint[]) AS new (workspace_id, webhook_id, bytes)
JOIN workspaces USING (workspace_id)
ORDER BY workspace_id, webhook_id NULLS FIRST
ON CONFLICT (workspace_id, day, webhook_id) DO UPDATE SET bytes = s.bytes + EXCLUDED.bytes";
}

/// Writes counts, all or none.
///
/// # Errors
/// When the database did not answer: they may have been written nevertheless.
pub(super) async fn note(database: &Database, counts: &ByteCounts) -> Result<(), DatabaseError> {
    let workspaces: Vec<WorkspaceId> = counts.keys().map(|(workspace, _)| *workspace).collect();
    let webhooks: Vec<Option<WebhookId>> = counts.keys().map(|(_, webhook)| *webhook).collect();
    let bytes: Vec<i64> = counts
        .values()
        .map(|bytes| i64::try_from(*bytes).unwrap_or(i64::MAX))
        .collect();
    note_stored_bytes(database, &workspaces, &webhooks, &bytes).await
}
