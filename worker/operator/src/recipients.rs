//! To whom secrets are sealed by those who may not open them: the processes that run now.

use letterbox_common::{
    sealing::{Recipient, SealedColumn},
    states::Program,
};
use letterbox_database::statements;

use crate::{Operator, OperatorError, Reason};

statements! {
    /// The public half of the key of the process that was started last.
    RECIPIENT = recipient "
SELECT key_id, public_key FROM processes
WHERE program = $1 AND is_alive(seen_at, 30)
ORDER BY process_id DESC LIMIT 1";
}

impl Operator {
    /// The key to which a new value of a column is sealed, which those processes open that use it.
    ///
    /// # Errors
    /// When none of them runs.
    pub async fn recipient(&self, column: SealedColumn) -> Result<Recipient, OperatorError> {
        let program = match column {
            SealedColumn::WebhookSecret => Program::Gateway,
            SealedColumn::AccountCredential
            | SealedColumn::ClientSecret
            | SealedColumn::Grant
            | SealedColumn::ActionAnswer => Program::Worker,
        };
        let found = self.database.query_opt(&RECIPIENT, &[&program]).await?;
        let found = found.ok_or(Reason::NoRecipient(program))?;
        let recipient =
            Recipient::from_bytes(found.try_get("key_id")?, found.try_get("public_key")?);
        recipient.ok_or(Reason::NoRecipient(program).into())
    }
}
