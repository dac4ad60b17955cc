//! The statements that write refusals, repeats and waits.

use std::collections::HashMap;

use jiff::Timestamp;
use letterbox_common::{
    form::TokenHash,
    ids::{WebhookId, WorkspaceId},
    webhook::{DeliveryFault, WebhookAddress},
};
use letterbox_database::{Database, DatabaseError, statements};

use super::kept::Refused;

statements! {
    /// Writes the refusals of webhooks that exist.
    fn note_refusals(
        workspaces: &[WorkspaceId], webhooks: &[WebhookId], times: &[Timestamp],
        reasons: &[DeliveryFault], details: &[Option<&str>], requests: &[Option<&str>],
    ) = "SELECT note_refusals($1, $2, $3, $4, $5, $6)";

    /// Adds to how many deliveries of these webhooks were taken before.
    fn count_repeats(workspaces: &[WorkspaceId], webhooks: &[WebhookId], counts: &[i64]) =
        "SELECT count_repeats($1, $2, $3)";

    /// Adds to how many requests of these form links were asked to wait.
    fn count_waits(tokens: &[&[u8]], counts: &[i64]) = "SELECT count_waits($1, $2)";
}

pub(super) async fn count_waits_of(
    database: &Database,
    waits: &HashMap<TokenHash, i64>,
) -> Result<(), DatabaseError> {
    let tokens: Vec<&[u8]> = waits.keys().map(|one| &one.as_bytes()[..]).collect();
    let counts: Vec<i64> = waits.values().copied().collect();
    count_waits(database, &tokens, &counts).await
}

pub(super) async fn count(
    database: &Database,
    repeats: &HashMap<WebhookAddress, i64>,
) -> Result<(), DatabaseError> {
    let workspaces: Vec<WorkspaceId> = repeats.keys().map(|one| one.workspace).collect();
    let webhooks: Vec<WebhookId> = repeats.keys().map(|one| one.webhook).collect();
    let counts: Vec<i64> = repeats.values().copied().collect();
    count_repeats(database, &workspaces, &webhooks, &counts).await
}

pub(super) async fn note(database: &Database, refused: &[Refused]) -> Result<(), DatabaseError> {
    let workspaces: Vec<WorkspaceId> = refused.iter().map(|one| one.address.workspace).collect();
    let webhooks: Vec<WebhookId> = refused.iter().map(|one| one.address.webhook).collect();
    let times: Vec<Timestamp> = refused.iter().map(|one| one.at).collect();
    let reasons: Vec<DeliveryFault> = refused.iter().map(|one| one.reason).collect();
    let details: Vec<Option<&str>> = refused.iter().map(|one| one.detail.as_deref()).collect();
    let requests = refused.iter().map(|one| one.request_id.as_deref());
    let requests: Vec<Option<&str>> = requests.collect();
    note_refusals(
        database,
        &workspaces,
        &webhooks,
        &times,
        &reasons,
        &details,
        &requests,
    )
    .await
}
