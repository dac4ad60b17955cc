//! The statements behind retention.

use letterbox_common::states::Forgotten;
use letterbox_database::{Database, DatabaseError, statements};

statements! {
    /// Deletes one piece of the data older than $2 days.
    FORGET = forget "SELECT forget($1, $2, $3) AS looked_at";

    /// Destroys the secrets of replaced webhooks whose grace period is over.
    END_REPLACED_WEBHOOKS = end_replaced_webhooks "SELECT end_replaced_webhooks() AS ended";

    /// Deletes batches whose gateway died and whose claims others have taken over.
    FORGET_BATCHES = forget_batches "SELECT forget_batches() AS forgotten";
}

/// Deletes one piece and returns how many rows were examined; 0 when nothing is left.
pub(super) async fn forget(
    database: &Database,
    what: Forgotten,
    days: i32,
    piece: i32,
) -> Result<i32, DatabaseError> {
    let row = database
        .query_one(
            &FORGET,
            &[
                /* $1 what */ &what.as_str(),
                /* $2 days */ &days,
                /* $3 most */ &piece,
            ],
        )
        .await?;
    Ok(row.try_get("looked_at")?)
}

/// Destroys the secrets of replaced webhooks whose grace period is over.
pub(super) async fn end_replaced_webhooks(database: &Database) -> Result<(), DatabaseError> {
    let ending = database.query_one(&END_REPLACED_WEBHOOKS, &[]).await;
    ending.map(drop)
}

/// Deletes batches of which no claim is left.
pub(super) async fn forget_batches(database: &Database) -> Result<(), DatabaseError> {
    database.query_one(&FORGET_BATCHES, &[]).await.map(drop)
}
