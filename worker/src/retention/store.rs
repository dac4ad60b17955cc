//! The statements behind retention.

use letterbox_database::statements;

statements! {
    /// Deletes one piece of the data older than so many days. Returns how many rows were examined;
    /// 0 when nothing is left.
    pub(super) fn forget(what: &str, days: i32, most: i32) -> (i32,) = "
SELECT forget($1, $2, $3) AS looked_at";

    /// Destroys the secrets of replaced webhooks whose grace period is over.
    pub(super) fn end_replaced_webhooks() = "SELECT end_replaced_webhooks() AS ended";

    /// Deletes batches whose gateway died and whose claims others have taken over.
    pub(super) fn forget_batches() = "SELECT forget_batches() AS forgotten";
}
