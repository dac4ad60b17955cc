//! The recipients of sealed secrets: the processes that run now.

use letterbox_common::{
    sealing::{Recipient, SealedColumn},
    states::Program,
};
use letterbox_database::statements;

use crate::{Operator, Reason, Result};

statements! {
    /// The public half of the key of the process that was started last.
    desk fn recipient(program: Program) -> Option<(String, Vec<u8>)> = "
SELECT key_id, public_key FROM processes
WHERE program = $1 AND is_alive(seen_at, 30)
ORDER BY process_id DESC LIMIT 1";
}

/// The processes that open the values of a column.
pub(crate) fn opened_by(column: SealedColumn) -> Program {
    match column {
        SealedColumn::WebhookSecret | SealedColumn::FormerWebhookSecret => Program::Gateway,
        SealedColumn::AccountCredential
        | SealedColumn::ClientSecret
        | SealedColumn::Grant
        | SealedColumn::ActionAnswer
        | SealedColumn::SubscriptionSecret => Program::Worker,
    }
}

impl Operator {
    /// The key to which a new value of a column is sealed, which those processes open that use it.
    ///
    /// # Errors
    /// When none of them runs.
    pub async fn recipient(&self, column: SealedColumn) -> Result<Recipient> {
        let program = opened_by(column);
        let found = recipient(self, program).await?;
        let found = found.and_then(|(key, public)| Recipient::from_bytes(key, &public));
        found.ok_or(Reason::NoRecipient(program).into())
    }
}
