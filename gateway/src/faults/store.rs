//! The statement that writes refusals.

use jiff::Timestamp;
use letterbox_common::{
    ids::{WebhookId, WorkspaceId},
    webhook::DeliveryFault,
};
use letterbox_database::{Database, DatabaseError, statements};

use super::kept::Refused;

statements! {
    /// Writes the refusals of webhooks that exist.
    NOTE_REFUSALS = note_refusals "SELECT note_refusals($1, $2, $3, $4, $5)";
}

pub(super) async fn note(database: &Database, refused: &[Refused]) -> Result<(), DatabaseError> {
    let workspaces: Vec<WorkspaceId> = refused.iter().map(|one| one.address.workspace).collect();
    let webhooks: Vec<WebhookId> = refused.iter().map(|one| one.address.webhook).collect();
    let times: Vec<Timestamp> = refused.iter().map(|one| one.at).collect();
    let reasons: Vec<DeliveryFault> = refused.iter().map(|one| one.reason).collect();
    let requests: Vec<Option<&str>> = refused
        .iter()
        .map(|one| one.request_id.as_deref())
        .collect();
    database
        .query_one(
            &NOTE_REFUSALS,
            &[
                /* $1 workspace_id */ &workspaces,
                /* $2 webhook_id */ &webhooks,
                /* $3 refused_at */ &times,
                /* $4 reason */ &reasons,
                /* $5 request_id */ &requests,
            ],
        )
        .await
        .map(drop)
}
