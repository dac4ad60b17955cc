//! Statements that look up claims. Each serves a whole batch, and finds rows by key whatever the
//! planner's statistics say.

use letterbox_common::ids::{DeliveryId, ReleaseId, RunId, WebhookId, WorkspaceId};
use letterbox_database::statements;
use uuid::Uuid;

statements! {
    /// The positions of deliveries that are neither claimed under their ids nor stored as signals
    /// already, or whose memory is not that of their webhook.
    pub(crate) fn unclaimed_deliveries(
        workspaces: &[WorkspaceId], key_highs: &[Uuid], key_lows: &[Uuid],
        deliveries: &[DeliveryId], webhooks: &[WebhookId], memories: &[Option<WebhookId>],
    ) -> Vec<(i64,)> = "
SELECT wanted.place
FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::uuid[], $5::uuid[], $6::uuid[])
     WITH ORDINALITY AS wanted (workspace_id, key_high, key_low, id, webhook_id, memory_id, place)
WHERE wanted.memory_id IS DISTINCT FROM CASE WHEN wanted.memory_id IS NOT NULL THEN (
        SELECT w.memory_id FROM webhooks w
        WHERE w.workspace_id = wanted.workspace_id AND w.webhook_id = wanted.webhook_id) END
   OR wanted.id IS DISTINCT FROM (
        SELECT d.claim_id FROM webhook_deliveries d
        WHERE d.workspace_id = wanted.workspace_id
          AND d.key_high = wanted.key_high AND d.key_low = wanted.key_low)
  AND (SELECT true FROM signals s
       WHERE s.workspace_id = wanted.workspace_id AND s.signal_id = wanted.id) IS NULL";

    /// The positions of submissions that are neither claimed for their releases nor recorded as
    /// runs already. A claim is found by the id alone: all of a workspace are too many to look
    /// through.
    pub(crate) fn unclaimed_submissions(
        workspaces: &[WorkspaceId], submissions: &[RunId], releases: &[ReleaseId],
    ) -> Vec<(i64,)> = "
SELECT wanted.place
FROM unnest($1::uuid[], $2::uuid[], $3::uuid[])
     WITH ORDINALITY AS wanted (workspace_id, id, release_id, place)
WHERE (SELECT true FROM form_submissions s
       WHERE s.claim_id = wanted.id AND (s.workspace_id = wanted.workspace_id) IS TRUE
         AND wanted.release_id = ANY (s.release_ids) LIMIT 1) IS NULL
  AND (SELECT true FROM runs r
       WHERE r.workspace_id = wanted.workspace_id AND r.run_id = wanted.id) IS NULL
  AND (SELECT true FROM erased_runs e
       WHERE e.workspace_id = wanted.workspace_id AND e.run_id = wanted.id) IS NULL";
}

/// The position in the batch, counted from 0; SQL counts from 1.
pub(crate) fn place((place,): (i64,)) -> usize {
    place as usize - 1
}
