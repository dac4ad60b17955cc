//! Claims that were lost, as after a restore of the database: an operator makes them anew, so that
//! dead letters are believed again.

use letterbox_broker::{Content, DeadLetter, FormSubmission, WebhookDelivery};
use letterbox_common::{
    KeyHash,
    ids::{DeliveryId, ReleaseId, RunId, WorkspaceId},
};
use letterbox_database::statements;
use uuid::Uuid;

use crate::{Operator, OperatorError};

statements! {
    /// Claims a delivery, settled, unless its body was claimed under another id, or is remembered.
    fn claim_lost_delivery(
        workspace: WorkspaceId, key_high: Uuid, key_low: Uuid, delivery: DeliveryId,
    ) -> (bool,) = "
SELECT claim_lost_delivery($1, $2, $3, $4) AS is_claimed";

    /// Claims a submission, settled, unless its key was claimed under another id, or is remembered.
    fn claim_lost_submission(
        workspace: WorkspaceId, key_high: Uuid, key_low: Uuid, submission: RunId,
        release: ReleaseId,
    ) -> (bool,) = "
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
        let workspace = delivery.workspace;
        let id = delivery.delivery;
        Ok(claim_lost_delivery(self, workspace, high, low, id).await?.0)
    }

    async fn claim_submission(&self, submission: &FormSubmission) -> Result<bool, OperatorError> {
        // Where the message does not tell the key, the id stands in for it.
        let stand_in =
            || KeyHash::of_content(submission.workflow.as_bytes(), submission.run.as_bytes());
        let (high, low) = submission.key.unwrap_or_else(stand_in).halves();
        let workspace = submission.workspace;
        let run = submission.run;
        let claiming = claim_lost_submission(self, workspace, high, low, run, submission.release);
        Ok(claiming.await?.0)
    }
}
