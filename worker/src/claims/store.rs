//! Statements that look up claims. Each serves a whole batch, and finds rows by key whatever the
//! planner's statistics say.

use std::collections::HashSet;

use letterbox_common::ids::{DeliveryId, ReleaseId, RunId, WebhookId, WorkspaceId};
use letterbox_database::{Database, DatabaseError, statements};
use uuid::Uuid;

use crate::{runs::NewRun, signals::Signal};

statements! {
    /// The positions of deliveries that are neither claimed under their ids nor stored as signals
    /// already, or whose memory is not that of their webhook.
    fn unclaimed_deliveries(
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
    fn unclaimed_submissions(
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

/// The claim of a gateway, made before it published the entry.
pub(crate) trait Claimed: Sized {
    /// The positions of unclaimed items.
    fn unclaimed(
        database: &Database,
        batch: &[&Self],
    ) -> impl Future<Output = Result<HashSet<usize>, DatabaseError>> + Send;
}

impl Claimed for Signal {
    async fn unclaimed(
        database: &Database,
        signals: &[&Self],
    ) -> Result<HashSet<usize>, DatabaseError> {
        let workspaces: Vec<WorkspaceId> = signals.iter().map(|one| one.workspace).collect();
        let (highs, lows): (Vec<Uuid>, Vec<Uuid>) =
            signals.iter().map(|one| one.key.halves()).unzip();
        let ids: Vec<DeliveryId> = signals.iter().map(|one| one.id).collect();
        let webhooks = signals.iter().map(|one| (one.webhook, one.memory));
        let (webhooks, memories): (Vec<WebhookId>, Vec<Option<WebhookId>>) = webhooks.unzip();
        let places = unclaimed_deliveries(
            database,
            &workspaces,
            &highs,
            &lows,
            &ids,
            &webhooks,
            &memories,
        );
        Ok(places.await?.into_iter().map(place).collect())
    }
}

impl Claimed for NewRun {
    async fn unclaimed(
        database: &Database,
        runs: &[&Self],
    ) -> Result<HashSet<usize>, DatabaseError> {
        let workspaces: Vec<_> = runs.iter().map(|run| run.workspace).collect();
        let ids: Vec<_> = runs.iter().map(|run| run.run).collect();
        let releases: Vec<_> = runs.iter().map(|run| run.release).collect();
        let places = unclaimed_submissions(database, &workspaces, &ids, &releases).await?;
        Ok(places.into_iter().map(place).collect())
    }
}

/// The position in the batch, counted from 0; SQL counts from 1.
fn place((place,): (i64,)) -> usize {
    place as usize - 1
}
