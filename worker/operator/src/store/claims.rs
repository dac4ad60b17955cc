//! Claims that an operator makes, for entries whose claims were lost.

use letterbox_broker::{FormSubmission, WebhookDelivery};
use letterbox_common::KeyHash;
use letterbox_database::{Database, DatabaseError, statements};

statements! {
    /// Claims a delivery, settled, unless its body was claimed under another id.
    CLAIM_DELIVERY = claim_lost_delivery "
INSERT INTO webhook_deliveries AS d (batch_id, workspace_id, key_high, key_low, delivery_id)
VALUES (0, $1, $2, $3, $4)
ON CONFLICT (workspace_id, key_high, key_low) DO UPDATE SET batch_id = 0
WHERE d.delivery_id = EXCLUDED.delivery_id
RETURNING delivery_id";

    /// Claims a submission, settled, unless its key was claimed under another id.
    CLAIM_SUBMISSION = claim_lost_submission "
INSERT INTO form_submissions AS s
    (batch_id, workspace_id, key_high, key_low, submission_id, release_ids)
VALUES (0, $1, $2, $3, $4, ARRAY[$5::uuid])
ON CONFLICT (workspace_id, key_high, key_low) DO UPDATE
SET batch_id = 0, release_ids = s.release_ids || EXCLUDED.release_ids
WHERE s.submission_id = EXCLUDED.submission_id
RETURNING submission_id";
}

/// False when the body was claimed meanwhile: its sender has delivered it again.
pub(crate) async fn claim_delivery(
    database: &Database,
    delivery: &WebhookDelivery,
    body: &[u8],
) -> Result<bool, DatabaseError> {
    let (high, low) = KeyHash::of_content(delivery.remembered_by().as_bytes(), body).halves();
    let claimed = database
        .query_opt(
            &CLAIM_DELIVERY,
            &[
                /* $1 workspace_id */ &delivery.workspace,
                /* $2 key_high */ &high,
                /* $3 key_low */ &low,
                /* $4 delivery_id */ &delivery.delivery,
            ],
        )
        .await?;
    Ok(claimed.is_some())
}

/// False when the key was claimed meanwhile: its sender has submitted it again. Where a message of
/// before does not tell the key, the id stands in for it.
pub(crate) async fn claim_submission(
    database: &Database,
    submission: &FormSubmission,
) -> Result<bool, DatabaseError> {
    let stand_in =
        || KeyHash::of_content(submission.workflow.as_bytes(), submission.run.as_bytes());
    let (high, low) = submission.key.unwrap_or_else(stand_in).halves();
    let claimed = database
        .query_opt(
            &CLAIM_SUBMISSION,
            &[
                /* $1 workspace_id */ &submission.workspace,
                /* $2 key_high */ &high,
                /* $3 key_low */ &low,
                /* $4 submission_id */ &submission.run,
                /* $5 release_id */ &submission.release,
            ],
        )
        .await?;
    Ok(claimed.is_some())
}
