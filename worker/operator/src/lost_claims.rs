//! Claims that were lost, as after a restore of the database: an operator makes them anew, so that
//! dead letters are believed again.

use letterbox_broker::{Content, DeadLetter, FormSubmission, WebhookDelivery};
use letterbox_common::KeyHash;
use letterbox_database::statements;

use crate::{Operator, OperatorError};

statements! {
    /// Claims a delivery, settled, unless its body was claimed under another id, or is remembered.
    CLAIM_DELIVERY = claim_lost_delivery "
SELECT claim_lost_delivery($1, $2, $3, $4) AS is_claimed";

    /// Claims a submission, settled, unless its key was claimed under another id, or is remembered.
    CLAIM_SUBMISSION = claim_lost_submission "
SELECT claim_lost_submission($1, $2, $3, $4, $5) AS is_claimed";
}

impl Operator {
    /// Claims what a dead letter holds. Returns `false` if it can't be claimed, or its sender has
    /// sent it again meanwhile. An entry that was not believed died alone, so a letter of several
    /// is not one of them.
    pub(crate) async fn claim(&self, letter: &DeadLetter) -> Result<bool, OperatorError> {
        let [entry] = &letter.entries[..] else {
            return Ok(false);
        };
        match &entry.content {
            Ok(Content::Delivery(delivery)) => self.claim_delivery(delivery, &entry.body).await,
            Ok(Content::Submission(submission)) => self.claim_submission(submission).await,
            _ => Ok(false),
        }
    }

    async fn claim_delivery(
        &self,
        delivery: &WebhookDelivery,
        body: &[u8],
    ) -> Result<bool, OperatorError> {
        let (high, low) = delivery.key_hash(body).halves();
        let (is_claimed,) = self
            .fetch_one(
                &CLAIM_DELIVERY,
                &[
                    /* $1 workspace_id */ &delivery.workspace,
                    /* $2 key_high */ &high,
                    /* $3 key_low */ &low,
                    /* $4 delivery_id */ &delivery.delivery,
                ],
            )
            .await?;
        Ok(is_claimed)
    }

    async fn claim_submission(&self, submission: &FormSubmission) -> Result<bool, OperatorError> {
        // Where the message does not tell the key, the id stands in for it.
        let stand_in =
            || KeyHash::of_content(submission.workflow.as_bytes(), submission.run.as_bytes());
        let (high, low) = submission.key.unwrap_or_else(stand_in).halves();
        let (is_claimed,) = self
            .fetch_one(
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
        Ok(is_claimed)
    }
}
