//! Claims that were lost, as after a restore of the database: an operator makes them anew, so that
//! dead letters are believed again.

use std::slice;

use letterbox_broker::{Content, DeadLetter};
use letterbox_common::{
    KeyHash,
    ids::{ReleaseId, WorkspaceId},
    states::ClaimKind,
};
use letterbox_database::statements;
use uuid::Uuid;

use crate::{Operator, Result};

statements! {
    /// Claims a delivery or a submission, settled, unless its key was claimed under another id, or
    /// is remembered.
    fn claim_lost(
        kind: ClaimKind, workspace: WorkspaceId, key_high: Uuid, key_low: Uuid, id: Uuid,
        releases: Option<&[ReleaseId]>,
    ) -> (bool,) = "
SELECT claim_lost($1, $2, $3, $4, $5, $6) AS is_claimed";
}

impl Operator {
    /// Claims what a dead letter holds. Returns `false` if it can't be claimed, or its sender has
    /// sent it again meanwhile. An entry that was not believed died alone, so a letter of several
    /// is not one of them.
    pub(crate) async fn claim(&self, letter: &DeadLetter) -> Result<bool> {
        let [entry] = &letter.entries[..] else {
            return Ok(false);
        };
        let (kind, workspace, key, id, releases) = match &entry.content {
            Ok(Content::Delivery(one)) => {
                let key = one.key_hash(&entry.body);
                let id = one.delivery.as_bytes();
                (ClaimKind::Deliveries, one.workspace, key, id, None)
            }
            Ok(Content::Submission(one)) => {
                let id = one.run.as_bytes();
                // Where the message does not tell the key, the id stands in for it.
                let stand_in = || KeyHash::of_content(one.workflow.as_bytes(), id);
                let key = one.key.unwrap_or_else(stand_in);
                let releases = Some(slice::from_ref(&one.release));
                (ClaimKind::Submissions, one.workspace, key, id, releases)
            }
            _ => return Ok(false),
        };
        let (high, low) = key.halves();
        let id = Uuid::from_bytes(*id);
        let claiming = claim_lost(self, kind, workspace, high, low, id, releases);
        Ok(claiming.await?.0)
    }
}
