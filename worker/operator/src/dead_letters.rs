//! Orders about dead letters: those that nobody has claimed are taken after all, on the operator's
//! word that they are genuine.

use letterbox_broker::{BrokerTarget, Content, DeadLetter, DeadLetters, UNCLAIMED};
use serde::Serialize;
use serde_json::json;

use crate::{Operator, OperatorError, PROGRAM, store};

/// What became of dead letters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Redriven {
    /// Claimed and published again.
    pub redriven: u64,
    /// Left: of other reasons, or delivered again by their senders meanwhile.
    pub left: u64,
}

impl Operator {
    /// Claims what lies unclaimed among the dead letters, and publishes it again: after the
    /// database was restored to an earlier state, when it is known that no stranger could publish.
    ///
    /// # Errors
    /// When a server fails. What was redriven until then stays so; to repeat the order is safe.
    pub async fn redrive_unclaimed(
        &self,
        broker: &BrokerTarget,
    ) -> Result<Redriven, OperatorError> {
        let mut letters = DeadLetters::open(broker, PROGRAM).await?;
        let ordered = json!({ "redrive": "unclaimed" });
        store::note_order(&self.database, "dead_letters", &ordered).await?;
        let mut outcome = Redriven::default();
        while let Some(letter) = letters.next().await? {
            if letter.reason.starts_with(UNCLAIMED) && self.claim(&letter).await? {
                letters.replay(letter).await?;
                outcome.redriven += 1;
            } else {
                outcome.left += 1;
            }
        }
        letters.close().await;
        Ok(outcome)
    }

    async fn claim(&self, letter: &DeadLetter) -> Result<bool, OperatorError> {
        let database = &self.database;
        Ok(match &letter.entry.content {
            Ok(Content::Delivery(delivery)) => {
                store::claim_delivery(database, delivery, &letter.entry.body).await?
            }
            Ok(Content::Submission(submission)) => {
                store::claim_submission(database, submission).await?
            }
            _ => false,
        })
    }
}
